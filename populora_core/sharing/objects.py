"""Object stores: bytes under their hash, and small documents that only the first writer of a key puts there.

    ROOT/objects/<sha256>   data: named by its content, written whole or not at all, never changed
    ROOT/<key>              documents: a manifest is put once, and a later writer reads what is there

Nothing here needs a listing, a lock or a rename on the other side, so that the same protocol holds on a shared
disk and on S3-compatible storage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from populora_core.support.errors import ArtifactError, DamagedObject

OBJECTS = "objects"
SHARDS = "shards"  # documents of finished shards, until their stage is committed


@dataclass(frozen=True, slots=True)
class Stored:
    """One stored thing of a listing.

    Attributes:
        modified: when it was last written, in seconds since the epoch by the store's clock.
    """

    key: str
    bytes: int
    modified: float


class ObjectStore(Protocol):
    """A store that machines share: shards, stages and adapters.

    Every method raises StoreUnavailable where the store does not answer or refuses, once retries are spent; what
    was stored before is untouched then.
    """

    url: str

    def put(self, path: Path, lasting: bool = False) -> str:
        """Store a file under its content; returns the sha256. A second writer of equal bytes changes nothing.

        Args:
            lasting: whether the file is never written to again; on a local disk the object may then be a link to it.
        """

    def fetch(self, sha256: str, target: Path, size: int | None = None) -> None:
        """Bring an object to `target`: verified, written aside and renamed; what is there is replaced.

        The file is not to be written to: on a local disk it may be the object itself.

        Args:
            size: in bytes, where it is known: one of another size is not read.

        Raises:
            DamagedObject: the store has no such object, or a damaged one; `target` is untouched.
        """

    def put_bytes(self, data: bytes) -> str:
        """The same for bytes in memory."""

    def get_bytes(self, sha256: str) -> bytes:
        """The same for bytes in memory."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Put a small document unless the key is taken; whether the key now holds `data`.

        Of several writers with different data exactly one hears True. A writer whose first answer was lost, and
        one with equal data, hear True as well.
        """

    def get(self, key: str) -> bytes | None:
        """The document under `key`; None where there is none."""

    def delete(self, key: str) -> None:
        """Remove what `key` holds, if anything."""

    def listing(self, prefix: str = "") -> Iterator[Stored]:
        """Yield the entries below the folder `prefix`, in no order; no result may depend on it."""

    def clear_unfinished(self, before: float, dry_run: bool = False) -> list[str]:
        """Remove what began to be written before the moment and was never finished; what was removed."""


def object_key(sha256: str) -> str:
    return f"{OBJECTS}/{sha256}"


def whole(data: bytes | None, sha256: str, url: str) -> bytes:
    """Return the bytes of an object; raise DamagedObject if there are none, or they do not match its name."""
    if data is None:
        raise missing(sha256, url)
    require_digest(hashlib.sha256(data).hexdigest(), sha256, url)
    return data


def require_digest(came: str, sha256: str, url: str) -> None:
    """Raise DamagedObject unless the bytes are those that the object's name says."""
    if came != sha256:
        raise _damaged(sha256, url, f"bytes of sha256 {sha256}", f"bytes of sha256 {came}")


def require_size(came: int, size: int | None, sha256: str, url: str) -> None:
    """Raise DamagedObject where an object has another size than the one known."""
    if size not in (None, came):
        raise _damaged(sha256, url, f"{size} bytes of sha256 {sha256}", f"{came} bytes")


def _damaged(sha256: str, url: str, expected: str, got: str) -> DamagedObject:
    return DamagedObject(
        f"an object of {url} is damaged",
        expected=expected,
        got=got,
        fix=f"remove {object_key(sha256)} from the store; the next stage that makes the same bytes restores it",
    )


def missing(sha256: str, url: str) -> DamagedObject:
    """The error that stands for an object that a manifest names and the store does not have."""
    return DamagedObject(
        f"{url} has no object {sha256}",
        expected=object_key(sha256),
        got="nothing under that key",
        fix="restore the store from a copy, or put the file there under this key from a run directory that has it; "
        "where the stage is missing, populora resume makes it again",
    )


def require_key(key: str) -> str:
    """The key, once it is a plain relative path: nothing in a document may lead out of the store."""
    parts = PurePosixPath(key).parts
    if not parts or key != "/".join(parts) or parts[0] == "/" or ".." in parts:
        raise ArtifactError("this is no key of a store", expected="plain names with / between", got=repr(key))
    return key
