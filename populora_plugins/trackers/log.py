"""The protocol of a log: it receives the figures of every generation, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from populora_core.runs.run import Run


@dataclass(frozen=True, slots=True)
class Kept:
    """A run's record of a log, kept between two processes.

    Attributes:
        id: the log that the tracker goes on with; empty before the first.
        told: number of generations that it received.
        agreed: number of these that are still as they were; fewer where one was made again with another result.
    """

    id: str = ""
    told: int = 0
    agreed: int = 0


class Log(Protocol):
    """An open log of one run.

    Attributes:
        id: names it, so that a later process goes on with the same one.
        holds: number of generations, from the first, that it holds and keeps; it receives those that follow, in order.
    """

    id: str
    holds: int

    def tell(self, generation: int, figures: Mapping[str, float]) -> None:
        """Log a generation's figures, by name.

        Raises:
            Exception: whatever the tracker's package raises.
        """

    def flush(self) -> None:
        """Hand over everything received so far."""

    def close(self) -> None:
        """End everything that was started."""


Opener = Callable[[Run, Kept], Log]
"""An opener of a log for a run, which goes on with the record that is kept."""
