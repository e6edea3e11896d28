"""Reports to trackers, once a generation, so that each has every generation once.

RUN/trackers.json records what a tracker received: one digest per generation, of the keys of its stages. What is to be
sent follows from it and from what lies on disk, whatever came in between: a kill, a resume, a generation that was
made again, a tracker that was out of reach for a while.
"""

from __future__ import annotations

import hashlib
import json
import pkgutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from populora_core.config.fields import TrackerName
from populora_core.report.figures import Figures
from populora_core.runs.run import Run
from populora_core.stages.table import stages_of
from populora_core.support.durable import write_atomically
from populora_core.support.errors import PopuloraError
from populora_core.support.received import read_json
from populora_core.trackers.figures import by_generation
from populora_core.trackers.tracker import Kept, Opener, Tracker

TRACKERS = "trackers.json"
OPENERS: dict[TrackerName, str] = {
    "tensorboard": "populora_core.trackers.tensorboard:open_tensorboard",
    "wandb": "populora_core.trackers.wandb:open_wandb",
}
"""The place of each tracker's opener; imported only where a run uses it."""


class TrackerWarning(UserWarning):
    """A tracker could not be reached; the run itself goes on."""


class Trackers:
    """The trackers of an open run. Use it as a context manager; leaving it ends what the trackers started."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._using: list[TrackerName] = list(dict.fromkeys(run.config.trackers.use))
        self._open: dict[TrackerName, Tracker] = {}

    def follow(self, figures: Figures) -> None:
        """Tell every tracker the generations that it lacks. One that fails is a `TrackerWarning`, said once."""
        if not self._using:
            return
        digests = whole_generations(figures)
        told = by_generation(figures)
        for name in tuple(self._using):
            try:
                self._tell(name, digests, told)
            except Exception as error:
                self._leave(name, error)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, *error: object) -> None:
        """A tracker that does not end well is a `TrackerWarning` too."""
        for name in tuple(self._open):
            try:
                self._open.pop(name).close()
            except Exception as error:
                self._leave(name, error)

    def _tell(
        self, name: TrackerName, digests: Sequence[str], figures: Mapping[int, Mapping[str, float]]
    ) -> None:
        kept = _read(self._run.directory).get(name, {"id": "", "told": []})
        earlier = kept["told"]
        agreed = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(earlier, digests, strict=False))
        )
        if agreed < len(earlier) and name in self._open:
            self._open.pop(name).close()
        if name not in self._open:
            opener: Opener = pkgutil.resolve_name(OPENERS[name])
            self._open[name] = opener(self._run, Kept(kept["id"], len(earlier), agreed))
        tracker = self._open[name]
        # Before anything is told: a process that is killed meanwhile leaves no log that no one knows of.
        self._keep(name, tracker.id, digests[: tracker.holds])
        for generation in range(tracker.holds + 1, len(digests) + 1):
            tracker.tell(generation, figures[generation])
        tracker.flush()
        self._keep(name, tracker.id, digests)

    def _keep(self, name: TrackerName, id: str, told: Sequence[str]) -> None:
        kept = _read(self._run.directory) | {name: {"id": id, "told": list(told)}}
        write_atomically(self._run.directory / TRACKERS, json.dumps(kept, indent=1) + "\n")

    def _leave(self, name: TrackerName, error: Exception) -> None:
        """Go on without the tracker, until the run is opened again."""
        if name in self._using:
            self._using.remove(name)
        tracker = self._open.pop(name, None)
        if tracker is not None:
            with suppress(Exception):
                tracker.close()
        cause, fix = f"{type(error).__name__}: {error}", "fix the cause"
        if isinstance(error, PopuloraError):
            cause, fix = f"{error.problem} ({error.got})" if error.got else error.problem, error.fix
        elif isinstance(error, ModuleNotFoundError):
            fix = f"pip install -e '.[{name}]'"
        warnings.warn(
            f"{name} is left out from here on, the run goes on: {cause}. Fix: {fix}; "
            "the next resume tells it everything that it missed",
            TrackerWarning,
            stacklevel=2,
        )


def whole_generations(figures: Figures) -> list[str]:
    """A digest of each generation from the first on, up to the first one that is not whole.

    It is of the keys of its stages, so it changes with what the generation was made from, and not when a stage is
    only made again.
    """
    keys: dict[int, dict[str, str]] = {}
    for row in figures["stages"]:
        keys.setdefault(row["generation"], {})[row["stage"]] = row["key"]
    found = []
    for generation in figures.generations:
        own = keys.get(generation, {})
        names = [stage.name for stage in stages_of(generation)]
        if not all(name in own for name in names):
            break
        found.append(hashlib.sha256("\0".join(own[name] for name in names).encode()).hexdigest()[:16])
    return found


def _read(directory: Path) -> dict[str, Any]:
    """The run's record of its trackers; empty if the file is missing or damaged: then they get every figure again."""
    try:
        kept: dict[str, Any] = read_json(directory / TRACKERS)
    except (OSError, ValueError):
        return {}
    return kept
