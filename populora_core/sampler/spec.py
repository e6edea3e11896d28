"""What a worker needs to load the frozen base and to sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from populora_core.config.sections import SamplerSection


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
