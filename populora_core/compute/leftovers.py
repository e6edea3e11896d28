"""Folders of Ray clusters that processes of this machine started: named for their owner, swept once it is gone."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from populora_core.support.processes import Owner

PREFIX = "populora-ray-"
OWNER = "owner"
SOCKET_CHARS = 107  # a Unix socket's longest path, of which Ray's own part takes some 70
RAY_CHARS = 74


def make_folder() -> Path:
    """A folder of this user alone for the token of a cluster of this process, and for Ray's own folder in it.

    Ray opens its own to everybody, so what must not be replaced stands beside it.
    """
    parent = tempfile.gettempdir()
    short = len(parent) + 1 + len(PREFIX) + 8 + RAY_CHARS <= SOCKET_CHARS
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent if short else "/tmp"))
    (folder / OWNER).write_text(str(Owner.this_process()))
    return folder


def sweep() -> list[str]:
    """Remove the folders of processes that no longer run; says so, a line each."""
    removed = []
    for parent in {tempfile.gettempdir(), "/tmp"}:
        for folder in sorted(Path(parent).glob(f"{PREFIX}*")):
            try:
                owner = Owner.parse((folder / OWNER).read_text())
            except OSError:
                continue  # not written yet, or another user's
            if owner is not None and owner.is_gone():
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(f"removed {folder}")
    return removed
