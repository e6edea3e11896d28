"""Temporary folders that may outlive a killed process: each names its owner, and is swept once that is gone."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from populora_core.support.plain import read_plain
from populora_core.support.processes import Owner

PREFIX = "populora-"
OWNER = "owner"
SOCKET_BYTES = 107  # a Unix socket's longest path


def make_folder(kind: str, inside: int) -> Path:
    """A folder of this user alone, below the folder of temporary files where a socket in it keeps within its length.

    Args:
        kind: what it is for, part of its name.
        inside: the longest path of a socket in it, in bytes.
    """
    parent, prefix = tempfile.gettempdir(), f"{PREFIX}{kind}-"
    short = len(os.fsencode(parent)) + 1 + len(prefix) + 8 + inside <= SOCKET_BYTES
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent if short else "/tmp"))
    try:
        (folder / OWNER).write_text(Owner.this_process().here)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def sweep() -> list[str]:
    """Remove the folders of processes of this host that no longer run; says so, a line each."""
    removed = []
    for parent in {tempfile.gettempdir(), "/tmp"}:
        for mark in sorted(Path(parent).glob(f"{PREFIX}*/{OWNER}")):
            try:
                if mark.parent.lstat().st_uid != os.geteuid():
                    continue  # another user's, who may have put anything there
                owner = Owner.parse_here(read_plain(mark).decode(errors="replace"))
            except OSError:
                continue
            if owner is not None and owner.is_gone():
                shutil.rmtree(mark.parent, ignore_errors=True)
                removed.append(f"removed {mark.parent}")
    return removed
