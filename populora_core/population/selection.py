"""Selection: who goes, and who breeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from populora_core.errors import PopulationError
from populora_core.population.member import Member


def worst_fraction(
    ranked: Sequence[Member],
    generation: int,
    *,
    fraction: float,
    minimum_age: int,
    min_survivors: int = 1,
) -> list[Member]:
    """The members to replace, worst first.

    As many as the fraction of the sub-population, at least one, but only members of at least the minimum
    age: the ratings of newborns are too uncertain to be ranked. `min_survivors` always stay, which may
    leave nobody to replace.

    Args:
        ranked: one sub-population, fittest first.
    """
    # The small term keeps 0.3 of ten, 2.9999... in binary, at three.
    wanted = max(1, math.floor(fraction * len(ranked) + 1e-9))
    count = max(0, min(wanted, len(ranked) - min_survivors))
    old_enough = [m for m in reversed(ranked) if generation - m.born_generation >= minimum_age]
    return old_enough[:count]


def choose_parents(survivors: Sequence[Member], n: int, rng: np.random.Generator) -> list[Member]:
    """n different survivors, each equally likely.

    Raises:
        PopulationError: fewer than n survivors.
    """
    if len(survivors) < n:
        raise PopulationError(
            "there are too few survivors to breed from",
            expected=f"at least {n}",
            came=str(len(survivors)),
            remedy="enlarge the sub-population or replace a smaller fraction of it",
        )
    return [survivors[index] for index in rng.choice(len(survivors), size=n, replace=False)]
