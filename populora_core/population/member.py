"""A member of the population, without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from populora_core.population.rating import Rating


class Role(StrEnum):
    """The role of a member."""

    TEACHER = "teacher"
    """Proposes problems."""
    STUDENT = "student"
    """Answers them."""
    SOLO = "solo"
    """Does both: the single-agent baseline."""

    @property
    def plays(self) -> tuple[Role, ...]:
        """The roles that it plays, in the order in which it learns from them."""
        return (Role.TEACHER, Role.STUDENT) if self is Role.SOLO else (self,)


@dataclass(frozen=True, slots=True)
class Member:
    """One LoRA adapter's place in the population.

    Attributes:
        slot: place in the sub-population, handed on to the child that replaces the member.
        parent_ids: members that it was bred from; empty for a founder.
        operator: variation operator that made it.
        productive_generation: last generation with a valid proposal or a correct attempt, plus those since in which it
            had no match.
    """

    member_id: str
    role: Role
    slot: int
    born_generation: int
    parent_ids: tuple[str, ...]
    operator: str
    mu: float
    sigma: float
    productive_generation: int

    @property
    def rating(self) -> Rating:
        return Rating(self.mu, self.sigma)
