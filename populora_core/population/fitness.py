"""Fitness: what selection and replacement rank members by.

Internal fitness is relative, from play: the lower bound of the TrueSkill rating. External fitness is
objective: a student's score on a held-out suite, and for a teacher the share of its recent problems that are
solved sometimes but not always. A fitness is a function of arrays over one sub-population,
(mu [n], sigma [n], external [n], NaN where not evaluated) -> [n], larger is fitter; put one into `FITNESS` or
name its place, and `evolve.fitness` can choose it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from populora_core.population.member import Member
from populora_core.support.arrays import Array
from populora_core.support.errors import PopulationError
from populora_core.support.registry import Registry, Share

if TYPE_CHECKING:
    from populora_core.config.sections import EvolveSection

Fitness = Callable[..., Array]


def internal(mu: Array, sigma: Array, external: Array) -> Array:
    """The lower bound mu - 3 sigma."""
    return mu - 3.0 * sigma


def external(mu: Array, sigma: Array, external: Array) -> Array:
    """The external fitness itself."""
    return external


def blend(mu: Array, sigma: Array, external: Array, *, weight: Share = 0.5) -> Array:
    """(1 - weight) times the internal and weight times the external fitness, each standardised.

    Ratings and scores have different units; over the sub-population each is shifted to mean 0 and divided by
    its standard deviation. Where all are equal it says nothing and counts as 0.
    """
    return (1.0 - weight) * _standardised(internal(mu, sigma, external)) + weight * _standardised(external)


FITNESS = Registry(
    {"internal": internal, "external": external, "blend": blend},
    group="populora.fitness",
    what="fitness",
    setting="evolve.fitness",
)

NEEDS_EVALUATION = frozenset({"external", "blend"})
"""Fitness functions that need every member's external fitness."""


def learnable_share(solve_rates: Iterable[float | None]) -> float | None:
    """External fitness of a teacher: the share of its problems with 0 < solve rate < 1; None without any.

    Args:
        solve_rates: of the problems of its last generations; None, not judged, counts for nothing.
    """
    judged = [rate for rate in solve_rates if rate is not None]
    return sum(0.0 < rate < 1.0 for rate in judged) / len(judged) if judged else None


def fitness_of(
    rules: EvolveSection, members: Sequence[Member], external_fitness: Mapping[str, float | None]
) -> dict[str, float]:
    """member_id -> fitness of one sub-population, by the function that the rules name.

    Args:
        members: with their ratings after the generation's matches.
        external_fitness: member_id -> external fitness, None or absent where not evaluated.

    Raises:
        PopulationError: an unknown fitness or parameter, or a member whose fitness is not a number.
    """
    name = rules.fitness
    function: Fitness = FITNESS.bound(name, rules.parameters.get(name, {}))
    known = [external_fitness.get(member.member_id) for member in members]
    values = np.asarray(
        function(
            np.array([member.mu for member in members], dtype=np.float64),
            np.array([member.sigma for member in members], dtype=np.float64),
            np.array([math.nan if value is None else value for value in known], dtype=np.float64),
        ),
        dtype=np.float64,
    )
    if values.shape != (len(members),):
        raise _unknown(name, len(members), f"an array of shape {values.shape}")
    if unknown := [place for place in range(len(members)) if np.isnan(values[place])]:
        # One missing score can leave a blend unknown for all; the member that misses it is named.
        place = next((place for place in unknown if known[place] is None), unknown[0])
        got = f"none of {members[place].member_id}, whose external fitness is {known[place]}"
        raise _unknown(name, len(members), got)
    return {member.member_id: float(value) for member, value in zip(members, values, strict=True)}


def rank(
    members: Sequence[Member], fitness: Mapping[str, float], eligible: Mapping[str, bool]
) -> list[Member]:
    """The members, fittest first; the ineligible below all others; of equals the earlier one first.

    Args:
        fitness: member_id -> fitness, larger is better.
        eligible: member_id -> whether the member was productive lately.
    """
    return sorted(members, key=lambda m: (eligible[m.member_id], fitness[m.member_id]), reverse=True)


def standing(ranked: Sequence[Member], fitness: Mapping[str, float], eligible: Mapping[str, bool]) -> Array:
    """The fitness [n] of ranked members as selection sees it, never rising along the ranking.

    An ineligible member counts for no more than the least fit eligible one.
    """
    values = np.array([fitness[member.member_id] for member in ranked], dtype=np.float64)
    worthy = np.array([eligible[member.member_id] for member in ranked], dtype=bool)
    ceiling = values[worthy].min() if worthy.any() else math.inf
    return np.where(worthy, values, np.minimum(values, ceiling))


def _unknown(name: str, n: int, got: str) -> PopulationError:
    return PopulationError(
        f"the fitness {name} is not known of every member",
        expected=f"{n} numbers",
        got=got,
        fix="evaluate every member before evolution, or choose evolve.fitness internal",
    )


def _standardised(values: Array) -> Array:
    spread = float(values.std())
    # The bound is far above rounding errors and far below any difference that means something.
    return (values - values.mean()) / spread if not spread < 1e-9 else np.zeros_like(values)
