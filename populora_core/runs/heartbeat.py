"""heartbeat.json: who works on a run and where it stands, rewritten every few seconds while it works.

The lock keeps writers apart; the heartbeat is for readers, who must not take it: what shows a run, what looks after
many, and what clears up after one that was killed.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from populora_core.support import owner
from populora_core.support.durable import write_atomically
from populora_core.support.errors import PopuloraError
from populora_core.support.plain import read_plain
from populora_core.support.processes import Owner
from populora_core.support.received import Time, validated

HEARTBEAT = "heartbeat.json"
BEAT_SECONDS = 3.0
SILENT_SECONDS = 60.0
"""Seconds without a beat after which a process that cannot be seen from here counts as dead."""


class Life(StrEnum):
    """The state of a process, by its heartbeat."""

    ALIVE = "alive"
    ENDED = "ended"  # in order: finished, interrupted, or by an error that was told
    DEAD = "dead"  # killed, or its machine went down


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat.

    Attributes:
        process: `Owner` as text: boot, namespace, pid and start of the process.
        generation, stage: what it works on; None and empty before the first stage and after the end.
        time: ISO 8601, UTC.
        ended: whether it was the last one, written on the way out.
        children: worker processes, as `Owner` texts.
        mark: of the process and its children, by the key of the user whose they are.
    """

    pid: int
    host: str
    process: str
    generation: int | None
    stage: str
    time: Time
    ended: bool
    children: tuple[str, ...] = ()
    mark: str = ""

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The run's last heartbeat; None where there is none, or none that can be read."""
        try:
            return validated(TypeAdapter(cls), read_plain(directory / HEARTBEAT), HEARTBEAT)
        except (OSError, ValueError):
            return None

    @property
    def own_children(self) -> tuple[str, ...]:
        """The children, where this user's key marked them: a heartbeat that came with a run may name any process."""
        return self.children if hmac.compare_digest(self.mark.encode(), self.marked().mark.encode()) else ()

    def marked(self) -> Self:
        """The same under this user's mark."""
        return replace(self, mark=owner.mark_of(" ".join((self.process, *self.children))))

    @property
    def life(self) -> Life:
        """Alive, ended or dead; a process out of sight is judged by the age of its last beat."""
        if self.ended:
            return Life.ENDED
        if (writer := self.writer) is not None:
            return Life.DEAD if writer.is_gone() else Life.ALIVE
        return Life.DEAD if self.age > SILENT_SECONDS else Life.ALIVE

    @property
    def writer(self) -> Owner | None:
        """The process, where its state can be seen from here."""
        writer = Owner.parse(self.process) if self.host == socket.gethostname() else None
        return writer if writer is not None and (writer.visible or writer.is_gone()) else None

    @property
    def age(self) -> float:
        """Seconds since."""
        return (datetime.now(UTC) - datetime.fromisoformat(self.time)).total_seconds()

    def __str__(self) -> str:
        where = f"{self.stage} of generation {self.generation}" if self.stage else "before its first stage"
        return f"pid {self.pid} on {self.host}, {where}, {max(self.age, 0):.0f} s ago"


class Heartbeat:
    """A beat from a thread for as long as the block lasts; a beat that cannot be written is left out.

    Args:
        children: gives the process ids of the workers there are now.
    """

    def __init__(self, directory: Path, children: Callable[[], Sequence[int]]) -> None:
        self._directory, self._children = directory, children
        self._position: tuple[int | None, str] = (None, "")
        self._process = Owner.this_process()
        self._moved = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._beat, name="populora-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = True
        self._moved.set()
        self._thread.join()
        self._position = None, ""
        self._write()

    def at(self, generation: int | None = None, stage: str = "") -> None:
        """Tell where the run stands; written at once, by the thread."""
        self._position = generation, stage
        self._moved.set()

    def _beat(self) -> None:
        while not self._ended:
            self._write()
            self._moved.wait(BEAT_SECONDS)
            self._moved.clear()

    def _write(self) -> None:
        generation, stage = self._position
        beat = Beat(
            pid=os.getpid(),
            host=socket.gethostname(),
            process=str(self._process),
            generation=generation,
            stage=stage,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            ended=self._ended,
            children=tuple(str(Owner.of(pid)) for pid in self._children()),
        )
        with suppress(PopuloraError):  # a full disk ends a stage, which says so; not a heartbeat
            write_atomically(self._directory / HEARTBEAT, json.dumps(asdict(beat.marked()), indent=1) + "\n")
