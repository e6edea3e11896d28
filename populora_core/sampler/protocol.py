"""What a sampler is: requests in, completions out, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

Progress = Callable[[int], None]  # called with the number of further completions done


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """The model sampled an end token."""
    LENGTH = "length"
    """max_tokens were sampled."""


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to sample.

    Attributes:
        member_id: whose adapter lies over the base; None for the bare base.
        seed: of this request's own random stream, so that its tokens do not depend on what else is asked for.
        temperature: 0 is greedy.
        top_p: the smallest set of most probable tokens that holds this mass is sampled from.
    """

    member_id: str | None
    prompt_ids: tuple[int, ...]
    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 128

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("a request needs at least one prompt token")
        if self.seed < 0 or self.temperature < 0.0 or not 0.0 < self.top_p <= 1.0 or self.max_tokens < 1:
            raise ValueError(
                "a request needs seed >= 0, temperature >= 0, 0 < top_p <= 1 and max_tokens >= 1; came "
                f"{self.seed}, {self.temperature}, {self.top_p}, {self.max_tokens}"
            )


@dataclass(frozen=True, slots=True)
class Completion:
    """What was sampled for one request.

    Attributes:
        token_ids: with the end token as the last one where finish_reason is stop.
        logprobs: of each of token_ids under softmax(logits / temperature), before top_p cut anything off;
            under softmax(logits) for greedy requests.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason


class Sampler(Protocol):
    """Anything that completes prompts for members of the population."""

    def generate(self, requests: Sequence[Request], progress: Progress | None = None) -> list[Completion]:
        """One completion for each request, in the same order.

        Raises:
            PopulationError: a request names a member that is not resident.
        """
        ...
