"""Work that the benchmark of real bases gives every contender, and ours at it."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.adapters import drawn_ids, trained
from populora_core.config.sections import UpdateSection
from populora_core.learner.packing import LONG_PACK, pack_beginnings
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.adapter_files import WEIGHTS, write_peft
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.sampler.requests import Request, Sampler, Served
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support.digest import file_sha256

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BEGINNING, OWN, NEW_TOKENS = 128, (32, 96), 32
"""Tokens that all prompts begin with, tokens of a prompt's own, and of every completion."""
PROBLEMS, ATTEMPTS = 4, 8
VOCABULARY = 20_000  # tokens that prompts are drawn from, at most
SETTINGS = UpdateSection(token_budget=4096)


def prompts(count: int, vocabulary: int) -> list[tuple[int, ...]]:
    """Different prompts that begin alike."""
    rng = np.random.default_rng(0)
    beginning = drawn_ids(rng, (BEGINNING, BEGINNING + 1), vocabulary)
    return [beginning + drawn_ids(rng, OWN, vocabulary) for _ in range(count)]


def vocabulary_of(model: PreTrainedModel) -> int:
    """The number of tokens that prompts are drawn from."""
    return min(VOCABULARY, model.config.get_text_config().vocab_size)


class RealDecoding:
    """Completions of so many prompts by a sampler under an adapter of this layout, each by as many tokens."""

    def __init__(self, sampler: Sampler, layout: AdapterLayout, vocabulary: int, count: int) -> None:
        self._sampler = sampler
        self._requests = [
            Request("0", prompt, seed=number, max_tokens=NEW_TOKENS)
            for number, prompt in enumerate(prompts(count, vocabulary))
        ]
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        write_peft(folder, layout, trained(layout, 0), "a real base")
        sampler.load([Served("0", folder, file_sha256(folder / WEIGHTS))])

    def step(self) -> float:
        """Seconds of a token step, the median of all."""
        clock: list[float] = []

        def drawn(places: Sequence[int], *tokens: object) -> tuple[int, ...]:
            if 0 in places:  # an engine may tell of a step row by row
                clock.append(time.perf_counter())
            return ()

        self._sampler.generate(self._requests, drawn=drawn)
        return between(clock)


class RealLearning:
    """An update on problems of several attempts, whose prompts begin alike."""

    def __init__(self, stacked: StackedAdapters) -> None:
        rng, vocabulary = np.random.default_rng(1), vocabulary_of(stacked.model)
        self._stacked = stacked
        self.rows = [
            TrainingRow(
                "0",
                prompt,
                drawn_ids(rng, (NEW_TOKENS, NEW_TOKENS + 1), vocabulary),
                (-8.0,) * NEW_TOKENS,
                float(rng.normal()),
            )
            for prompt in prompts(PROBLEMS, vocabulary)
            for _ in range(ATTEMPTS)
        ]
        self._states = {"0": MemberState.newborn(trained(stacked.layout, 0))}

    def seconds(self) -> float:
        """Seconds of one update."""
        started = time.perf_counter()
        update_members(self._stacked, self._states, self.rows, UpdateRules(SETTINGS))
        return time.perf_counter() - started

    def operations(self) -> float:
        """Operations of its products: forward, and back to what went in, of the tokens that are read once."""
        read = sum(pack.length for pack in pack_beginnings(self.rows, LONG_PACK))
        told = sum(len(row.completion_ids) for row in self.rows)
        linear = sum(slot.in_features * slot.out_features for slot in self._stacked.layout.modules)
        return 4.0 * (read * linear + told * self._stacked.model.get_output_embeddings().weight.numel())


class GrpoStep:
    """A GRPO step: attempts at problems are sampled, and each member learns from its own."""

    def __init__(self, stacked: StackedAdapters, members: int) -> None:
        self._stacked, self._sampler = stacked, TorchSampler(stacked, frozenset())
        self.prompts = prompts(PROBLEMS, vocabulary_of(stacked.model))
        names = [str(member) for member in range(members)]
        self._states = {name: MemberState.newborn(trained(stacked.layout, int(name))) for name in names}
        self._requests = [
            Request(name, prompt, seed=number, max_tokens=NEW_TOKENS)
            for name in names
            for number, prompt in enumerate(self.prompts * ATTEMPTS)
        ]
        self.tokens = len(self._requests) * NEW_TOKENS

    def seconds(self) -> tuple[float, float]:
        """Seconds of sampling and of learning."""
        started = time.perf_counter()
        self._stacked.load({name: state.weights for name, state in self._states.items()})
        completions = self._sampler.generate(self._requests)
        sampled = time.perf_counter()
        rows: list[Any] = [
            TrainingRow(
                asked.member_id or "",
                asked.prompt_ids,
                found.token_ids,
                found.logprobs,
                advantage_of(found.token_ids),
            )
            for asked, found in zip(self._requests, completions, strict=True)
        ]
        update_members(self._stacked, self._states, rows, UpdateRules(SETTINGS))
        return sampled - started, time.perf_counter() - sampled


def advantage_of(ids: tuple[int, ...] | list[int]) -> float:
    """A number that differs from answer to answer and is never 0, so that all of them are learnt from."""
    return 1.0 if sum(ids) % 2 else -1.0


def between(clock: list[float]) -> float:
    """The median time from one step to the next, the first ones left out."""
    return statistics.median(later - earlier for earlier, later in pairwise(clock[2:]))
