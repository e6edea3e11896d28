"""Fitness: what selection ranks members by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from populora_core.errors import PopulationError
from populora_core.population.member import Member
from populora_core.population.rating import Rating, lower_bound


def internal_fitness(rating: Rating) -> float:
    """Relative fitness, from play: the lower bound of the TrueSkill rating."""
    return lower_bound(rating)


def rank(
    members: Sequence[Member], fitness: Mapping[str, float], eligible: Mapping[str, bool]
) -> list[Member]:
    """The members, fittest first; the ineligible below all others; of equals the earlier one first.

    Args:
        fitness: member_id -> fitness, larger is better.
        eligible: member_id -> whether the member was productive lately.

    Raises:
        PopulationError: a member has no fitness (or NaN), or it is not known whether it is eligible.
    """
    for member in members:
        name = member.member_id
        value = fitness.get(name)
        if value is None or math.isnan(value) or name not in eligible:
            raise PopulationError(
                f"{name} cannot be ranked",
                expected="a fitness and an eligibility of every member",
                came=f"fitness {value}, eligible {eligible.get(name)}",
                remedy="rate the generation's matches before ranking",
            )
    return sorted(members, key=lambda m: (eligible[m.member_id], fitness[m.member_id]), reverse=True)
