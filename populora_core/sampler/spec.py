"""The specification by which a worker loads the frozen base and samples."""

from __future__ import annotations

from dataclasses import dataclass, field

from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The base, the adapters' layout and the settings that a worker needs to sample.

    Attributes:
        digest: of the base's files.
        sampler: with the engine that was chosen, never `auto`.
        members: of the population, for whom an engine has room from its start.
        sleeps: whether a sampler with a base of its own gives its memory back while the learner works.
    """

    base: BaseSection
    adapters: AdapterSection
    digest: str
    sampler: SamplerSection = field(default_factory=lambda: SamplerSection(engine="torch"))
    members: int = 0
    sleeps: bool = True
