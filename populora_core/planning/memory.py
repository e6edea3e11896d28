"""How much memory a run needs, from shapes alone: what `--dry-run` prints before anything is loaded.

Every figure is an upper estimate of the peak, in bytes. Left out: the interpreter with its libraries, the
context of a GPU (together about 1 GB) and what an allocator loses between tensors. Tests hold the estimate
against measured updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from populora_core.support.errors import BaseModelError

GB = 10**9
MASTER = 4  # bytes of a float32 number: weights, gradients and moments of the adapters
STATE = 3  # vectors of a member's state: weights and Adam's two moments
# Bounds that the learner and the torch sampler keep; a test compares them with theirs, whose modules are heavy.
CHUNK_LOGITS = 1 << 24
STEP_NUMBERS = 1 << 26
SAMPLER_ROWS = 256
SAMPLER_TOKENS = 1 << 16


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a checkpoint decides memory, in numbers (not bytes).

    Attributes:
        parameters: of the base.
        adapter: of one adapter.
        layers: decoder layers.
        hidden: width of the residual stream.
        widest: outputs of the widest linear map.
        kept: what backward needs of one token in one layer, beside the residual stream.
        cache: keys and values of one token in one layer.
        vocabulary: outputs of the head.
        context: longest sequence.
    """

    parameters: int
    adapter: int
    layers: int
    hidden: int
    widest: int
    kept: int
    cache: int
    vocabulary: int
    context: int


def read_shape(folder: Path, rank: int) -> ModelShape:
    """The shape that the folder's config.json gives (see `shape_of`); no weights are read.

    Raises:
        BaseModelError: there is no such file, or it is not JSON, or the widths are not there.
    """
    # Here, because bench/gpu.py plans without pydantic.
    from populora_core.support.received import read_json

    try:
        config = read_json(folder / "config.json")
    except (OSError, ValueError) as error:
        raise BaseModelError(
            f"config.json of the base model in {folder} cannot be read",
            came=str(error),
            remedy="give a complete checkpoint folder",
        ) from error
    return shape_of(config, rank)


def shape_of(config: Mapping[str, Any], rank: int) -> ModelShape:
    """The shape of a dense decoder (Qwen2, Qwen3, Llama and their like) under all-linear adapters.

    Args:
        config: what its config.json holds.

    Raises:
        BaseModelError: the widths are not there.
    """
    text = config.get("text_config", config)
    try:
        hidden, widest, layers = text["hidden_size"], text["intermediate_size"], text["num_hidden_layers"]
        heads, vocabulary = text["num_attention_heads"], text["vocab_size"]
        context = text["max_position_embeddings"]
    except KeyError as error:
        raise BaseModelError(
            f"config.json of the base model has no {error.args[0]}, so its memory cannot be estimated",
            expected="the configuration of a dense decoder, as of Qwen2, Qwen3 or Llama",
            remedy="choose such a base",
        ) from error
    width = text.get("head_dim") or hidden // heads
    queries, keys = heads * width, (text.get("num_key_value_heads") or heads) * width
    # (inputs, outputs) of queries, keys, values, the map back; gate, up, and down
    maps = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)]
    maps += [(hidden, widest), (hidden, widest), (widest, hidden)]
    norms_and_biases = 2 * hidden + queries + 2 * keys
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings", False) else 2)
    return ModelShape(
        parameters=embeddings + hidden + layers * (sum(i * o for i, o in maps) + norms_and_biases),
        adapter=layers * rank * sum(i + o for i, o in maps),
        layers=layers,
        hidden=hidden,
        widest=widest,
        # Both norms; queries, keys and values repeated for every head, what attention gives; gate, its
        # activation, up, and the product.
        kept=2 * hidden + 4 * queries + 4 * widest,
        cache=2 * keys,
        vocabulary=vocabulary,
        context=context,
    )


@dataclass(frozen=True, slots=True)
class Workload:
    """What one process does.

    Attributes:
        members: adapters resident at once.
        base_bytes: of one number of the base: 4 in float32, 2 in bfloat16.
        update_tokens: of one micro-batch, padding included.
        checkpointing: whether activations are computed again in the backward pass.
        sampler_rows, sampler_tokens: completions, and tokens of prompts and completions, sampled at once.
        copies: whether the sampler copies the adapters' factors, as it does on a CPU (see `learner.routes.Masked`).
    """

    members: int
    base_bytes: int
    update_tokens: int
    checkpointing: bool = False
    sampler_rows: int = SAMPLER_ROWS
    sampler_tokens: int = SAMPLER_TOKENS
    copies: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes on the device that computes, part by part, and the peaks that they make.

    Attributes:
        base: the frozen weights.
        adapters: float32 weights and their shadow in the base's precision.
        gradient: of all resident members.
        activations: kept for backward by one micro-batch, with what one layer's backward works in.
        logits: of one chunk, with their gradients.
        step: weights, moments and temporaries of the members that the optimiser steps at once.
        cache: keys and values of the sampler, and as many on their way into it: prompts just read, rows that move.
        copies: of the adapters' factors, which the sampler makes.
        reading: what one layer works in while prompts are read, and the logits of a token step.
        states: on the host: members as they came, as they go, and as bytes on the way to disk.
    """

    base: int
    adapters: int
    gradient: int
    activations: int
    logits: int
    step: int
    cache: int
    copies: int
    reading: int
    states: int

    @property
    def resident(self) -> int:
        """What is there all the time."""
        return self.base + self.adapters

    @property
    def learner(self) -> int:
        """The peak of an update."""
        return self.resident + self.gradient + max(self.activations + self.logits, self.step)

    @property
    def sampler(self) -> int:
        """The peak of sampling, with a base and adapters of its own."""
        return self.resident + self.copies + self.cache + self.reading

    @property
    def shared(self) -> int:
        """The peak of a process whose sampler and learner share one base and its adapters."""
        return max(self.learner, self.sampler)


def estimate(shape: ModelShape, work: Workload) -> Estimate:
    """The memory of one shard."""
    population = work.members * shape.adapter
    shadow = work.base_bytes if work.base_bytes < MASTER else 0  # in float32 it is the weights themselves
    stepped = min(population, max(STEP_NUMBERS, shape.adapter))
    chunk = min(CHUNK_LOGITS, work.update_tokens * shape.vocabulary)
    down = 2 * work.base_bytes if work.base_bytes < MASTER else 0  # logits and their gradient before the cast
    return Estimate(
        base=shape.parameters * work.base_bytes,
        adapters=population * (MASTER + shadow),
        gradient=population * MASTER,
        activations=work.update_tokens * _activations(shape, work),
        # logits, scaled logits, log-probabilities and a gradient of each
        logits=chunk * (6 * MASTER + down),
        # weights and moments, and two temporaries
        step=stepped * (STATE + 2) * MASTER,
        cache=2 * work.sampler_tokens * shape.layers * shape.cache * work.base_bytes,
        copies=population * work.base_bytes if work.copies else 0,
        reading=work.sampler_tokens * (3 * shape.widest + 4 * shape.hidden) * work.base_bytes
        + work.sampler_rows * shape.vocabulary * (work.base_bytes + 3 * MASTER),
        states=3 * STATE * population * MASTER,
    )


def _activations(shape: ModelShape, work: Workload) -> int:
    """Bytes a token: what backward needs of every layer, and what one layer's backward works in.

    For its two norms a layer keeps the residual stream in float32.
    """
    layer = shape.kept * work.base_bytes + 2 * shape.hidden * MASTER
    working = (3 * shape.widest + 4 * shape.hidden) * work.base_bytes
    ends = 6 * shape.hidden * MASTER  # embeddings, the last norm, and the states that predict tokens
    if work.checkpointing:
        return shape.layers * shape.hidden * work.base_bytes + layer + working + ends
    return shape.layers * layer + working + ends


class Fit(StrEnum):
    """How sampler and learner share the memory of one device."""

    RESIDENT = "both stay resident"
    TURNS = "one sleeps while the other works"
    TOO_LARGE = "too large"


def fit(learner: int, sampler: int, capacity: float) -> Fit:
    """What can be done with a learner and a sampler that hold a base each."""
    if learner + sampler <= capacity:
        return Fit.RESIDENT
    return Fit.TURNS if max(learner, sampler) <= capacity else Fit.TOO_LARGE
