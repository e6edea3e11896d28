"""The two steps that every estimator here is made of: centre the rewards of some rows, scale those of others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

SPREAD_FLOOR = 1e-8  # below it rewards count as equal, whatever rounding left


def centre(rewards: Sequence[float | None], keys: Sequence[str]) -> list[float | None]:
    """Subtract the mean of the rows of each key; equal rewards, or a single row, give exactly 0."""
    result = list(rewards)
    for rows in _rows_of(rewards, keys):
        values = np.array([rewards[row] for row in rows], dtype=np.float64)
        equal = np.ptp(values) < SPREAD_FLOOR
        for row, value in zip(rows, values - values.mean(), strict=True):
            result[row] = 0.0 if equal else float(value)
    return result


def scale(
    centred: Sequence[float | None], keys: Sequence[str], *, std_floor: float, clip: float
) -> list[float | None]:
    """Divide by max(std, std_floor) of the rows of each key, then clip; rows without spread give exactly 0."""
    result = list(centred)
    for rows in _rows_of(centred, keys):
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
