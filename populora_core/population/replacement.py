"""Replacement: which members of a sub-population make room for which children.

A replacement is a function (standing [n], ages [n], *, settings) -> places in the order in which they go, for
the members in ranked order, fittest first, and their ages in generations. It may name all of them: how many
go, that none is too young and that the sub-population is never emptied is decided here. Put one into
`REPLACEMENTS` or name its place, and `evolve.replacement` can choose it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from populora_core.population.fitness import rank, standing
from populora_core.population.member import Member, Role
from populora_core.population.selection import checked_places, choose_parents
from populora_core.support.arrays import Array, Places
from populora_core.support.registry import Registry

if TYPE_CHECKING:
    from populora_core.config.sections import EvolveSection

Order = Callable[..., Places]


def worst_fraction(standing: Array, ages: Array) -> Places:
    """The least fit first."""
    return np.arange(len(standing) - 1, -1, -1)


def ageing(standing: Array, ages: Array) -> Places:
    """The oldest first, of equal age the less fit: no one stays for ever, whatever its fitness."""
    return np.lexsort((-np.arange(len(ages)), -ages))


def none(standing: Array, ages: Array) -> Places:
    """Remove no one: the control without evolution."""
    return np.arange(0)


REPLACEMENTS = Registry(
    {"worst_fraction": worst_fraction, "ageing": ageing, "none": none},
    group="populora.replacements",
    what="replacement",
    setting="evolve.replacement",
)


def evolves(rules: EvolveSection, generation: int, planned: int | None = None) -> bool:
    """True if members are replaced at the end of this generation.

    Args:
        planned: generations of the whole run, in whose last share no one is born: a child has to learn before
            it is scored. Generations after them are not in that share.
    """
    due = rules.every > 0 and generation > 0 and generation % rules.every == 0
    return due and not (planned is not None and last_birth(rules, planned) < generation <= planned)


def always_stay(rules: EvolveSection) -> int:
    """Members of a sub-population that stay whatever their fitness: one, or the two parents of a crossover."""
    return 1 if rules.crossover_probability < 1.0 else 2


def last_birth(rules: EvolveSection, planned: int) -> int:
    """The last generation of a run of so many in which a member may be born."""
    # The small term keeps a third of 30, 9.999... in binary, at ten.
    return planned - math.floor(rules.last_share * planned + 1e-9)


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
    rules: EvolveSection,
    rng: np.random.Generator,
) -> list[Replacement]:
    """Choose the members of one role to replace at the end of this generation, weakest first, and how.

    Empty in every generation that is not a multiple of `rules.every`. Where only one member survives,
    children are mutants of it.

    Args:
        members: the living members of one role.
        fitness, eligible: as for `rank`.
    """
    if not evolves(rules, generation):
        return []
    ranked = rank(members, fitness, eligible)
    values = standing(ranked, fitness, eligible)
    removed = choose_removed(ranked, values, generation, rules)
    gone = {member.member_id for member in removed}
    stay = [place for place, member in enumerate(ranked) if member.member_id not in gone]
    survivors = [ranked[place] for place in stay]
    return [_replace(member, survivors, values[stay], rules, rng) for member in removed]


def choose_removed(
    ranked: Sequence[Member], standing: Array, generation: int, rules: EvolveSection
) -> list[Member]:
    """The members that go, in the order of the rules' replacement.

    As many as the fraction of the sub-population, at least one, but only members of at least the minimum
    age, and one member, or two where only crossovers are allowed, always stay; so it may be no one.

    Args:
        ranked: one sub-population, fittest first.
        standing: their fitness [n] in that order.

    Raises:
        PopulationError: an unknown replacement, or one that names a place twice or one that does not exist.
    """
    name, given = rules.replacement, rules.parameters.get(rules.replacement, {})
    order: Order = REPLACEMENTS.bound(name, given)
    ages = np.array([generation - member.born_generation for member in ranked], dtype=np.float64)
    places = checked_places(name, order(standing, ages), len(ranked))
    # The small term keeps 0.3 of ten, 2.9999... in binary, at three.
    wanted = max(1, math.floor(rules.fraction * len(ranked) + 1e-9))
    count = max(0, min(wanted, len(ranked) - always_stay(rules)))
    return [ranked[place] for place in places if ages[place] >= rules.minimum_age][:count]


def _replace(
    member: Member,
    survivors: Sequence[Member],
    standing: Array,
    rules: EvolveSection,
    rng: np.random.Generator,
) -> Replacement:
    crosses = len(survivors) > 1 and rng.random() < rules.crossover_probability
    operators = rules.crossovers if crosses else rules.mutations
    places = choose_parents(standing, 2 if crosses else 1, rules, rng)
    # Extrapolation overshoots its second parent, which therefore must be the fitter one.
    parents = [survivors[place] for place in sorted(places, reverse=True)]
    return Replacement(
        removed_id=member.member_id,
        role=member.role,
        slot=member.slot,
        parent_ids=tuple(parent.member_id for parent in parents),
        operator=operators[rng.integers(len(operators))],
    )
