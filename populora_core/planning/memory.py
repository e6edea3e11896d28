"""Estimate of a run's memory, from shapes alone: `--dry-run` prints it before anything is loaded.

Every figure is the peak of what tensors take, in bytes. Left out: the interpreter with its libraries, the
context of a GPU (together about 1 GB) and what an allocator loses between tensors. Tests count the tensors of an
update and of sampling at the widths of a 7B, and hold the sums against measured updates.
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
# Bounds that the learner and the torch sampler take from here.
CHUNK_LOGITS = 1 << 24  # logits that the learner holds at once
STEP_NUMBERS = 1 << 26  # numbers of one matrix that the optimiser steps at once
SAMPLER_ROWS = 256
SAMPLER_TOKENS = 1 << 16
PACKED_BYTES = (
    1 << 32
)  # of a base beyond which a CPU packs no second copy; a test compares it with `model.packed`
READ_TOKENS = 1 << 14  # of prompts that the torch sampler reads in one pass on a GPU
RESERVED = (
    1.1  # what PyTorch's allocator on a GPU holds for tensors that come and go, longest micro-batch first
)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a checkpoint that decide memory, in numbers (not bytes).

    Attributes:
        parameters: of the base.
        linear: of them, in the layers' linear maps.
        adapter: of one adapter.
        layers: decoder layers.
        hidden: width of the residual stream.
        queries: of one token, over all heads.
        widest: outputs of the widest linear map.
        kept: what backward needs of one token in one layer, beside the residual stream.
        cache: keys and values of one token in one layer.
        vocabulary: outputs of the head.
        context: longest sequence.
        stored: bytes of one number in the checkpoint's files.
    """

    parameters: int
    linear: int
    adapter: int
    layers: int
    hidden: int
    queries: int
    widest: int
    kept: int
    cache: int
    vocabulary: int
    context: int
    stored: int


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
            got=str(error),
            fix="give a complete checkpoint folder",
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
            fix="choose such a base",
        ) from error
    width = text.get("head_dim") or hidden // heads
    queries, keys = heads * width, (text.get("num_key_value_heads") or heads) * width
    # (inputs, outputs) of queries, keys, values, the map back; gate, up, and down
    maps = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)]
    maps += [(hidden, widest), (hidden, widest), (widest, hidden)]
    norms_and_biases = 2 * hidden + queries + 2 * keys
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings", False) else 2)
    linear = layers * sum(i * o for i, o in maps)
    return ModelShape(
        parameters=embeddings + hidden + linear + layers * norms_and_biases,
        linear=linear,
        adapter=layers * rank * sum(i + o for i, o in maps),
        layers=layers,
        hidden=hidden,
        queries=queries,
        widest=widest,
        # Both norms; queries, keys and values repeated for every head, what attention gives; gate, its
        # activation, up, and the product.
        kept=2 * hidden + 4 * queries + 4 * widest,
        cache=2 * keys,
        vocabulary=vocabulary,
        context=context,
        stored=2 if str(config.get("dtype") or config.get("torch_dtype")).endswith("bfloat16") else MASTER,
    )


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload of one process.

    Attributes:
        members: adapters resident at once.
        base_bytes: of one number of the base: 4 in float32, 2 in bfloat16.
        bits: that the base's linear layers are kept in; 16 for as they compute.
        update_tokens: of one micro-batch, padding included.
        checkpointing: whether activations are computed again in the backward pass.
        sampler_rows, sampler_tokens: completions, and tokens of prompts and completions, sampled at once.
        sampler_prompts: tokens of different prompts that are read for them at once; None for as many as are sampled.
        on_cpu: where the sampler copies the adapters' factors (see `model.routes.Masked`), repeats keys and values for
            every head, and reads all prompts in one pass.
    """

    members: int
    base_bytes: int
    update_tokens: int
    checkpointing: bool = False
    sampler_rows: int = SAMPLER_ROWS
    sampler_tokens: int = SAMPLER_TOKENS
    sampler_prompts: int | None = None
    on_cpu: bool = False
    bits: int = 16


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes on the device that computes, part by part, and the peaks that they make.

    Attributes:
        base: the frozen weights.
        packed: a second copy of the frozen products, laid out for a CPU's products in bfloat16 (`model.packed`).
        adapters: float32 weights and their shadow in the base's precision.
        gradient: of all resident members.
        activations: kept for backward by one micro-batch.
        backward: what the backward of one layer, or of the last norm, works in.
        logits: of one chunk, with their gradients; they are gone before backward goes through the layers.
        step: weights, moments and temporaries of the members that the optimiser steps at once.
        cache: keys and values of the sampler.
        prompts: keys and values of prompts just read, on their way into the cache.
        copies: of the adapters' factors, which the sampler makes.
        reading: what one layer works in while prompts are read.
        drawing: keys and values repeated for every head of one layer, then the logits of a token step.
        states: on the host: members before and after the update, and as bytes on the way to disk.
    """

    base: int
    packed: int
    adapters: int
    gradient: int
    activations: int
    backward: int
    logits: int
    step: int
    cache: int
    prompts: int
    copies: int
    reading: int
    drawing: int
    states: int

    @property
    def resident(self) -> int:
        """Bytes that are taken all the time."""
        return self.base + self.packed + self.adapters

    @property
    def learner(self) -> int:
        """The peak of an update."""
        return (
            self.resident + self.gradient + max(self.activations + max(self.backward, self.logits), self.step)
        )

    @property
    def sampler(self) -> int:
        """The peak of sampling, with a base and adapters of its own."""
        held = self.resident + self.copies + self.prompts
        return held + max(self.reading, self.cache, self.cache - self.prompts + self.drawing)

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
    cache = shape.layers * shape.cache * work.base_bytes  # of a token
    read = work.sampler_tokens if work.sampler_prompts is None else work.sampler_prompts
    activations, backward = _of_token(shape, work)
    base = base_size(shape, work.base_bytes, work.bits)
    packs = work.on_cpu and work.base_bytes < MASTER and base <= PACKED_BYTES
    return Estimate(
        base=base,
        packed=(shape.linear + shape.vocabulary * shape.hidden) * work.base_bytes if packs else 0,
        adapters=population * (MASTER + shadow),
        gradient=population * MASTER,
        activations=work.update_tokens * activations,
        backward=work.update_tokens * backward,
        # logits, scaled logits, log-probabilities and a gradient of each
        logits=chunk * (6 * MASTER + down),
        # weights and moments, and two temporaries
        step=stepped * (STATE + 2) * MASTER,
        cache=work.sampler_tokens * cache,
        prompts=read * cache,
        copies=population * work.base_bytes if work.on_cpu else 0,
        reading=_reading(shape, read if work.on_cpu else min(read, READ_TOKENS), work.base_bytes),
        drawing=max(
            2 * work.sampler_tokens * shape.queries * work.base_bytes if work.on_cpu else 0,
            _drawing(shape, work.sampler_rows, work.base_bytes),
        ),
        states=3 * STATE * population * MASTER,
    )


def base_size(shape: ModelShape, number_bytes: int, bits: int = 16) -> int:
    """Bytes of the frozen weights; rounded ones with a scale for 64 of them, and one map as it computes."""
    if bits == 16:
        return shape.parameters * number_bytes
    rounded = shape.linear * bits // 8 + shape.linear // 64 * number_bytes
    return (
        (shape.parameters - shape.linear) * number_bytes
        + rounded
        + shape.widest * shape.hidden * number_bytes
    )


def loading(shape: ModelShape, number_bytes: int, processes: int) -> int:
    """Bytes of a machine's memory while so many processes load the base on their way to a device.

    A checkpoint in the base's precision is mapped, so that all of them read the one copy that the kernel keeps. Else
    each has one of its own beside that, in the base's precision, until it is on the device.
    """
    files = shape.parameters * shape.stored
    return files + (0 if number_bytes == shape.stored else processes * shape.parameters * number_bytes)


def cache_room(
    shape: ModelShape, number_bytes: int, free: float, rows: int, prompt: float, longest: float
) -> int:
    """Tokens of keys and values that the torch sampler on a GPU has room for.

    Args:
        free: bytes beside base and adapters.
        rows: that it draws at once.
        prompt, longest: tokens of the longest prompt, and of it with its completion.
    """
    token = (
        shape.layers * shape.cache * number_bytes * (1.0 + prompt / longest)
    )  # prompts are read beside the cache
    working = max(_reading(shape, READ_TOKENS, number_bytes), _drawing(shape, rows, number_bytes))
    return max(0, int((free / RESERVED - working) / token))


def _reading(shape: ModelShape, tokens: int, number_bytes: int) -> int:
    return tokens * (3 * shape.widest + 4 * shape.hidden) * number_bytes


def _drawing(shape: ModelShape, rows: int, number_bytes: int) -> int:
    """Logits as they come, their log-probabilities, probabilities, and the sums of these in float64."""
    return rows * shape.vocabulary * (number_bytes + 4 * MASTER)


def _of_token(shape: ModelShape, work: Workload) -> tuple[int, int]:
    """Bytes a token that all layers keep, and that the backward of one works in.

    For its two norms a layer keeps the residual stream in float32. Beside the layers, the last states are kept with
    those that predict tokens and their gradient.
    """
    layer = shape.kept * work.base_bytes + 2 * shape.hidden * MASTER
    ends = 3 * shape.hidden * work.base_bytes
    working = 2 * (shape.widest + shape.hidden) * work.base_bytes
    last_norm = 5 * shape.hidden * MASTER
    if work.checkpointing:
        return shape.layers * shape.hidden * work.base_bytes + ends, max(layer + working, last_norm)
    return shape.layers * layer + ends, max(working, last_norm)


class Fit(StrEnum):
    """Ways for sampler and learner to share the memory of one device."""

    RESIDENT = "both stay resident"
    TURNS = "one sleeps while the other works"
    TOO_LARGE = "too large"


def fit(learner: int, sampler: int, capacity: float) -> Fit:
    """Decide whether a learner and a sampler that hold a base each can stay together, take turns, or do not fit."""
    if learner + sampler <= capacity:
        return Fit.RESIDENT
    return Fit.TURNS if max(learner, sampler) <= capacity else Fit.TOO_LARGE
