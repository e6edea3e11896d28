"""Trying out whether a store keeps what a run rests on."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from populora_core.sharing.objects import OBJECTS, ObjectStore, object_key
from populora_core.support.errors import PopuloraError, StoreUnavailable

PROBES = "probes"  # what `require_conditional` puts and removes


def require_conditional(objects: ObjectStore) -> None:
    """Try the one thing that everything rests upon: a second writer of a key is refused.

    Raises:
        StoreUnavailable: it is not, or the store does not answer.
    """
    key = f"{PROBES}/{secrets.token_hex(16)}"
    with _removed(objects, key):
        heard = [objects.put_if_absent(key, text) for text in (b"first", b"second")]
        stands = objects.get(key)
    if heard != [True, False] or stands != b"first":
        raise StoreUnavailable(
            f"{objects.url} cannot hold a run that several machines write",
            expected="of two puts with If-None-Match: * the second is refused with 412, and the first stands",
            got=f"{'both were taken' if all(heard) else 'neither held'}: the condition is ignored",
            fix="use a server that honours it (AWS S3, Ceph, MinIO of 2024 or later), or a shared folder",
        )


@contextmanager
def _removed(objects: ObjectStore, key: str) -> Iterator[None]:
    """Remove what a trial put; report the trial's failure, and not that removing fails too."""
    try:
        yield
    except BaseException:
        with suppress(PopuloraError):
            objects.delete(key)
        raise
    objects.delete(key)


def try_out(objects: ObjectStore) -> Iterator[str]:
    """Try everything that a run asks of its store; says what holds, a line each.

    Raises:
        StoreUnavailable: something does not, or the store does not answer.
    """
    require_conditional(objects)
    yield "a second writer of a key is refused"
    data = secrets.token_bytes(1 << 10)
    sha256 = objects.put_bytes(data)
    with _removed(objects, object_key(sha256)):
        objects.get_bytes(sha256)  # raises where they differ
        yield "bytes come back as they went"
        listed = any(item.key == object_key(sha256) for item in objects.listing(OBJECTS))
        yield (
            "what was put is listed at once"
            if listed
            else "listings lag: sweep and pull may miss what is new"
        )
    yield f"{objects.url} can hold a run"
