"""What a compute backend is: named functions of `work`, applied to one payload a shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from populora_core.config import SamplerSection

Payload = Mapping[str, Any]
Progress = Callable[[int], None]  # called with the number of further items done


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Everything that a worker needs to load the frozen base, lay adapters over it and sample.

    Attributes:
        sampler: with the engine that was chosen, never `auto`.
    """

    folder: Path
    name: str
    digest: str
    dialect: str
    dtype: str
    device: str
    rank: int
    alpha: float
    sampler: SamplerSection = field(default_factory=lambda: SamplerSection(engine="torch"))


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

    @property
    def pids(self) -> Sequence[int]:
        """Process ids, on this machine, of the workers that there are now."""
        ...

    def close(self) -> None:
        """End every process that this backend started."""
        ...
