"""Setting of `bench.gpu`: the scenario that it measures, and its clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from bench.adapters import QWEN_7B, training_rows
from populora_core.learner.rows import TrainingRow, UpdateRules

if TYPE_CHECKING:
    from populora_core.config.sections import UpdateSection


@dataclass(frozen=True, slots=True)
class Step:
    """A stand-in for the configuration's `UpdateSection`, which needs pydantic: a GPU's machine may lack it."""

    token_budget: int
    pack_tokens: int
    gradient_checkpointing: bool
    learning_rate: float = 2e-3
    clip: float = 0.2
    importance_cap: float = 0.0
    grad_clip: float = 1.0
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    warmup_steps: int = 0
    decay_steps: int = 0
    minibatches: int = 1
    kl: float = 0.0
    corpus_share: float = 0.0

    @property
    def rules(self) -> UpdateRules:
        return UpdateRules(cast("UpdateSection", self))


@dataclass(frozen=True, slots=True)
class Scenario:
    """The scenario of a measurement.

    Attributes:
        model: of the base's config.json.
        rank: of the adapters, on all linear layers.
        members: the populations whose updates are timed; the first is what the others are compared with.
        problems, attempts: of one update, together; problems are a multiple of every population.
        prompt, completion: tokens, shortest and longest.
        token_budget, pack_tokens, checkpointing: as in `UpdateSection`.
        requests, new_tokens: completions that are sampled at once, and their length.
        long: tokens of the longest completions, of which one update is timed.
        square: side of the product that gives the peak.
    """

    model: Mapping[str, Any]
    rank: int = 32
    members: tuple[int, ...] = (1, 2, 4, 8, 16)
    problems: int = 32
    attempts: int = 8
    prompt: tuple[int, int] = (256, 512)
    completion: tuple[int, int] = (64, 512)
    token_budget: int = 16_384
    pack_tokens: int = 4096
    checkpointing: bool = True
    requests: int = 256
    new_tokens: int = 128
    long: int = 4096
    square: int = 8192

    def rows(self, members: int) -> list[TrainingRow]:
        """Training rows of an update of so many members."""
        vocabulary = self.model["vocab_size"]
        return training_rows(members, vocabulary, self.problems, self.attempts, self.prompt, self.completion)


SETTINGS = {
    "7b": Scenario(QWEN_7B),
    "tiny": Scenario(
        {
            "model_type": "qwen2",
            "vocab_size": 256,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "tie_word_embeddings": False,
        },
        rank=8,
        members=(1, 2),
        problems=2,
        attempts=2,
        prompt=(8, 12),
        completion=(4, 8),
        token_budget=128,
        requests=4,
        new_tokens=4,
        long=32,
        square=64,
    ),
}


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Wall seconds of the work, which is over when the GPU has done it."""
    synchronise(device)
    started = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - started


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
