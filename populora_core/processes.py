"""Telling a process from a later one that was given the same id."""

from __future__ import annotations

import os
from pathlib import Path

GONE = "gone"


def started(pid: int) -> str:
    """When the process started, in ticks from boot; `GONE` if it has ended.

    Without /proc every living process gives the same text, so that it counts as the one meant.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[19]
    except OSError:
        if Path("/proc/self").exists():
            return GONE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return GONE
    except PermissionError:
        pass
    return "alive"
