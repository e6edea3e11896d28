"""Hyperparameters that members inherit: population based training (Jaderberg et al., arXiv 1711.09846).

A founder draws its own from a prior. Selection then works on them as on weights: a child takes the fitter parent's
and explores from there, each number times a factor or divided by it, or drawn again from the prior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from populora_core.population.member import Role

if TYPE_CHECKING:
    from populora_core.config.pbt import PbtSection
    from populora_core.store.rows import HyperparameterRow

T = TypeVar("T")
ROLES = {
    "learning_rate": (Role.TEACHER, Role.STUDENT),
    "temperature": (Role.TEACHER, Role.STUDENT),
    "replay": (Role.STUDENT,),
}
"""Number -> the roles in which it matters."""


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """A member's own; None: its section's, which all share.

    Attributes:
        replay: its weight when repeated problems are dealt out among students.
        teacher_reward: name of the reward that it is paid.
    """

    learning_rate: float | None = None
    temperature: float | None = None
    replay: float | None = None
    teacher_reward: str | None = None

    @classmethod
    def of(cls, row: HyperparameterRow) -> Self:
        """Read a row of `hyperparameters`."""
        return cls(row["learning_rate"], row["temperature"], row["replay"], row["teacher_reward"])

    def row(self, generation: int, member_id: str) -> HyperparameterRow:
        """The hyperparameters of a member at the end of a generation."""
        return {
            "generation": generation,
            "member_id": member_id,
            "learning_rate": self.learning_rate,
            "temperature": self.temperature,
            "replay": self.replay,
            "teacher_reward": self.teacher_reward,
        }


def founded(rules: PbtSection, role: Role, rng: np.random.Generator) -> Hyperparameters:
    """A founder's: numbers from the prior, evenly in the logarithm, and one of the rewards."""
    numbers = {name: _drawn(getattr(rules, name), rng) for name in _numbers(rules, role)}
    return Hyperparameters(**numbers, teacher_reward=_reward(rules, role, rng))


def explored(
    parent: Hyperparameters, rules: PbtSection, role: Role, rng: np.random.Generator
) -> Hyperparameters:
    """A child's: each number its parent's times the factor or divided by it, within the prior, or drawn again."""
    numbers = {}
    for name in _numbers(rules, role):
        low, high = prior = getattr(rules, name)
        again, factor = rng.random() < rules.redraw, rules.factor ** rng.choice((-1.0, 1.0))
        value = getattr(parent, name)
        numbers[name] = _drawn(prior, rng) if again or value is None else min(max(value * factor, low), high)
    reward = parent.teacher_reward
    if reward not in rules.teacher_reward or rng.random() < rules.redraw:
        reward = _reward(rules, role, rng)
    return Hyperparameters(**numbers, teacher_reward=reward)


def own_or(own: Mapping[str, Hyperparameters], member_id: str, name: str, usual: T) -> T:
    """A member's own hyperparameter; the usual value for one without."""
    value: T | None = getattr(own.get(member_id), name, None)
    return usual if value is None else value


def _numbers(rules: PbtSection, role: Role) -> list[str]:
    return [name for name, roles in ROLES.items() if name in rules.own and {*role.plays} & {*roles}]


def _drawn(prior: tuple[float, float], rng: np.random.Generator) -> float:
    low, high = prior
    drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
    return min(max(drawn, low), high)


def _reward(rules: PbtSection, role: Role, rng: np.random.Generator) -> str | None:
    if not rules.teacher_reward or Role.TEACHER not in role.plays:
        return None
    return rules.teacher_reward[rng.integers(len(rules.teacher_reward))]
