"""Averaging: members of a role become the mean of their updates, or move a share of the way to it, and train on.

In the paper's terms a crossover of a whole sub-population. The field knows it as weight averaging: local SGD (Stich,
arXiv 1805.09767) and DiLoCo (Douillard et al., arXiv 2311.08105) train copies apart and go on from their mean every k
steps; model soups (Wortsman et al., arXiv 2203.05482) average once, at the end; WARP (Rame et al., arXiv 2406.16768)
averages policies that reinforcement learning moved apart, and starts each round on the way to the mean.

The mean is that of the updates B A and not of the factors, cut to the rank as a child is (`space`). Moments follow into
the new factors by the map of `moments`, each member's weighed as its update is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from populora_core.population.variation.lowrank import Adapter, Factors, require_alike
from populora_core.population.variation.moments import Moments, inherited
from populora_core.population.variation.space import Space


@dataclass(frozen=True, slots=True, eq=False)
class Averaged:
    """A member after an average.

    Attributes:
        distance: Frobenius distance that its update moved, relative to its norm; None where it had no update.
        energy_kept: share of the squared norm of what was aimed at that the rank holds.
    """

    factors: dict[str, Factors]
    moments: Moments
    distance: float | None
    energy_kept: float


def weights_of(place: int, members: int, share: float) -> list[float]:
    """Weights of all members in the average for the one at this place; they add up to 1."""
    return [share / members + (1.0 - share) * (other == place) for other in range(members)]


def averaged(
    members: Sequence[Adapter], moments: Sequence[Moments], share: float, rng: np.random.Generator
) -> list[Averaged]:
    """Average the members; with share 1 all become the same, with factors and moments in common.

    Args:
        members: module -> (A [rank, in], B [out, rank]), of one layout.
        share: of the way from a member's own update to the mean of all, above 0.
        rng: for directions that an update does not have (see `lowrank.draw_rows`).

    Raises:
        PopulationError: members that differ in layout, or numbers that are not finite.
    """
    require_alike(members, "the members to average")
    # Contiguous, as for a child: strides must not change what comes out.
    members = [{name: (a.contiguous(), b.contiguous()) for name, (a, b) in each.items()} for each in members]
    space, count = Space.of(members), len(members)
    made: list[tuple[dict[str, Factors], Moments, list[float | None], float]] = []
    for place in range(count if share < 1.0 else 1):
        weights = weights_of(place, count, share)
        wanted = space.weighted(weights)
        kept = wanted.part(0, space.rank)
        bred = space.bred(kept, rng)
        carried = inherited(bred.factors, members, moments, [count * weight for weight in weights])
        energy = kept.energy / wanted.energy if wanted.energy else 1.0
        made.append((bred.factors, carried, bred.distances, energy))
    return [
        Averaged(factors, carried, distances[place], energy)
        for place, (factors, carried, distances, energy) in enumerate(made if share < 1.0 else made * count)
    ]
