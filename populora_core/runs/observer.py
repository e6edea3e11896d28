"""Who hears how a run goes on."""

from __future__ import annotations


class Observer:
    """Hears what a session does, and by itself says nothing; the command line draws it, Prefect tasks log it."""

    def stage_started(self, generation: int, stage: str) -> None: ...

    def stage_progress(self, done: int, total: int) -> None: ...

    def stage_ended(self, generation: int, stage: str, reused: bool, seconds: float) -> None: ...

    def generation_found(self, generation: int) -> None: ...

    def generation_ended(self, generation: int) -> None: ...
