"""Logs that have every generation once.

RUN/trackers.json records what a log received: one digest per generation. What is to be sent follows from it and from
what lies on disk, whatever came in between: a kill, a resume, a generation that was made again, a tracker that was out
of reach for a while.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from populora_core.runs.run import Run
from populora_core.runs.trackers import GenerationFigures
from populora_core.support.durable import write_atomically
from populora_core.support.received import read_json
from populora_plugins.trackers.log import Kept, Log, Opener

RECORD = "trackers.json"


class Once:
    """A tracker that gives a log each generation once, and a log that holds an older result what it needs."""

    def __init__(self, name: str, run: Run, opener: Opener) -> None:
        self._name, self._run, self._opener = name, run, opener
        self._log: Log | None = None

    def follow(self, generations: Sequence[GenerationFigures]) -> None:
        """Tell the log what it lacks."""
        digests = [generation.digest for generation in generations]
        kept = _read(self._run.directory).get(self._name, {"id": "", "told": []})
        earlier = kept["told"]
        agreed = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(earlier, digests, strict=False))
        )
        if agreed < len(earlier):
            self.close()
        if self._log is None:
            self._log = self._opener(self._run, Kept(kept["id"], len(earlier), agreed))
        log = self._log
        # Before anything is told: a process that is killed meanwhile leaves no log that no one knows of.
        self._keep(log.id, digests[: log.holds])
        for number in range(log.holds + 1, len(digests) + 1):
            log.tell(number, generations[number - 1].figures)
        log.flush()
        self._keep(log.id, digests)

    def close(self) -> None:
        """End what the log started."""
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def _keep(self, id: str, told: Sequence[str]) -> None:
        kept = _read(self._run.directory) | {self._name: {"id": id, "told": list(told)}}
        write_atomically(self._run.directory / RECORD, json.dumps(kept, indent=1) + "\n")


def _read(directory: Path) -> dict[str, Any]:
    """The run's record of its logs; empty if the file is missing or damaged: then they get every figure again."""
    try:
        kept: dict[str, Any] = read_json(directory / RECORD)
    except (OSError, ValueError):
        return {}
    return kept
