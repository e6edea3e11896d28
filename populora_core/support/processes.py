"""Identity of processes: one is distinguished from a later one with the same id."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

GONE, UNSEEN = "gone", "alive"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def started(pid: int) -> str:
    """The process's start time in ticks from boot; `GONE` if it has ended, collected by its parent or not.

    `UNSEEN` where /proc does not show a living process: there is none, or it hides those of other users.
    """
    with suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # the kernel cuts names inside a letter
        state, *fields = told.rpartition(")")[2].split()
        return GONE if state in "ZX" else fields[18]
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # the latter of a number that is no process's
        return GONE
    except PermissionError:
        pass
    return UNSEEN


def has_ended(pid: int, when: str) -> bool:
    """True if the process that `started` at this time has surely ended, as one that was `GONE` then has."""
    return when == GONE or started(pid) not in (when, UNSEEN)


def descendants(pid: int, depth: int | None = None) -> list[int]:
    """Every process below `pid`, or those of the first `depth` levels; none without /proc."""
    found = []
    if depth != 0:
        with suppress(OSError):  # it has ended meanwhile, or a thread of it
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                for child in map(int, children.read_text().split()):
                    found += [child, *descendants(child, None if depth is None else depth - 1)]
    return found


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told apart from later ones with the same id: whose something is that may outlive it.

    Attributes:
        boot: the first eight digits of the kernel's boot id.
        namespace: the process-id namespace in which `pid` means something.
        started: ticks from boot to the start of the process.
    """

    boot: str
    namespace: int
    pid: int
    started: str

    @classmethod
    def this_process(cls) -> Self:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Self:
        """A process that this one can see."""
        return cls(_boot(), _namespace(), pid, started(pid))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The owner whose text this is; None if it is no owner's."""
        match = re.fullmatch(r"([0-9a-f]{8})-(\d+)-(\d+)-(\w+)", text)
        return cls(match[1], int(match[2]), int(match[3]), match[4]) if match else None

    @classmethod
    def parse_here(cls, text: str) -> Self | None:
        """The owner whose `here` this is; None if it is another host's, or no owner's."""
        owner, _, host = text.partition("@")
        return cls.parse(owner) if host == socket.gethostname() else None

    @property
    def here(self) -> str:
        """The text with this host's name, for a folder that other hosts may share: boots of theirs are not ours."""
        return f"{self}@{socket.gethostname()}"

    def __str__(self) -> str:
        return f"{self.boot}-{self.namespace}-{self.pid}-{self.started}"

    @property
    def visible(self) -> bool:
        """True if its process ids are ours, so that its state can be seen from here."""
        return self.boot == _boot() and self.namespace == _namespace()

    def is_gone(self) -> bool:
        """True if the process, one of this host, has surely ended; False if it cannot be seen from here."""
        if self.boot != _boot():
            return True
        return self.visible and has_ended(self.pid, self.started)


def _boot() -> str:
    return _BOOT_ID.read_text()[:8]


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
