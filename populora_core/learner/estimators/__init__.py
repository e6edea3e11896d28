"""Estimators: how rewards become advantages.

An estimator is a function (rewards, groups, cohorts, *, std_floor, clip) -> advantages over the rows of one
role:

- rewards: one a row; None where infrastructure failed. Such a row stays None and counts nowhere.
- groups: what was sampled under one condition: the problem of an attempt, member and type of a proposal.
- cohorts: member and problem type. Members never share statistics.
- std_floor: smallest divisor. clip: largest absolute advantage.

Rows that cannot be told apart (equal rewards, a single row) get exactly 0: they are not trained on. Put one
into `ESTIMATORS`, or name its place as "package.module:function", and `update.estimator` can choose it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from populora_core.support import registry
from populora_core.support.errors import PopulationError

Estimator = Callable[..., list[float | None]]

ESTIMATORS: dict[str, Estimator | str] = {
    name: f"{__name__}.{name}:{name}" for name in ("reinforce_pp", "trr_pp", "grpo")
}


def advantages(
    estimator: str,
    rewards: Sequence[float | None],
    groups: Sequence[str],
    cohorts: Sequence[str],
    *,
    std_floor: float,
    clip: float,
) -> list[float | None]:
    """The advantages that the estimator of this name gives.

    Raises:
        PopulationError: no such estimator, or one that does not keep to the contract above.
    """
    estimate = registry.find(ESTIMATORS, estimator, "estimator", "update.estimator")
    found = list(estimate(rewards, groups, cohorts, std_floor=std_floor, clip=clip))
    given = [reward is not None for reward in rewards]
    if [value is not None and math.isfinite(value) for value in found] != given:
        raise PopulationError(
            f"the estimator {estimator} gave something else than one advantage a reward",
            expected=f"{len(given)} values, None where the reward is None and finite elsewhere",
            came=f"{len(found)} values, {sum(value is None for value in found)} of them None",
            remedy="mend the function that update.estimator names",
        )
    return found
