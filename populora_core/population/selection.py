"""Selection: which of the survivors breed.

A selection is a function (standing [m], n, rng, *, settings) -> n different places in 0..m-1, for the
survivors' fitness in ranked order, fittest first. Put one into `SELECTIONS` or name its place, and
`evolve.selection` can choose it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from populora_core.support.arrays import Array, Places
from populora_core.support.errors import PopulationError
from populora_core.support.registry import Registry, Share

if TYPE_CHECKING:
    from populora_core.config.sections import EvolveSection

Selection = Callable[..., Places]


def truncation(standing: Array, n: int, rng: np.random.Generator, *, share: Share = 1.0) -> Places:
    """Uniform among the fittest share, rounded up, at least n; replacement has cut the worst off already."""
    among = min(len(standing), max(n, math.ceil(share * len(standing) - 1e-9)))
    return rng.choice(among, size=n, replace=False)


def tournament(
    standing: Array, n: int, rng: np.random.Generator, *, size: Annotated[int, Field(ge=1)] = 3
) -> Places:
    """Each parent is the fittest of `size` drawn without repetition from those not yet chosen.

    Equals win by lot: the order of drawing decides.
    """
    left = list(range(len(standing)))
    chosen = []
    for _ in range(n):
        drawn = rng.choice(left, size=min(size, len(left)), replace=False)
        winner = int(drawn[np.argmax(standing[drawn])])
        chosen.append(winner)
        left.remove(winner)
    return np.array(chosen, dtype=np.int64)


def rank_proportional(standing: Array, n: int, rng: np.random.Generator) -> Places:
    """Draw n places in proportion to rank: m for the fittest, 1 for the last; equals share their mean rank."""
    ranks = np.arange(len(standing), 0, -1, dtype=np.float64)
    _, ties = np.unique(standing, return_inverse=True)
    weights = (np.bincount(ties, ranks) / np.bincount(ties))[ties]
    return rng.choice(len(standing), size=n, replace=False, p=weights / weights.sum())


def fitness_uniform(standing: Array, n: int, rng: np.random.Generator) -> Places:
    """The survivor nearest to a fitness drawn uniformly between the least and the largest, so that rare
    levels of fitness breed as often as crowded ones. Equals win by lot."""
    left = list(range(len(standing)))
    chosen = []
    for _ in range(n):
        values = standing[left]
        finite = values[np.isfinite(values)]
        wanted = rng.uniform(finite.min(), finite.max()) if len(finite) else 0.0
        gaps = np.abs(np.where(np.isfinite(values), values, np.inf) - wanted)
        nearest = np.flatnonzero(gaps == gaps.min())
        place = left[int(rng.choice(nearest))]
        chosen.append(place)
        left.remove(place)
    return np.array(chosen, dtype=np.int64)


SELECTIONS = Registry(
    {
        "truncation": truncation,
        "tournament": tournament,
        "rank_proportional": rank_proportional,
        "fitness_uniform": fitness_uniform,
    },
    group="populora.selections",
    what="selection",
    setting="evolve.selection",
)


def choose_parents(standing: Array, n: int, rules: EvolveSection, rng: np.random.Generator) -> list[int]:
    """The places of n different survivors, by the rules' selection.

    Args:
        standing: fitness [m] of at least n survivors, fittest first.

    Raises:
        PopulationError: an unknown selection or parameter, or one that does not give n different places.
    """
    name = rules.selection
    select: Selection = SELECTIONS.bound(name, rules.parameters.get(name, {}))
    return checked_places(name, select(standing, n, rng), len(standing), n)


def checked_places(name: str, given: Iterable[int], among: int, n: int | None = None) -> list[int]:
    """Return what a plug-in function chose, once it is different places (n of them, if given) below `among`.

    Raises:
        PopulationError: it is anything else.
    """
    places = [int(place) for place in given]
    wanted = len(places) if n is None else n
    if not len(set(places)) == len(places) == wanted or not all(0 <= place < among for place in places):
        raise PopulationError(
            f"{name} did not name members",
            expected=f"{'' if n is None else f'{n} '}different places from 0 to {among - 1}",
            got=str(places),
            fix="fix the function that evolve names",
        )
    return places
