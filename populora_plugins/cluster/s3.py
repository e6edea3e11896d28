"""The object store on S3-compatible storage, through obstore.

Endpoint, region and credentials come from the usual AWS environment variables, never from a configuration. What is
relied upon of a server is little: a `PutObject` with `If-None-Match: *` that answers 412 where the key is taken, and
objects that appear whole or not at all. All but the largest files are one `PutObject`: the server checks its sha256,
and a killed writer leaves no parts behind. A document, whose one winner counts, always is: Ceph 16 takes the condition
of a multipart upload and ignores it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import S3Store

from populora_core.sharing.objects import (
    Stored,
    missing,
    object_key,
    require_digest,
    require_key,
    require_size,
    whole,
)
from populora_core.support import durable
from populora_core.support.digest import file_sha256
from populora_core.support.errors import ArtifactError, ConfigError, StoreUnavailable
from populora_plugins.cluster.trouble import Trouble

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, S3Config

SINGLE_BYTES = 5 << 30  # of one PutObject, by S3's rules; what is larger goes in parts
PART_BYTES = 64 << 20  # S3 takes 10,000 of them
DOCUMENT_BYTES = 4 << 20  # a document is one request, never parts
READ_BYTES = 8 << 20  # of an object, at a time
REFRESH_SECONDS = 12 * 3600.0  # an older object is written again, so that no sweep takes it from under us
_DAMAGED_IN_TRANSIT = 3  # reads of one object before it counts as damaged in the store

_Answer = TypeVar("_Answer")
_NEVER = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits of a request, and pauses between tries.

    Attributes:
        connect_seconds, read_seconds: without a sign of life, of one try.
        bytes_per_second: an upload that is slower fails.
        pauses: seconds before each further try. They outlast a server's restart: a stage that took hours waits.
        first: how many of them before the store has answered at all; a wrong address should be reported soon.
    """

    connect_seconds: float = 10.0
    read_seconds: float = 60.0
    bytes_per_second: float = 50_000.0
    pauses: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 60.0)
    first: int = 4


PATIENCE = Patience()


class S3Objects:
    """A store under `s3://bucket/prefix` (see `objects.ObjectStore`)."""

    def __init__(self, url: str, patience: Patience | None = None) -> None:
        parts = urlsplit(url)
        if not parts.hostname or "@" in parts.netloc or ":" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(
                "this is not the url of a bucket",
                expected="s3://bucket/prefix, with nothing else in it",
                got=f"s3://...{parts.path}" if "@" in parts.netloc else url,
                fix="give credentials and endpoint in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
                "AWS_ENDPOINT_URL",
            )
        self.bucket, self.prefix = parts.netloc, parts.path.strip("/")
        self.url = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        self._patience = patience or PATIENCE
        self._answered = False
        self._store = self._open(timeout=_NEVER, read_timeout=timedelta(seconds=self._patience.read_seconds))

    def put(self, path: Path, lasting: bool = False) -> str:
        sha256 = file_sha256(path)
        self._put(sha256, _mapped(path))
        return sha256

    def fetch(self, sha256: str, target: Path, size: int | None = None) -> None:
        with durable.writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        aside = durable.temporary_name(target.parent, target.name)
        try:
            for last in (*[False] * (_DAMAGED_IN_TRANSIT - 1), True):
                try:
                    self._try(f"get {object_key(sha256)}", lambda: self._download(sha256, aside))
                except FileNotFoundError as error:
                    raise missing(sha256, self.url) from error
                except OSError as error:
                    raise durable.write_error(target, error) from error
                came = file_sha256(aside)
                if came == sha256 or last:
                    break
            require_size(aside.stat().st_size, size, sha256, self.url)
            require_digest(came, sha256, self.url)
            with durable.writing(target):
                durable.fsync(aside)
                aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)

    def put_bytes(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        self._put(sha256, memoryview(data))
        return sha256

    def get_bytes(self, sha256: str) -> bytes:
        return whole(self.get(object_key(sha256)), sha256, self.url)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if len(data) > DOCUMENT_BYTES:
            raise ArtifactError(
                f"{key} is too long for a document",
                expected=f"at most {DOCUMENT_BYTES} bytes, since one request must carry it",
                got=f"{len(data)} bytes",
                fix="put the data as an object, and its sha256 into the document",
            )
        try:
            self._try(f"put {key}", lambda: self._store.put(require_key(key), data, mode="create"))
            return True
        except FileExistsError:
            return self.get(key) == data  # an earlier try may have won and its answer been lost

    def get(self, key: str) -> bytes | None:
        try:
            return self._try(f"get {key}", lambda: self._store.get(require_key(key)).bytes().to_bytes())
        except FileNotFoundError:
            return None

    def delete(self, key: str) -> None:
        self._try(f"delete {key}", lambda: self._store.delete(require_key(key)))

    def listing(self, prefix: str = "") -> Iterator[Stored]:
        found = self._try(
            f"list {prefix or 'everything'}",
            lambda: [item for page in self._store.list(prefix or None) for item in page],
        )
        for item in found:
            yield Stored(item["path"], item["size"], item["last_modified"].timestamp())

    def clear_unfinished(self, before: float, dry_run: bool = False) -> list[str]:
        """Clear nothing: what one request puts is never half there. For files of over 5 GB see README.md."""
        return []

    def _put(self, sha256: str, data: memoryview) -> None:
        """Store an object unless it is there whole, and so young that no sweep takes it before a manifest names it."""
        key, size, held = object_key(sha256), len(data), self._status(sha256)
        young = held is not None and time.time() - held["last_modified"].timestamp() < REFRESH_SECONDS
        if held is not None and held["size"] == size and young:
            return
        sender, in_parts = self._sender(size), size > SINGLE_BYTES
        self._try(
            f"put {key}",
            lambda: sender.put(key, data, use_multipart=in_parts, chunk_size=PART_BYTES, max_concurrency=4),
        )
        self._require_stored(sha256, size)

    def _download(self, sha256: str, path: Path) -> None:
        answer = self._store.get(object_key(sha256))
        with path.open("wb") as file:
            for chunk in answer.stream(min_chunk_size=READ_BYTES):
                file.write(chunk)

    def _status(self, sha256: str) -> ObjectMeta | None:
        try:
            return self._try(f"look up {object_key(sha256)}", lambda: self._store.head(object_key(sha256)))
        except FileNotFoundError:
            return None

    def _require_stored(self, sha256: str, size: int) -> None:
        """Raise StoreUnavailable unless the server says that it holds what was sent."""
        held = self._status(sha256)
        if held is None or held["size"] != size:
            raise StoreUnavailable(
                f"{self.url} did not keep {object_key(sha256)} as it was sent",
                expected=f"{size} bytes",
                got="nothing" if held is None else f"{held['size']} bytes",
                fix="look into the server; populora store check tries it, then resume",
            )

    def _sender(self, size: int) -> S3Store:
        """A store whose requests may take as long as `size` bytes take.

        The clock of `read_timeout` stops for nothing but what is received, so that a long upload needs one of its own.
        """
        patience = self._patience
        seconds = min(size, SINGLE_BYTES) / patience.bytes_per_second
        if seconds < patience.read_seconds:
            return self._store
        whole = patience.connect_seconds + patience.read_seconds + seconds
        return self._open(timeout=timedelta(seconds=whole))

    def _open(self, **clocks: timedelta) -> S3Store:
        authorities = _certificates()
        client = {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=self._patience.connect_seconds),
            **({"root_certificate": authorities} if authorities else {}),
            **clocks,
        }
        config = {"checksum_algorithm": "SHA256", "disable_bulk_delete": True}
        try:
            return S3Store(
                self.bucket,
                prefix=self.prefix or None,
                config=cast("S3Config", config),
                client_options=cast("ClientConfig", client),
                retry_config={"max_retries": 0},  # tries are counted in `_try`
            )
        except BaseError as error:
            raise self._unavailable("nothing was asked of it yet", Trouble.of(error)) from error

    def _try(self, what: str, request: Callable[[], _Answer]) -> _Answer:
        """Send a request, again while the trouble may pass, and return its answer.

        Raises:
            FileNotFoundError: there is no such key.
            FileExistsError: a conditional put found the key taken.
            StoreUnavailable: tries are spent, or another try would not help.
            OSError: a disk of this machine refuses; the caller names the file.
        """
        patience = self._patience
        for pause in (*(patience.pauses if self._answered else patience.pauses[: patience.first]), None):
            try:
                answer = request()
                self._answered = True
                return answer
            except (BaseError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                trouble = Trouble.of(error)
                self._answered |= trouble.status in (404, 412)
                if trouble.status == 404 and trouble.code != "NoSuchBucket":
                    raise FileNotFoundError(what) from error
                if trouble.status == 412:
                    raise FileExistsError(what) from error
                lapsed = trouble.no_login and self._answered  # whoever gives credentials may be back soon
                if pause is None or not (trouble.may_pass or lapsed):
                    raise self._unavailable(what, trouble) from error
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _unavailable(self, what: str, trouble: Trouble) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.url} does not do what was asked: {what}",
            expected="an answer of S3-compatible storage",
            got=f"{trouble.code}: {trouble.text}",
            fix=trouble.fix,
        )


def _certificates() -> bytes | None:
    """The authorities that AWS_CA_BUNDLE names, to be trusted beside those of the system."""
    bundle = os.environ.get("AWS_CA_BUNDLE")
    try:
        return Path(bundle).read_bytes() if bundle else None
    except OSError as error:
        raise StoreUnavailable(
            "the certificates of the store's authority cannot be read",
            expected="a PEM file in AWS_CA_BUNDLE",
            got=str(error),
            fix="correct AWS_CA_BUNDLE, or unset it",
        ) from error


def _mapped(path: Path) -> memoryview:
    """The bytes of a file, read from disk as they are sent."""
    with path.open("rb") as file:
        empty = path.stat().st_size == 0  # what cannot be mapped
        return memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
