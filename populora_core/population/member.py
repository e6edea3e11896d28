"""A member of the population, without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from populora_core.population.rating import Rating

if TYPE_CHECKING:
    from populora_core.store.rows import PopulationRow


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

    @classmethod
    def of(cls, row: PopulationRow) -> Self:
        """The member that a row of `population` is."""
        return cls(
            member_id=row["member_id"],
            role=Role(row["role"]),
            slot=row["slot"],
            born_generation=row["born_generation"],
            parent_ids=tuple(row["parent_ids"]),
            operator=row["operator"],
            mu=row["mu"],
            sigma=row["sigma"],
            productive_generation=row["productive_generation"],
        )

    def row(self, generation: int, adapter_sha256: str, moments_sha256: str) -> PopulationRow:
        """The member at the end of a generation, with the files that it then has, as a row of `population`."""
        return {
            "generation": generation,
            "member_id": self.member_id,
            "role": self.role,
            "slot": self.slot,
            "born_generation": self.born_generation,
            "parent_ids": list(self.parent_ids),
            "operator": self.operator,
            "mu": self.mu,
            "sigma": self.sigma,
            "productive_generation": self.productive_generation,
            "adapter_sha256": adapter_sha256,
            "moments_sha256": moments_sha256,
        }

    @property
    def rating(self) -> Rating:
        return Rating(self.mu, self.sigma)
