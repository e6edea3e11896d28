"""File operations after which a crash, a full disk or a power cut leaves the old state or the new one."""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from populora_core.support.errors import ArtifactError
from populora_core.support.processes import Owner

TEMPORARY_PREFIX = ".tmp-"
_OWNER = re.compile(r"-([0-9a-f]{8}-\d+-\d+-\w+@.+)$")
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def fsync(path: Path) -> None:
    """Force a file's content, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Force every file and folder under `folder`, and itself, to disk."""
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            fsync(Path(parent, name))
        fsync(Path(parent))


def write_atomically(path: Path, text: str) -> None:
    """Replace a text file: readers see the old content or the new, never a part.

    Raises:
        ArtifactError: it could not be written; the old file is untouched.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A hidden path beside `path` to write to, which takes its place when the block ends well.

    Raises:
        ArtifactError: it could not be written, or is there and no plain file; what was at `path` is untouched.
    """
    if path.exists() and not path.is_file():
        raise ArtifactError(
            f"{path} is no plain file, so none is put in its place",
            expected="a new or an existing plain file",
            got="a folder" if path.is_dir() else "a device, a pipe or a socket",
            fix="choose another file; nothing was changed",
        )
    temporary = temporary_name(path.parent, path.name)
    with writing(path):
        try:
            yield temporary
            fsync(temporary)
            os.replace(temporary, path)
            fsync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def temporary_name(parent: Path, label: str) -> Path:
    """An unused hidden path in `parent` whose name tells which process it belongs to."""
    return parent / f"{TEMPORARY_PREFIX}{label}-{secrets.token_hex(4)}-{Owner.this_process().here}"


@contextmanager
def temporary_folder(parent: Path, label: str) -> Iterator[Path]:
    """A hidden folder beside its destination, removed at the end unless it was renamed into place.

    Raises:
        ArtifactError: it could not be made.
    """
    folder = temporary_name(parent, label)
    with writing(parent / label):
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def require_free(to: Path) -> None:
    """Raise ArtifactError unless a new folder may appear there."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ArtifactError(
            f"{to} is not free",
            expected="a new or an empty folder",
            got="a folder with other files" if to.is_dir() else "a file",
            fix="choose another --to; nothing was changed",
        )


@contextmanager
def new_folder(to: Path) -> Iterator[Path]:
    """A folder to fill, which appears as `to` at the end: whole, or not at all (see `require_free`).

    Raises:
        ArtifactError: it could not be written.
    """
    folder = temporary_name(to.parent, to.name)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with suppress(ArtifactError):  # what cannot be removed harms no one
            sweep(to.parent)
        folder.mkdir()
        yield folder
        fsync_tree(folder)
        os.rename(folder, to)  # takes the place of an empty folder
        fsync(to.parent)
    except OSError as error:
        raise ArtifactError(
            f"{to} could not be written; nothing of it was left behind",
            got=str(error),
            fix="free space on the disk, or choose another --to",
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path, before: float | None = None) -> list[Path]:
    """Remove what processes of this host that are gone left in `parent` under temporary names.

    Several may sweep one folder at the same time. It never touches another user's, nor, without `before`, another
    host's or container's, whose processes cannot be seen from here.

    Args:
        before: remove these, too, where nothing was written to them since, in seconds since the epoch.

    Returns:
        The removed paths.

    Raises:
        ArtifactError: one could not be removed.
    """
    removed = []
    for path in sorted(parent.glob(f"{TEMPORARY_PREFIX}*")):
        name = _OWNER.search(path.name)
        gone = name is not None and _is_gone(name[1])
        if gone is False or (gone is None and before is None):
            continue
        with writing(path), suppress(FileNotFoundError):  # somebody else removes it, too
            if path.lstat().st_uid != os.geteuid() or (before and not gone and newest(path) >= before):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
            removed.append(path)
    return removed


def _is_gone(text: str) -> bool | None:
    """True if the process whose `Owner.here` this is has surely ended; None if it cannot be seen from here."""
    owner = Owner.parse_here(text)
    if owner is None:
        return None
    return owner.is_gone() or (False if owner.visible else None)


def newest(path: Path) -> float:
    """The last modification of a file, or of anything in a folder, in seconds since the epoch; inf if it is gone."""

    def seen(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    walk = os.walk(path, onerror=seen) if path.is_dir() else ()
    below = [Path(place, name) for place, folders, files in walk for name in (*folders, *files)]
    times = []
    for each in (path, *below):
        with suppress(FileNotFoundError):
            times.append(each.lstat().st_mtime)
    return max(times, default=math.inf)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn a failure to write into an ArtifactError that names `target` and the way out."""
    try:
        yield
    except OSError as error:
        raise write_error(target, error) from error


def write_error(target: Path, error: OSError) -> ArtifactError:
    """The ArtifactError that stands for `error`."""
    return ArtifactError(
        f"{target} could not be written; nothing that was committed before is touched",
        expected="a writable disk with free space",
        got=str(error),
        fix="free space on the disk, then resume" if disk_full(error) else "fix the cause, then resume",
    )


def disk_full(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in DISK_FULL
