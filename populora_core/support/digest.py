"""sha256 of files, computed once per content: a file is known by its inode, so a link or a rename costs nothing."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from populora_core.support.plain import open_plain

_SETTLED_NS = 20_000_000
"""A file system's clock may stand still for this long, so two files that follow one another on one inode may look
alike; one that was written so recently is not remembered."""

Identity = tuple[int, int, int, int]  # device, inode, size and modification time of a file
known: dict[Identity, str] = {}
"""The sha256 of content that this process has read, or learnt from another."""
_MOST = 1 << 16


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, read again only when its inode, size or modification time changed."""
    status = os.stat(path)
    sha256 = known.get(_identity(status))
    if sha256 is None:
        sha256 = read_sha256(path)
        if time.time_ns() - status.st_mtime_ns > _SETTLED_NS:
            remember(status, sha256)
    return sha256


def read_sha256(path: Path) -> str:
    """The sha256 of a file's bytes as they are now."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_below(path: Path) -> dict[str, Path]:
    """Place within the folder -> file, in order; a file alone has the empty place. What is not there has none."""
    if path.is_file():
        return {"": path}
    files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    return dict(sorted(files.items()))


def remember(status: os.stat_result, sha256: str) -> None:
    """Know the bytes of a file by what `os.stat` says of it."""
    if len(known) >= _MOST:
        known.clear()
    known[_identity(status)] = sha256


def known_below(folder: Path) -> dict[Identity, str]:
    """The sha256 of every file below that is remembered, for another process of this machine to `know`."""
    found = {_identity(os.stat(file)) for file in files_below(folder).values()}
    return {identity: known[identity] for identity in found & known.keys()}


def know(hashes: Mapping[Identity, str]) -> None:
    """Remember what another process of this machine has read."""
    known.update(hashes)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
