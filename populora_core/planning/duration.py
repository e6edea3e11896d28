"""How long a generation takes on a GPU, from shapes alone: what `--dry-run` prints beside memory.

Upper estimates for completions of a given length, by the roofline: a step of sampling reads all weights once, or
computes for its rows, whichever takes longer; an update computes. Left out: the sandbox, which works on the CPU,
loading, attention over long contexts, and what a real machine loses beside its stated rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from populora_core.planning.memory import ModelShape

FORWARD, BACKWARD = 2, 2  # operations a parameter and token: a frozen base has no gradient of its weights


@dataclass(frozen=True, slots=True)
class Rates:
    """What a GPU keeps up: operations a second, and bytes a second from its memory."""

    operations: float
    bytes: float


@dataclass(frozen=True, slots=True)
class SamplingLoad:
    """The completions of one stage of one generation.

    Attributes:
        tokens: of one completion.
    """

    completions: int
    tokens: float


def sampling_seconds(
    shape: ModelShape, batch: SamplingLoad, rows: int, weight_bytes: int, rates: Rates
) -> float:
    """Seconds to write a batch, `rows` completions at a time."""
    width = max(1, min(rows, batch.completions))
    steps = math.ceil(batch.completions / width) * batch.tokens
    reading = shape.parameters * weight_bytes / rates.bytes
    computing = FORWARD * shape.parameters * width / rates.operations
    return steps * max(reading, computing)


def update_seconds(shape: ModelShape, batch: SamplingLoad, checkpointing: bool, rates: Rates) -> float:
    """Seconds to learn from a batch; checkpointing computes the forward pass once more."""
    passes = FORWARD * (2 if checkpointing else 1) + BACKWARD
    return batch.completions * batch.tokens * passes * shape.parameters / rates.operations
