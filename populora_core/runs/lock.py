"""One writer at a time: the kernel lets a run directory's lock go when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from populora_core.support import durable
from populora_core.support.errors import RunInUse

LOCK = ".lock"


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Hold the directory against a second writer.

    Raises:
        RunInUse: another process writes to it; names its pid and host.
        ArtifactError: the directory cannot be written.
    """
    path = directory / LOCK
    with _take(path) as file:
        try:
            with suppress(OSError):  # on a full disk the lock holds without a name
                file.truncate(0)
                file.write(f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
            yield
        finally:
            with suppress(OSError):  # a file that stays behind holds nothing
                path.unlink()


def _no_link(path: str, flags: int) -> int:
    """Open a file that is no link: a link in a folder that somebody else made could have another file emptied."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _take(path: Path) -> FileIO:
    """The lock file, open and locked."""
    while True:
        with durable.writing(path):
            file = FileIO(path, "a+", opener=_no_link)  # unbuffered; closing it lets the lock go
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                return file
            file.close()  # its last holder removed it after we had opened it
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().decode(errors="replace").strip()
            file.close()
            raise RunInUse(
                f"another process is writing to {path.parent}",
                got=holder or "a process that left no name",
                fix="wait for it, or end it; then repeat this command",
            ) from error
        except OSError as error:
            file.close()
            raise durable.write_error(path, error) from error


def _is_at(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
