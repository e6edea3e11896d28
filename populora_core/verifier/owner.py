"""Whose something is: a name for this process by which a later one can tell that it has ended."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from populora_core import processes

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told apart from later ones with the same id.

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
        return cls(_boot(), _namespace(), os.getpid(), processes.started(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The owner whose text this is; None if it is no owner's."""
        match = re.fullmatch(r"([0-9a-f]{8})-(\d+)-(\d+)-(\w+)", text)
        return cls(match[1], int(match[2]), int(match[3]), match[4]) if match else None

    def __str__(self) -> str:
        return f"{self.boot}-{self.namespace}-{self.pid}-{self.started}"

    def is_gone(self) -> bool:
        """Whether the process surely has ended; False where it cannot be seen from here."""
        if self.boot != _boot():
            return True
        return self.namespace == _namespace() and processes.started(self.pid) != self.started


def _boot() -> str:
    return _BOOT_ID.read_text()[:8]


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
