"""Advantages of proposals and attempts.

REINFORCE++ with baseline (arXiv 2501.03262) subtracts the mean reward of the completions of one prompt and
then whitens over the global batch. Three things differ here. The scale is taken per cohort (one member and
one problem type), so that members never share statistics. There is no second mean: centred rewards already
sum to zero over a cohort, and a shift would hand an advantage to groups whose rewards are all equal. And the
divisor has a floor, so that a cohort with hardly any spread is not blown up to unit variance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

SPREAD_FLOOR = 1e-8  # below it rewards count as equal, whatever rounding left


def advantages(
    rewards: Sequence[float | None],
    groups: Sequence[str],
    cohorts: Sequence[str],
    *,
    std_floor: float = 0.1,
    clip: float = 5.0,
) -> list[float | None]:
    """Centre rewards within groups, then scale them within cohorts.

    Args:
        rewards: one per row; None where infrastructure failed. Such rows stay None and count nowhere.
        groups: the centring group of each row: the problem of an attempt, teacher and type of a proposal.
        cohorts: the scaling cohort of each row: member and problem type.
        std_floor: smallest divisor.
        clip: largest absolute advantage.
    """
    return normalise(centre(rewards, groups), cohorts, std_floor=std_floor, clip=clip)


def centre(rewards: Sequence[float | None], groups: Sequence[str]) -> list[float | None]:
    """Subtract each group's mean; a group of equal rewards, or of one, gives exactly 0."""
    result = list(rewards)
    for rows in _rows_of(rewards, groups):
        values = np.array([rewards[row] for row in rows], dtype=np.float64)
        equal = np.ptp(values) < SPREAD_FLOOR
        for row, value in zip(rows, values - values.mean(), strict=True):
            result[row] = 0.0 if equal else float(value)
    return result


def normalise(
    centred: Sequence[float | None], cohorts: Sequence[str], *, std_floor: float = 0.1, clip: float = 5.0
) -> list[float | None]:
    """Divide by max(std, std_floor) of the cohort and clip; a cohort without spread gives exactly 0."""
    result = list(centred)
    for rows in _rows_of(centred, cohorts):
        values = np.array([centred[row] for row in rows], dtype=np.float64)
        spread = float(values.std())
        scaled = np.clip(values / max(spread, std_floor), -clip, clip)
        for row, value in zip(rows, scaled, strict=True):
            result[row] = 0.0 if spread < SPREAD_FLOOR else float(value)
    return result


def _rows_of(values: Sequence[float | None], keys: Sequence[str]) -> list[list[int]]:
    """Indices of the rows that have a value, by key."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, (value, key) in enumerate(zip(values, keys, strict=True)):
        if value is not None:
            rows[key].append(row)
    return list(rows.values())
