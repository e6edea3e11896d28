"""Plain files, and nothing else, where a file may be somebody else's: whoever opens a pipe waits for its writer."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_plain(path: Path) -> BufferedReader:
    """Open a plain file for reading.

    Raises:
        OSError: it is not there, or is a folder, a pipe, a socket or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "no plain file", str(path))


def read_plain(path: Path) -> bytes:
    """Read a plain file; see `open_plain`."""
    with open_plain(path) as file:
        return file.read()
