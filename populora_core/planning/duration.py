"""Estimate of a generation's time on a GPU, from shapes alone: `--dry-run` prints it beside memory.

For completions of a given length, by the roofline: a step of sampling reads all weights and the cache once, or computes
for its rows, whichever takes longer, and waits for its host; an update computes. Left out: the sandbox, which works on
the CPU, and what a real machine loses beside its stated rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from populora_core.planning.memory import ModelShape

FORWARD, BACKWARD = 2, 2  # operations a parameter and token: a frozen base has no gradient of its weights
ADAPTERS = 1.15  # times what a step takes without adapters
STEP_SECONDS = {"vllm": 0.006, "torch": 0.025}  # of a token step, beside the GPU's own work


@dataclass(frozen=True, slots=True)
class Rates:
    """Sustained rates of a GPU: operations per second, and bytes per second from its memory."""

    operations: float
    bytes: float


@dataclass(frozen=True, slots=True)
class SamplingLoad:
    """The completions of one stage of one generation.

    Attributes:
        prompt, limit: tokens of each to read, and at most to write.
        group: completions of one prompt, which is read once for all of them.
    """

    completions: int
    prompt: float
    limit: float
    group: int = 1

    def learned(self, written: float, pack_tokens: int) -> float:
        """Tokens to learn from: a prompt counts once for as many of its completions as a pack has room for."""
        each = written * self.limit
        together = max(1, min(self.group, int((pack_tokens - self.prompt) / max(each, 1.0))))
        return self.completions * (self.prompt / together + each)


def sampling_seconds(
    shape: ModelShape,
    load: SamplingLoad,
    written: float,
    rows: int,
    number_bytes: int,
    engine: Literal["torch", "vllm"],
    rates: Rates,
    bits: int = 16,
) -> float:
    """Seconds to write a GPU's completions.

    Args:
        written: share of the limit that they come to.
        rows: at once.
        number_bytes: of a weight, and of a key or value.
        bits: that linear layers are kept in; rounded ones are made whole at every step, written and read again.
    """
    width = max(1, min(rows, load.completions))
    steps = math.ceil(load.completions / width) * written * load.limit
    held = width * (load.prompt + written * load.limit / 2) * shape.layers * shape.cache * number_bytes
    again = 0 if bits == 16 else shape.linear * (bits / 8 + number_bytes)
    reading = (shape.parameters * number_bytes + again + held) / rates.bytes
    computing = FORWARD * shape.parameters * width / rates.operations
    prompts = FORWARD * shape.parameters * load.completions / load.group * load.prompt / rates.operations
    return steps * (max(reading, computing) * ADAPTERS + STEP_SECONDS[engine]) + prompts


def update_operations(shape: ModelShape, tokens: int, targets: int, again: bool = False) -> float:
    """Multiplications and additions that learning takes, attention's own products left out.

    Args:
        tokens: that go through the layers.
        targets: of them, that are predicted: they go through the head.
        again: whether backward runs the layers once more.
    """
    passes = FORWARD * (1 + again) + BACKWARD
    # Beside what every weight takes, adapters take the products of their own gradients.
    layers = passes * shape.linear + (passes + FORWARD) * shape.adapter
    return tokens * layers + targets * (FORWARD + BACKWARD) * shape.vocabulary * shape.hidden


def update_seconds(
    shape: ModelShape,
    load: SamplingLoad,
    written: float,
    checkpointing: bool,
    rates: Rates,
    pack_tokens: int = 0,
) -> float:
    """Seconds to learn from completions and their prompts; checkpointing computes the forward pass once more."""
    passes = FORWARD * (2 if checkpointing else 1) + BACKWARD
    return load.learned(written, pack_tokens) * passes * shape.parameters / rates.operations
