"""Replacement: which members of a sub-population make room for which children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from populora_core.errors import PopulationError
from populora_core.population.fitness import rank
from populora_core.population.member import Member, Role
from populora_core.population.selection import choose_parents, worst_fraction


@dataclass(frozen=True, slots=True)
class EvolutionRules:
    """When and how the weakest are replaced.

    Attributes:
        every: generations between replacements; 0 for never.
        fraction: share of a sub-population that goes.
        minimum_age: generations before a member may go.
        crossover_probability: share of children with two parents.
        mutations: operators with one parent, each equally likely.
        crossovers: operators with two parents, each equally likely.

    Raises:
        PopulationError: a family of operators may be drawn and has none.
    """

    every: int
    fraction: float
    minimum_age: int
    crossover_probability: float
    mutations: tuple[str, ...]
    crossovers: tuple[str, ...]

    def __post_init__(self) -> None:
        p = self.crossover_probability
        if (p < 1.0 and not self.mutations) or (p > 0.0 and not self.crossovers):
            raise PopulationError(
                "children could not be made by these rules",
                expected="mutations unless crossover_probability is 1, crossovers unless it is 0",
                came=f"crossover_probability {p}, mutations {self.mutations}, crossovers {self.crossovers}",
                remedy="name at least one operator in each family that can be drawn",
            )


@dataclass(frozen=True, slots=True)
class Replacement:
    """One member goes, one child takes its slot. Of two parents the fitter is the second."""

    removed_id: str
    role: Role
    slot: int
    parent_ids: tuple[str, ...]
    operator: str


def plan_evolution(
    generation: int,
    members: Sequence[Member],
    fitness: Mapping[str, float],
    eligible: Mapping[str, bool],
    rules: EvolutionRules,
    rng: np.random.Generator,
) -> list[Replacement]:
    """Who of one sub-population is replaced at the end of this generation, and how; worst first.

    Empty in every generation that is not a multiple of `rules.every`. Where only one member survives,
    children are mutants of it; where only crossovers are allowed, two members always survive.

    Args:
        members: the living members of one role.
        fitness, eligible: as for `rank`.

    Raises:
        PopulationError: members of several roles or twice the same one; one without fitness.
    """
    if rules.every == 0 or generation == 0 or generation % rules.every:
        return []
    _require_one_sub_population(members)
    ranked = rank(members, fitness, eligible)
    removed = worst_fraction(
        ranked,
        generation,
        fraction=rules.fraction,
        minimum_age=rules.minimum_age,
        min_survivors=1 if rules.crossover_probability < 1.0 else 2,
    )
    survivors = [member for member in ranked if member not in removed]
    return [_replace(member, survivors, rules, rng) for member in removed]


def _replace(
    member: Member, survivors: Sequence[Member], rules: EvolutionRules, rng: np.random.Generator
) -> Replacement:
    crosses = len(survivors) > 1 and rng.random() < rules.crossover_probability
    operators = rules.crossovers if crosses else rules.mutations
    parents = choose_parents(survivors, 2 if crosses else 1, rng)
    # Extrapolation overshoots its second parent, which therefore must be the fitter one.
    parents.sort(key=survivors.index, reverse=True)
    return Replacement(
        removed_id=member.member_id,
        role=member.role,
        slot=member.slot,
        parent_ids=tuple(parent.member_id for parent in parents),
        operator=operators[rng.integers(len(operators))],
    )


def _require_one_sub_population(members: Sequence[Member]) -> None:
    roles = sorted({member.role for member in members})
    slots = {member.slot for member in members}
    if len(roles) != 1 or len(slots) != len(members):
        raise PopulationError(
            "evolution cannot be planned for these members",
            expected="the living members of one role, one in each slot",
            came=f"roles {', '.join(roles) or 'none'}; {len(members)} members in {len(slots)} slots",
            remedy="plan each sub-population on its own, after the earlier plan was carried out",
        )
