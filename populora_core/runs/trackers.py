"""Trackers of a run, such as TensorBoard: packages bring them by the entry-point group `populora.trackers`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from populora_core.runs.run import Run
from populora_core.support.errors import ConfigError, PopuloraError
from populora_core.support.registry import Registry


class TrackerWarning(UserWarning):
    """A tracker could not be reached; the run itself goes on."""


@dataclass(frozen=True, slots=True)
class GenerationFigures:
    """The figures of a whole generation, for trackers.

    Attributes:
        digest: of what the generation was made from; another one where it was made again with another result.
        figures: name -> value; names group by their first part, as in `solve_rate/code_o`.
    """

    digest: str
    figures: Mapping[str, float]


class Tracker(Protocol):
    """A log of one run elsewhere, open as long as a process works on the run."""

    def follow(self, generations: Sequence[GenerationFigures]) -> None:
        """Log what is missing there of all generations so far, the first of them at step 1.

        Raises:
            Exception: whatever the tracker's package raises; the run then goes on without the tracker.
        """

    def close(self) -> None:
        """End everything that was started."""


TRACKERS = Registry(
    {},
    group="populora.trackers",
    what="tracker",
    setting="trackers.use",
    error=ConfigError,
    makes=Tracker,
)
"""Name -> a function of a `Run` that opens its tracker."""


class Trackers:
    """The trackers of an open run. Use it as a context manager; leaving it ends what the trackers started."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._using = list(dict.fromkeys(run.config.trackers.use))
        self._open: dict[str, Tracker] = {}

    def __bool__(self) -> bool:
        """True while a tracker is in use."""
        return bool(self._using)

    def follow(self, generations: Sequence[GenerationFigures]) -> None:
        """Have every tracker log the generations that it lacks. One that fails is a `TrackerWarning`, said once."""
        for name in tuple(self._using):
            try:
                if name not in self._open:
                    self._open[name] = TRACKERS.make(name, self._run)
                self._open[name].follow(generations)
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

    def _leave(self, name: str, error: Exception) -> None:
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
        warnings.warn(
            f"{name} is left out from here on, the run goes on: {cause}. Fix: {fix}; "
            "the next resume tells it everything that it missed",
            TrackerWarning,
            stacklevel=2,
        )
