"""Inputs and results of an update, as plain records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from populora_core.config.sections import UpdateSection


class Paid(Protocol):
    """A row that has an advantage for a member, or is a text of a corpus for it."""

    @property
    def member_id(self) -> str: ...
    @property
    def advantage(self) -> float | None: ...
    @property
    def supervised(self) -> bool: ...


G = TypeVar("G", bound=Paid)


def moving(rows: Iterable[G], kl: float) -> list[G]:
    """The rows that an update runs: those with an advantage that is not 0; with a KL term all rows of their members.

    A member learns a corpus's texts beside what it sampled, never alone.
    """
    graded = [row for row in rows if row.advantage is not None]
    learning = {row.member_id for row in graded if row.advantage and not row.supervised}
    return [row for row in graded if row.member_id in learning and (row.advantage or kl)]


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One completion to learn from.

    Attributes:
        completion_ids: what was sampled, with the end token where the completion ended by it.
        old_logprobs: log-probability of each completion token when it was sampled, under
            softmax(logits / temperature).
        advantage: None where infrastructure failed: the row takes no part.
        temperature: the temperature that the completion was sampled at; 1 for greedy ones.
        group: rows of one group, the attempts at a problem, come into the same minibatch.
        supervised: whether it is a text of a corpus, which no member sampled: it has no old log-probabilities, and
            its advantage is 1.
    """

    member_id: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    old_logprobs: tuple[float, ...]
    advantage: float | None
    temperature: float = 1.0
    group: int = 0
    supervised: bool = False

    def __post_init__(self) -> None:
        if not self.prompt_ids or not self.completion_ids:
            raise ValueError("a training row needs a prompt and a completion")
        if len(self.old_logprobs) != (0 if self.supervised else len(self.completion_ids)):
            raise ValueError(
                "a training row needs one log-probability per token, a corpus text none: "
                f"{len(self.completion_ids)} tokens, "
                f"{len(self.old_logprobs)} log-probabilities"
            )


@dataclass(frozen=True, slots=True)
class CorpusText:
    """A prompt as a dialect writes it, and the completion that is to follow, without the end token."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class MemberRules:
    """Overrides for one member; None keeps the shared setting."""

    learning_rate: float | None = None
    clip: float | None = None
    grad_clip: float | None = None


@dataclass(frozen=True, slots=True)
class UpdateRules:
    """The settings of an update, with overrides for single members.

    Attributes:
        settings: of all members.
        members: member_id -> its own settings.
    """

    settings: UpdateSection
    members: Mapping[str, MemberRules] = field(default_factory=dict)

    def of(self, member_id: str, name: str) -> float:
        """A setting of one member, by its name in `MemberRules`."""
        own = getattr(self.members.get(member_id), name, None)
        return getattr(self.settings, name) if own is None else own

    def learning_rate(self, member_id: str, steps: int) -> float:
        """The learning rate of a member that has made `steps` steps before this one."""
        rate, warmup, decay = (
            self.of(member_id, "learning_rate"),
            self.settings.warmup_steps,
            self.settings.decay_steps,
        )
        rising = min(1.0, (steps + 1) / warmup) if warmup else 1.0
        falling = decay / (decay + steps) if decay else 1.0  # needs no last step, so a run can go on
        return rate * rising * falling


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Result of an update for one member, from sampled tokens; corpus texts count in grad_norm alone.

    Attributes:
        tokens: completion tokens of its rows with an advantage, the denominator of its loss.
        steps: optimiser steps; 0 for a member that was skipped.
        loss: clipped policy-gradient loss before the step.
        grad_norm: before clipping; 0 for a member that was skipped.
        entropy: mean entropy in nats over the tokens with a nonzero advantage; None where there are none. With a KL
            term, this and what follows are over all tokens of rows with an advantage.
        clip_fraction: share of those tokens whose ratio the clip cut off; None where there are none.
        kl: mean KL to the bare base in nats; None unless configured.
        logprob_mismatch: mean over those tokens of the absolute difference between the learner's
            log-probability, at the weights that sampled, and the sampler's; None where there are none.
        largest_mismatch: the largest of them.
    """

    n_rows: int
    tokens: int
    learning_rate: float
    steps: int = 0
    loss: float = 0.0
    grad_norm: float = 0.0
    entropy: float | None = None
    clip_fraction: float | None = None
    kl: float | None = None
    logprob_mismatch: float | None = None
    largest_mismatch: float | None = None

    @classmethod
    def over(cls, steps: Sequence[UpdateStats]) -> UpdateStats:
        """Combine steps, each on its own rows: sums of rows, tokens and steps, else means over the steps that were
        taken. The mismatch is that of the first step, at the weights that sampled.
        """
        n_rows, tokens = sum(step.n_rows for step in steps), sum(step.tokens for step in steps)
        taken = [step for step in steps if step.steps]
        if not taken:
            return cls(n_rows, tokens, steps[-1].learning_rate)
        return replace(
            taken[0],
            n_rows=n_rows,
            tokens=tokens,
            learning_rate=taken[-1].learning_rate,
            steps=sum(step.steps for step in taken),
            loss=fmean(step.loss for step in taken),
            grad_norm=fmean(step.grad_norm for step in taken),
            entropy=_mean(step.entropy for step in taken),
            clip_fraction=_mean(step.clip_fraction for step in taken),
            kl=_mean(step.kl for step in taken),
        )


def _mean(values: Iterable[float | None]) -> float | None:
    """None where any is."""
    known = list(values)
    return None if None in known else fmean(value for value in known if value is not None)
