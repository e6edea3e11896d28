"""A cgroup round each sandbox process, where this user may make one: the kernel then counts all of its memory.

A program's address space bounds what it maps, not the page tables that this takes. Root may make a group, and a user
below a delegated one (systemd gives each user such a part). Elsewhere the limit on one program is all there is.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from populora_core.support.processes import has_ended, started

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
PREFIX = "populora-"
MOST_PROCESSES = 16
END_SECONDS = 10.0  # until the kernel has let go of what was killed
_CONTROLLERS = ("memory", "pids")
_MEMORY = ("memory.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
_ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"'
_numbers = count()


@dataclass(frozen=True, slots=True)
class Group:
    """One group of processes: a folder of the unified hierarchy, or one of each controller's."""

    folders: tuple[Path, ...]

    def around(self, command: Sequence[str]) -> list[str]:
        """The command line that enters the group first, so that nothing of the command is ever outside."""
        return ["/bin/sh", "-c", _ENTER, "sh", *map(str, self.folders), "--", *command]

    def remove(self) -> None:
        """Remove the group, whose processes have ended."""
        deadline = time.monotonic() + END_SECONDS
        for folder in self.folders:
            while _refuses_to_go(folder) and time.monotonic() < deadline:
                time.sleep(0.01)


def make(memory_bytes: int) -> Group | None:
    """A group with so much memory and `MOST_PROCESSES` processes; None where this user may make none."""
    return _make(parents(), memory_bytes) if usable() else None


@cache
def usable() -> bool:
    """True if groups can be made and entered here, which a trial decides."""
    places = parents()
    _sweep(places)
    try:
        group = _make(places, 64 << 20)
        done = subprocess.run(group.around(["/bin/true"]), env={}, capture_output=True)
        group.remove()
        return bool(places) and done.returncode == 0
    except OSError:
        return False


def parents() -> tuple[Path, ...]:
    """Parents of new groups: in the unified hierarchy, or in that of each controller; empty without either."""
    with suppress(OSError):
        lines = OWN.read_text().splitlines()
        own = {
            name: path
            for _, names, path in (line.split(":", 2) for line in lines)
            for name in names.split(",")
        }
        if all(controller in own for controller in _CONTROLLERS):
            return tuple(ROOT / controller / own[controller].lstrip("/") for controller in _CONTROLLERS)
        place = ROOT / own[""].lstrip("/")
        for folder in (place, *place.parents):
            if (
                folder.is_relative_to(ROOT)
                and set(_CONTROLLERS) <= _given_on(folder)
                and os.access(folder, os.W_OK)
            ):
                return (folder,)
    return ()


def _given_on(folder: Path) -> set[str]:
    """The controllers that the groups in a folder have."""
    return set((folder / "cgroup.subtree_control").read_text().split())


def _make(places: Sequence[Path], memory_bytes: int) -> Group:
    pid = os.getpid()
    name = f"{PREFIX}{pid}-{started(pid)}-{next(_numbers)}"
    group = Group(tuple(place / name for place in places))
    for folder in group.folders:
        folder.mkdir()
        limits = dict.fromkeys(_MEMORY, memory_bytes) | {"memory.swap.max": 0, "pids.max": MOST_PROCESSES}
        for file, value in limits.items():
            if (folder / file).exists():
                (folder / file).write_text(str(value))
    return group


def _sweep(places: Sequence[Path]) -> None:
    """Remove the groups of processes that are gone."""
    for folder in (found for place in places for found in place.glob(f"{PREFIX}*-*-*")):
        pid, when = folder.name.removeprefix(PREFIX).split("-")[:2]
        if pid.isdigit() and has_ended(int(pid), when):
            _refuses_to_go(folder)


def _refuses_to_go(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
