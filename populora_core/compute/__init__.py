"""Where the shards of a stage run; every backend runs the same shards."""

from __future__ import annotations

from populora_core.compute.backend import Compute
from populora_core.compute.local import InlineCompute, LocalCompute
from populora_core.sampler.spec import ModelSpec

__all__ = [
    "Compute",
    "InlineCompute",
    "LocalCompute",
    "open_compute",
]


def open_compute(backend: str, shards: int, threads: int, spec: ModelSpec) -> Compute:
    """A backend by its configured name; processes start with the first shard, not here."""
    if backend == "inline":
        return InlineCompute(shards, threads, spec)
    return LocalCompute(shards, threads, spec)
