"""Completions from the members' adapters, what the base's context holds, and how work is divided among shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from populora_core.compute.shards import towards
from populora_core.compute.work import Generate, Prompt, tokens_of
from populora_core.model.base import Vocabulary, load_vocabulary, longest_sequence, quiet_transformers
from populora_core.sampler.engines import TORCH
from populora_core.stages.adapters import served
from populora_core.stages.context import StageContext
from populora_core.support.devices import CUDA
from populora_core.support.received import read_json


def generate(ctx: StageContext, prompts: Sequence[Prompt]) -> pa.Table | None:
    """Sample one completion per prompt, in order: the columns that `proposals` and `attempts` share.

    Returns:
        None without a prompt.

    Raises:
        AdapterNotServed: a sampler answers with something else than the members' adapters.
    """
    if not prompts:
        return None
    dealt = _dealt(ctx, prompts)
    parts = []
    for number in range(max(dealt) + 1):
        share = [prompt for prompt, place in zip(prompts, dealt, strict=True) if place == number]
        owners = sorted({prompt.member_id for prompt in share if prompt.member_id})
        parts.append(Generate(adapters=list(served(ctx, owners).values()), prompts=share))
    done = ctx.shards.map(parts, towards(ctx.progress, len(prompts)))
    told = [{name.decode(): json.loads(text) for name, text in part.schema.metadata.items()} for part in done]
    record = ctx.extra.setdefault("sampler", {"engine": told[0]["engine"], "probes": []})
    record["probes"] += [each["probe"] for each in told]
    for name, count in tokens_of(done).items():
        ctx.extra[name] = ctx.extra.get(name, 0) + count
    # A shard keeps the order of its prompts, so a stable sort by shard is the order in which rows came.
    came = np.argsort(dealt, kind="stable")
    return pa.concat_tables(part.replace_schema_metadata() for part in done).take(np.argsort(came))


def room(ctx: StageContext) -> Callable[[str, int], bool]:
    """A test of a prompt and a number of tokens: true if the base's context holds both.

    A token has at least one byte, so the tokenizer, which is slow to load, decides only what is too long in bytes. The
    usual chat templates add fewer tokens than the prose of a prompt has bytes to spare.
    """
    folder = ctx.config.base.folder()
    try:
        longest = longest_sequence(read_json(folder / "config.json"), ctx.config.sampler.engine == TORCH)
    except OSError:  # other machines may have the base, and this one not
        return lambda prompt, tokens: True

    def fits(prompt: str, tokens: int) -> bool:
        # Where no prompt would leave room the setting is wrong, as the sampler says.
        if len(prompt.encode()) + tokens <= longest or tokens >= longest:
            return True
        with quiet_transformers():  # it warns of prompts that no one will send
            return len(ctx.dialect.encode(_vocabulary(folder).tokenizer, prompt)) + tokens <= longest

    return fits


@lru_cache(maxsize=1)
def _vocabulary(folder: Path) -> Vocabulary:
    return load_vocabulary(folder)


def shares(ctx: StageContext, members: Mapping[str, float]) -> list[list[str]]:
    """The members of each shard that has any.

    Args:
        members: member_id -> how much work it is; on GPUs the work is shared out evenly.
    """
    ordered = sorted(members)
    shards = ctx.config.compute.shards
    if ctx.config.base.device == CUDA:
        dealt = deal([members[member] for member in ordered], shards)
    else:
        dealt = [number % shards for number in range(len(ordered))]
    found = [
        [m for m, place in zip(ordered, dealt, strict=True) if place == shard] for shard in range(shards)
    ]
    return [share for share in found if share]


def _dealt(ctx: StageContext, prompts: Sequence[Prompt]) -> list[int]:
    """The shard of each prompt.

    On a CPU whole members stay together: equality is promised there, and a token's bits follow from its batch. On
    GPUs, whose rounding no one repeats, requests are dealt, so that all of them sample whatever the roles.
    """
    if ctx.config.base.device == CUDA:
        return deal([_expected(prompt) for prompt in prompts], min(ctx.config.compute.shards, len(prompts)))
    owners = shares(ctx, {prompt.member_id: 1.0 for prompt in prompts if prompt.member_id})
    shard_of: dict[str | None, int] = {member: part for part, share in enumerate(owners) for member in share}
    return [shard_of[prompt.member_id] for prompt in prompts]


def _expected(prompt: Prompt) -> float:
    """Expected tokens of a prompt: a quarter of its letters to read, and of its limit to write."""
    return len(prompt.text) / 4 + prompt.max_tokens / 4


def deal(sizes: Sequence[float], workers: int) -> list[int]:
    """Deal pieces to workers: the largest first, always to the worker that has least.

    The fullest then has at most 4/3 - 1 / (3 workers) times what the best dealing gives it (Graham 1969, longest
    processing time first).

    Args:
        sizes: expected, of each piece, in any unit.

    Returns:
        A worker's number for each piece.
    """
    loads, dealt = [0.0] * workers, [0] * len(sizes)
    for piece in sorted(range(len(sizes)), key=lambda piece: -sizes[piece]):
        least = min(range(workers), key=loads.__getitem__)
        loads[least] += sizes[piece]
        dealt[piece] = least
    return dealt
