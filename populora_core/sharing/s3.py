"""The object store on S3-compatible storage: s3fs moves the bytes of objects, boto3 puts and reads documents.

Endpoint, region and credentials come from the usual AWS environment variables and profiles, never from a
configuration. What is relied upon of a server is little: a `PutObject` with `If-None-Match: *` that answers 412 where
the key is taken, and objects that appear whole or not at all. A conditional multipart upload is not: Ceph 16 takes
its condition and ignores it, so that documents, whose one winner counts, are always one small `PutObject`.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from populora_core.sharing.objects import (
    Stored,
    missing,
    object_key,
    require_digest,
    require_key,
    whole,
)
from populora_core.support import durable
from populora_core.support.digest import file_sha256
from populora_core.support.errors import ArtifactError, ConfigError, StoreUnavailable

try:
    import aiohttp
    import boto3
    import s3fs
    from botocore.config import Config as Settings
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        PartialCredentialsError,
        ProfileNotFound,
    )
    from fsspec.asyn import sync
except ImportError as error:
    raise ConfigError(
        "a store on s3:// needs packages that are not installed",
        expected="the extra `s3`: s3fs and boto3",
        came=str(error),
        remedy="pip install -e '.[s3]', or keep the store in a folder that every machine sees",
    ) from error

PART_BYTES = 16 << 20  # of a multipart upload; S3 takes 10,000 parts at most, so a file has up to 160 GB
SINGLE_BYTES = 2 * PART_BYTES  # below, s3fs sends one PutObject
DOCUMENT_BYTES = 4 << 20  # a document is one request, never parts
REFRESH_SECONDS = (
    12 * 3600.0
)  # an object older than this is written again, so that no sweep takes it from under us
_DAMAGED_IN_TRANSIT = 3  # reads of one object before it counts as damaged in the store

_Answer = TypeVar("_Answer")
_FAILURES = (BotoCoreError, ClientError, aiohttp.ClientError, OSError)  # TimeoutError is an OSError
_TRANSIENT_STATUS = (
    408,
    409,
    429,
)  # of those below 500; 409 is a conditional put beside another, to be tried again
_NO_SUCH_KEY = ("NoSuchKey", "NotFound", "404")  # an answer to HEAD has no body, so no better word
_NO_SUCH_UPLOAD = "NoSuchUpload"
_NO_LOGIN = (NoCredentialsError, PartialCredentialsError, ProfileNotFound)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request may take and how often it is tried again.

    Attributes:
        connect_seconds, read_seconds: without a sign of life, of one try.
        bytes_per_second: an upload that is slower is given up: aiohttp's clocks stand still while it sends.
        pauses: seconds before each further try. They outlast a server's restart: a stage that took hours waits.
        first: how many of them before the store has answered at all; a wrong address should be told soon.
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
                came=f"s3://...{parts.path}" if "@" in parts.netloc else url,
                remedy="give credentials and endpoint in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
                "AWS_ENDPOINT_URL, or in a profile named by AWS_PROFILE",
            )
        self.bucket, self._prefix = parts.netloc, parts.path.strip("/")
        self.url = f"s3://{self.bucket}/{self._prefix}".rstrip("/")
        self._patience = patience = patience or PATIENCE
        self._answered = False
        # Tries are counted here, once for both libraries, rather than in each of them.
        settings = {
            "connect_timeout": patience.connect_seconds,
            "read_timeout": patience.read_seconds,
            "retries": {"total_max_attempts": 1, "mode": "standard"},
        }
        try:
            self._client = boto3.session.Session().client("s3", config=Settings(**settings))
        except _FAILURES as error:
            raise self._unavailable("nothing was asked of it yet", error) from error
        self._files = s3fs.S3FileSystem(
            use_listings_cache=False,  # it would hide what another machine has just put
            skip_instance_cache=True,
            default_block_size=PART_BYTES,
            max_concurrency=4,
            config_kwargs=settings,
        )
        self._files.retries = 1

    def put(self, path: Path, lasting: bool = False) -> str:
        sha256, size = file_sha256(path), path.stat().st_size
        if self._refreshed(sha256, size):
            return sha256
        # One request carries the sha256 for the server to check; parts carry their own checksums.
        checks = {"ChecksumSHA256": _base64(sha256)} if size < SINGLE_BYTES else {}
        self._try(
            f"put {object_key(sha256)}",
            lambda: self._send(
                self._files._put_file,
                size,
                str(path),
                self._place(object_key(sha256)),
                chunksize=PART_BYTES,
                **checks,
            ),
        )
        self._require_stored(sha256, size)
        return sha256

    def fetch(self, sha256: str, target: Path) -> None:
        with durable.writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        aside = durable.temporary_name(target.parent, target.name)
        try:
            for last in (*[False] * (_DAMAGED_IN_TRANSIT - 1), True):
                try:
                    self._try(
                        f"get {object_key(sha256)}",
                        lambda: self._files.get_file(self._place(object_key(sha256)), str(aside)),
                    )
                except FileNotFoundError as error:
                    raise missing(sha256, self.url) from error
                except OSError as error:
                    raise durable.write_error(target, error) from error
                came = file_sha256(aside)
                if came == sha256 or last:
                    break
            require_digest(came, sha256, self.url)
            with durable.writing(target):
                durable.fsync(aside)
                aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)

    def put_bytes(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        if not self._refreshed(sha256, len(data)):
            self._try(
                f"put {object_key(sha256)}",
                lambda: self._send(
                    self._files._pipe_file,
                    len(data),
                    self._place(object_key(sha256)),
                    data,
                    chunksize=PART_BYTES,
                    **({"ChecksumSHA256": _base64(sha256)} if len(data) < SINGLE_BYTES else {}),
                ),
            )
            self._require_stored(sha256, len(data))
        return sha256

    def get_bytes(self, sha256: str) -> bytes:
        return whole(self.get(object_key(sha256)), sha256, self.url)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if len(data) > DOCUMENT_BYTES:
            raise ArtifactError(
                f"{key} is too long for a document",
                expected=f"at most {DOCUMENT_BYTES} bytes, since one request must carry it",
                came=f"{len(data)} bytes",
                remedy="put the data as an object, and its sha256 into the document",
            )
        try:
            self._try(
                f"put {key}",
                lambda: self._client.put_object(
                    Bucket=self.bucket, Key=self._name(key), Body=data, IfNoneMatch="*"
                ),
            )
            return True
        except FileExistsError:
            return self.get(key) == data  # an earlier try may have won and its answer been lost

    def get(self, key: str) -> bytes | None:
        try:
            return self._try(
                f"get {key}",
                lambda: self._client.get_object(Bucket=self.bucket, Key=self._name(key))["Body"].read(),
            )
        except FileNotFoundError:
            return None

    def delete(self, key: str) -> None:
        self._try(
            f"delete {key}", lambda: self._client.delete_object(Bucket=self.bucket, Key=self._name(key))
        )

    def listing(self, prefix: str = "") -> Iterator[Stored]:
        for page in self._pages("list_objects_v2", self._folder(prefix)):
            for item in page.get("Contents", ()):
                yield Stored(self._key(item["Key"]), item["Size"], item["LastModified"].timestamp())

    def clear_unfinished(self, before: float, dry_run: bool = False) -> list[str]:
        cleared = []
        for page in self._pages("list_multipart_uploads", self._folder()):
            for upload in page.get("Uploads", ()):
                if upload["Initiated"].timestamp() < before:
                    cleared.append(self._key(upload["Key"]))
                    if not dry_run:
                        self._abort(upload["Key"], upload["UploadId"])
        return cleared

    def _abort(self, name: str, upload: str) -> None:
        def abort() -> None:
            try:
                self._client.abort_multipart_upload(Bucket=self.bucket, Key=name, UploadId=upload)
            except ClientError as error:
                if _status_of(error)[1] != _NO_SUCH_UPLOAD:  # it was finished or aborted meanwhile
                    raise

        self._try(f"abort the upload of {name}", abort)

    def _refreshed(self, sha256: str, size: int) -> bool:
        """Whether the object is there whole, and so young that no sweep will take it before a manifest names it."""
        status = self._status(sha256)
        return (
            status is not None
            and status["ContentLength"] == size
            and time.time() - status["LastModified"].timestamp() < REFRESH_SECONDS
        )

    def _status(self, sha256: str) -> dict[str, Any] | None:
        try:
            return self._try(
                f"look up {object_key(sha256)}",
                lambda: self._client.head_object(
                    Bucket=self.bucket, Key=self._name(object_key(sha256)), ChecksumMode="ENABLED"
                ),
            )
        except FileNotFoundError:
            return None

    def _send(self, send: Callable[..., Any], size: int, *arguments: Any, **options: Any) -> None:
        """Have s3fs send `size` bytes. Raises TimeoutError where that takes longer than `Patience` allows it."""
        patience = self._patience
        seconds = patience.connect_seconds + patience.read_seconds + size / patience.bytes_per_second
        sync(self._files.loop, send, *arguments, timeout=seconds, **options)

    def _require_stored(self, sha256: str, size: int) -> None:
        """Raise StoreUnavailable unless the server holds what was sent, as far as it says."""
        status = self._status(sha256)
        held = None if status is None else (status["ContentLength"], status.get("ChecksumSHA256", ""))
        if held is None or held[0] != size or ("-" not in held[1] and held[1] not in ("", _base64(sha256))):
            raise StoreUnavailable(
                f"{self.url} did not keep {object_key(sha256)} as it was sent",
                expected=f"{size} bytes of that sha256",
                came="nothing" if held is None else f"{held[0]} bytes, checksum {held[1] or 'not kept'}",
                remedy="look into the server; populora store check tries it, then resume",
            )

    def _pages(self, operation: str, prefix: str) -> Iterator[dict[str, Any]]:
        pages = iter(self._client.get_paginator(operation).paginate(Bucket=self.bucket, Prefix=prefix))
        while (page := self._try(operation, lambda: next(pages, None))) is not None:
            yield page

    def _try(self, what: str, request: Callable[[], _Answer]) -> _Answer:
        """What the request answers, tried again while the trouble may pass.

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
            except _FAILURES as error:
                status, code = _status_of(error)
                if status is None and durable.refused(error):
                    raise
                if code in _NO_SUCH_KEY:
                    raise FileNotFoundError(what) from error
                if status == 412:
                    raise FileExistsError(what) from error
                if pause is None or not _may_pass(error, status, code):
                    raise self._unavailable(what, error) from error
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _unavailable(self, what: str, error: BaseException) -> StoreUnavailable:
        status, code = _status_of(error)
        if isinstance(error, _NO_LOGIN):
            remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        elif status in (401, 403) or code in ("ExpiredToken", "InvalidAccessKeyId"):
            remedy = "give credentials that may read, write, list and delete under this url"
        elif code == "NoSuchBucket":
            remedy = "create the bucket, or mend store.url"
        elif status == 501:
            remedy = "use a server that knows PutObject with If-None-Match"
        else:
            remedy = "see that the server runs and AWS_ENDPOINT_URL names it, then resume: nothing was lost"
        return StoreUnavailable(
            f"{self.url} does not do what was asked: {what}",
            expected="an answer of S3-compatible storage",
            came=f"{code or type(error).__name__}: {error}",
            remedy=remedy,
        )

    def _name(self, key: str) -> str:
        return f"{self._prefix}/{require_key(key)}".lstrip("/")

    def _folder(self, prefix: str = "") -> str:
        return f"{self._name(prefix) if prefix else self._prefix}/".lstrip("/")

    def _key(self, name: str) -> str:
        return name.removeprefix(self._prefix).lstrip("/")

    def _place(self, key: str) -> str:
        return f"{self.bucket}/{self._name(key)}"


def _status_of(error: BaseException) -> tuple[int | None, str]:
    """The HTTP status and the code of the server's answer, which s3fs keeps as the cause of its own error."""
    answer = error if isinstance(error, ClientError) else error.__cause__
    if not isinstance(answer, ClientError):
        return None, ""
    status = answer.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status, answer.response.get("Error", {}).get("Code", "")


def _may_pass(error: BaseException, status: int | None, code: str) -> bool:
    """Whether the same request may fare better later: no answer, or one that says so."""
    if isinstance(error, _NO_LOGIN):
        return False
    if status is None or status in _TRANSIENT_STATUS:
        return True
    return code == _NO_SUCH_UPLOAD or (status >= 500 and status != 501)


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()
