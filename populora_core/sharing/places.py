"""Places of a store: a folder, which machines may share, or what a package brings by the scheme of a url."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from populora_core.sharing.objects import (
    ObjectStore,
    Stored,
    missing,
    object_key,
    require_digest,
    require_key,
    require_size,
    whole,
)
from populora_core.support import durable
from populora_core.support.digest import file_sha256, remember
from populora_core.support.errors import ConfigError, StoreUnavailable
from populora_core.support.plain import read_plain
from populora_core.support.registry import Registry

STORES = Registry(
    {},
    group="populora.stores",
    what="kind of store",
    setting="store.url",
    error=ConfigError,
    makes=ObjectStore,
)
"""Scheme of a url -> a function of the url that opens an `ObjectStore`."""

LOST_AND_FOUND = "lost+found"
"""A folder that the file system itself makes; only root can read it."""
_NO_LINKS = (errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def open_objects(url: str) -> ObjectStore:
    """The store at a url: `file:///shared/run`, a plain path (the same), or `s3://bucket/prefix`.

    Raises:
        ConfigError: a run directory, another scheme, a url that carries a secret, or packages that are not installed.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost") and parts.path:
        path = unquote(parts.path) if parts.scheme else url
        root = Path(os.path.expanduser(path)).resolve()
        if (root / "generations").is_dir():  # a store's own run.json would be that of the run
            raise ConfigError(
                f"{root} is a run directory, and no store",
                expected="a folder beside it, or a new one",
                got="a folder with generations/",
                fix="name the store's folder; the run's own store is store.url in its run.json",
            )
        return LocalObjects(root)
    if parts.scheme in STORES.made or parts.scheme in STORES.names():
        opened: ObjectStore = STORES.make(parts.scheme, url)
        return opened
    raise ConfigError(
        "this is not the url of a store",
        expected=f"file:///folder, a folder, or one of {', '.join(f'{name}://' for name in STORES.names())}",
        got=url,
        fix="name a folder that every machine sees, or a bucket",
    )


class LocalObjects:
    """A store in a folder, which may be shared between machines by a network file system with hard links."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = root.as_uri()

    def put(self, path: Path, lasting: bool = False) -> str:
        sha256 = file_sha256(path)
        if not self._refresh(sha256):
            give = _link_or_copy if lasting else shutil.copyfile
            self._place(sha256, lambda aside: give(path, aside))
        return sha256

    def fetch(self, sha256: str, target: Path, size: int | None = None) -> None:
        source = self._path(object_key(sha256))
        with durable.writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = durable.temporary_name(target.parent, target.name)
            try:
                if source.is_symlink():
                    raise missing(sha256, self.url)
                with _reading(self.url):
                    there = source.stat().st_size
                require_size(there, size, sha256, self.url)
                _link_or_copy(source, aside)
                require_digest(file_sha256(aside), sha256, self.url)
                os.replace(aside, target)
            except FileNotFoundError as error:
                raise missing(sha256, self.url) from error
            finally:
                aside.unlink(missing_ok=True)

    def put_bytes(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        if not self._refresh(sha256):
            self._place(sha256, lambda aside: aside.write_bytes(data))
        return sha256

    def get_bytes(self, sha256: str) -> bytes:
        return whole(self.get(object_key(sha256)), sha256, self.url)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        target = self._path(key)
        with durable.writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = durable.temporary_name(target.parent, target.name)
            try:
                aside.write_bytes(data)
                durable.fsync(aside)
                os.link(aside, target)  # unlike a rename it fails where the name is taken
                durable.fsync(target.parent)
                return True
            except FileExistsError:
                return target.read_bytes() == data
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise StoreUnavailable(
                    f"{self.url} cannot hold a store: its file system has no hard links",
                    expected="a file system on which a second writer of a name is refused",
                    got=str(error),
                    fix="put the store on another disk, or on S3-compatible storage",
                ) from error
            finally:
                aside.unlink(missing_ok=True)

    def get(self, key: str) -> bytes | None:
        with _reading(self.url):
            try:
                return read_plain(self._path(key))
            except FileNotFoundError:
                return None

    def delete(self, key: str) -> None:
        path = self._path(key)
        with durable.writing(path):
            path.unlink(missing_ok=True)

    def listing(self, prefix: str = "") -> Iterator[Stored]:
        with _reading(self.url):
            for path, unfinished in _walk(self._path(prefix) if prefix else self.root):
                status = None if unfinished else _status(path)
                if status is not None and stat.S_ISREG(status.st_mode):
                    yield Stored(path.relative_to(self.root).as_posix(), status.st_size, status.st_mtime)

    def clear_unfinished(self, before: float, dry_run: bool = False) -> list[str]:
        with _reading(self.url):
            left = [
                path for path, unfinished in _walk(self.root) if unfinished and durable.newest(path) < before
            ]
        with durable.writing(self.root):
            for path in left if not dry_run else ():
                with suppress(FileNotFoundError):  # another sweep was faster
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        return [path.relative_to(self.root).as_posix() for path in left]

    def _path(self, key: str) -> Path:
        return self.root / require_key(key)

    def _refresh(self, sha256: str) -> bool:
        """True if the object is there whole. It counts as new again: a sweep must not take it from under us."""
        path = self._path(object_key(sha256))
        with _reading(self.url):
            try:
                whole = file_sha256(path) == sha256
                if whole:
                    os.utime(path)
                    remember(os.stat(path), sha256)
                return whole
            except (FileNotFoundError, PermissionError):  # another user's can be replaced, not touched
                return False

    def _place(self, sha256: str, write: Callable[[Path], object]) -> None:
        target = self._path(object_key(sha256))
        with durable.writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with durable.replacing(target) as aside:
            write(aside)
            require_digest(file_sha256(aside), sha256, self.url)
            aside.chmod(0o444)  # it will be linked into run directories
            os.utime(aside)  # with its source: a link is as old, and a sweep takes what is old and unnamed
            remember(os.stat(aside), sha256)


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """The files below a folder that others write to, and what is unfinished there, files and folders: with True.

    What goes meanwhile is not there; what cannot be read is an error.
    """

    def seen(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) and error.filename != str(folder / LOST_AND_FOUND):
            raise error

    for place, folders, files in os.walk(folder, onerror=seen):
        unfinished = [name for name in folders if name.startswith(durable.TEMPORARY_PREFIX)]
        folders[:] = [name for name in folders if name not in unfinished]
        yield from ((Path(place, name), True) for name in unfinished)
        for name in files:
            yield Path(place, name), name.startswith(durable.TEMPORARY_PREFIX)


def _status(path: Path) -> os.stat_result | None:
    """None of what has gone."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)
        durable.fsync(target)


@contextmanager
def _reading(url: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:  # the caller knows what that means
        raise
    except OSError as error:
        raise StoreUnavailable(
            f"{url} cannot be read",
            expected="a folder that is mounted and readable",
            got=str(error),
            fix="mount it or fix its permissions, then resume",
        ) from error
