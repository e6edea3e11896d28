"""The protocol of a sampler: adapters loaded by hash; requests in, completions out, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from populora_core.support.aliases import Progress
from populora_core.support.errors import AdapterError, ConfigError
from populora_core.support.finish import FinishReason

Drawn = Callable[[Sequence[int], Sequence[int], Sequence[float]], Collection[int] | None]
"""A callback after each step: requests by place, one drawn token of each, its log-probability (see `Completion`).

It returns the requests that no one waits for any more: they end with what they have.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to sample.

    Attributes:
        member_id: whose adapter lies over the base; None for the bare base.
        seed: of this request's own random stream, so that its tokens do not depend on other requests.
        temperature: 0 is greedy.
        top_p: the smallest set of most probable tokens that holds this mass is sampled from.
        stop: texts; the completion ends with the token that completes one of them, besides at the base's own
            end tokens.
    """

    member_id: str | None
    prompt_ids: tuple[int, ...]
    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 128
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("a request needs at least one prompt token")
        if self.seed < 0 or self.temperature < 0.0 or not 0.0 < self.top_p <= 1.0 or self.max_tokens < 1:
            raise ValueError(
                "a request needs seed >= 0, temperature >= 0, 0 < top_p <= 1 and max_tokens >= 1; came "
                f"{self.seed}, {self.temperature}, {self.top_p}, {self.max_tokens}"
            )
        if not all(self.stop):
            raise ValueError("a stop text needs at least one character")


@dataclass(frozen=True, slots=True)
class Completion:
    """The tokens sampled for one request.

    Attributes:
        token_ids: where finish_reason is stop, the last is an end token, or completes a stop text and may go on
            after it.
        logprobs: of each of token_ids under softmax(logits / temperature), before top_p cut anything off;
            under softmax(logits) for greedy requests.
        cached_tokens: of the prompt, that the engine had in its cache; None where it does not tell.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """An adapter to serve.

    Attributes:
        folder: PEFT folder (adapter_model.safetensors, adapter_config.json); one version, one folder.
        sha256: of the weights file.
        earlier: probes of what it came from, its own version before or its parents, by which it is told that
            an old version is served (see `probe`).
    """

    member_id: str
    folder: Path
    sha256: str
    earlier: tuple[Path, ...] = ()

    def require_whole(self) -> None:
        """Raise AdapterError unless the folder is there and its weights file has the recorded hash."""
        # Here, because bench/gpu.py samples without pydantic.
        from populora_core.store.adapters import adapter_whole, what_is_wrong

        if not adapter_whole(self.folder, self.sha256):
            raise AdapterError(
                f"the adapter of {self.member_id} in {self.folder} is not the one that the run recorded",
                expected=f"a PEFT folder whose weights have sha256 {self.sha256[:12]}",
                **what_is_wrong(self.folder),
            )


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt with a fixed completion, to be scored under a member; None is the bare base."""

    member_id: str | None
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.prompt_ids or not self.completion_ids:
            raise ValueError("a text to score needs a prompt and a completion")


def refuse_too_long(longest: int, room: int, engine: str = "", remedy: str = "") -> None:
    """Refuse a batch before any token is drawn if its longest prompt and completion may come to more tokens than fit.

    Args:
        engine: what else than the base's context may be too small.
        remedy: for that.

    Raises:
        ConfigError: they may.
    """
    if longest > room:
        raise ConfigError(
            f"a prompt and its completion may outgrow the base model's context{engine}",
            expected=f"at most {room} tokens together",
            got=str(longest),
            fix="lower max_tokens of the stage, or show fewer reference problems: populora fork RUN --generation "
            "LAST --to NEW --set propose.max_tokens=N (or solve.max_tokens, propose.references), then resume NEW; "
            "a suite has its max_tokens in its file; where a teacher's problem is too long, "
            f"populora rerun RUN --stage propose --generation N --seed S has others written{remedy}",
        )


class Sampler(Protocol):
    """Anything that completes prompts for members of the population.

    Attributes:
        name: of the engine, as `sampler.engine` in the configuration names it.
    """

    name: str

    def load(self, adapters: Sequence[Served]) -> None:
        """Make exactly these adapters resident. What an older version left in any cache is never used again.

        Raises:
            AdapterError: a weights file is missing or damaged, has another hash than `sha256`, or does not
                fit the base model.
        """
        ...

    def generate(
        self,
        requests: Sequence[Request],
        progress: Progress | None = None,
        drawn: Drawn | None = None,
    ) -> list[Completion]:
        """One completion for each request, in the same order.

        Raises:
            PopulationError: a request names a member that is not resident.
        """
        ...

    def score(self, texts: Sequence[Text]) -> list[tuple[float, ...]]:
        """Log-probabilities under softmax(logits) of each completion's tokens, as `generate` computes them.

        Members and base go in together, as they would in `generate`: what this returns is what is served.

        Raises:
            PopulationError: a text names a member that is not resident.
        """
        ...

    def rest(self) -> None:
        """Give back the memory that learning may need; the next `load` ends the rest."""
        ...

    def close(self) -> None:
        """End every process and free all memory; no call may follow."""
        ...
