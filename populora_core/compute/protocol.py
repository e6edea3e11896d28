"""What a compute backend is: named functions of `work`, applied to one payload a shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Payload = Mapping[str, Any]
Progress = Callable[[int], None]  # called with the number of further items done


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Everything that a worker needs to load the frozen base and lay adapters over it."""

    folder: Path
    name: str
    digest: str
    dialect: str
    dtype: str
    device: str
    rank: int
    alpha: float


class Compute(Protocol):
    """Runs shards. Results come in the order of the payloads."""

    shards: int

    def map(self, function: str, payloads: Sequence[Payload], progress: Progress | None = None) -> list[Any]:
        """Apply `work.<function>(worker, **payload)` to every payload; payload i runs on shard i.

        Raises:
            WorkerLost: a worker process ended before it answered.
            PopuloraError: whatever the function raised, as it raised it.
        """
        ...

    def close(self) -> None:
        """End every process that this backend started."""
        ...
