"""Observers of a run's progress."""

from __future__ import annotations

from collections.abc import Sequence


class Observer:
    """An observer of a session, by itself silent; the command line draws what it hears, Prefect tasks log it."""

    def stage_started(self, generation: int, stage: str) -> None: ...

    def stage_again(self, generation: int, stage: str, moved: Sequence[str]) -> None:
        """A committed stage is made again, for the given reasons."""

    def stage_progress(self, done: int, total: int) -> None: ...

    def stage_ended(self, generation: int, stage: str, reused: bool, seconds: float) -> None: ...

    def generation_found(self, generation: int) -> None: ...

    def generation_ended(self, generation: int) -> None: ...
