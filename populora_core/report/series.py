"""Series of one number per generation from rows, and means over several generations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from populora_core.report.figures import Figures
from populora_core.report.text import Format, finite, mean
from populora_core.support.aliases import Row

Points = Sequence[tuple[float, float | None]]
SIGMAS = 1.96  # of a 95 % interval


def totals(rows: Iterable[Row], by: str, field: str) -> dict[Any, float]:
    """value of `by` -> sum of the field over the rows."""
    found: dict[Any, float] = {}
    for row in rows:
        found[row[by]] = found.get(row[by], 0.0) + (row[field] or 0.0)
    return found


def where(rows: Iterable[Row], **values: object) -> list[Row]:
    """The rows whose columns have these values."""
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def column(rows: Iterable[Row], key: str) -> list[tuple[float, float | None]]:
    """(generation, value of the column); None where it has none."""
    return [(row["generation"], finite(row[key])) for row in rows]


def by_member(figures: Figures, role: str | None, key: str) -> dict[int, list[float]]:
    """generation -> the members' values of a column of `figures_member`, in one role or in both."""
    found: dict[int, list[float]] = {}
    for row in figures["figures_member"]:
        if role in (None, row["role"]):
            value = finite(row[key])
            found.setdefault(row["generation"], []).extend([] if value is None else [value])
    return found


def role_means(figures: Figures, role: str | None, key: str) -> list[tuple[float, float | None]]:
    """(generation, mean over the members that have a value)."""
    return [
        (generation, mean(sum(own), len(own))) for generation, own in by_member(figures, role, key).items()
    ]


def window(figures: Figures) -> int:
    """Number of generations that 'recently' and 'at first' cover: a third of the run, at most five."""
    return max(1, min(5, figures.last // 3))


def span(figures: Figures) -> str:
    """The window in words, to follow 'the last' or 'the first'."""
    size = window(figures)
    return "generation" if size == 1 else f"{size} generations"


def last_generations(figures: Figures) -> range:
    """The run's last `window` generations."""
    return range(figures.last - window(figures) + 1, figures.last + 1)


def first_generations(figures: Figures) -> range:
    """The run's first `window` generations."""
    return range(1, window(figures) + 1)


def within(rows: Iterable[Row], generations: range) -> list[Row]:
    """The rows of these generations."""
    return [row for row in rows if row["generation"] in generations]


@dataclass(frozen=True, slots=True)
class SampleMean:
    """A mean over generations with its standard error, None where that is not known."""

    mean: float
    error: float | None


def standard_error(mean: float, deviation: float, count: int) -> float | None:
    """The standard error of a mean of `count` values between 0 and 1; None of one alone, which tells none.

    The deviation counts two values at 0 and two at 1 that were not seen, as intervals of strata do: a few values that
    are alike by luck would seem certain.
    """
    if count < 2:
        return None
    n = count + 4
    variance = (count * (deviation**2 + mean**2) + 2) / n - ((count * mean + 2) / n) ** 2
    return math.sqrt(variance / count)


def sample_mean(values: Iterable[tuple[float, float, float | None]]) -> SampleMean | None:
    """The weighted mean of independent values, None of none.

    Args:
        values: (value, weight, standard error) of each generation.
    """
    known = list(values)
    whole = sum(weight for _, weight, _ in known)
    if not whole:
        return None
    errors = [weight * error for _, weight, error in known if error is not None]
    average = sum(value * weight for value, weight, _ in known) / whole
    return SampleMean(average, math.hypot(*errors) / whole if len(errors) == len(known) else None)


def noise(before: SampleMean, after: SampleMean) -> float | None:
    """Half the 95 % interval of the difference of two means; None where an error is not known."""
    if before.error is None or after.error is None:
        return None
    return SIGMAS * math.hypot(before.error, after.error)


def changed(before: SampleMean, after: SampleMean) -> int:
    """1 for a rise, -1 for a fall, 0 where the difference is within its 95 % interval or that is not known."""
    difference, width = after.mean - before.mean, noise(before, after)
    return 0 if width is None or abs(difference) <= width else (1 if difference > 0 else -1)


def went(form: Format, start: SampleMean, now: SampleMean) -> str:
    """Compare a figure with its start, in words; name a direction only beyond the noise."""
    before = form(start.mean)
    if before == form(now.mean):
        return "as at first"
    if noise(start, now) is None:
        return f"{before} at first"
    direction = changed(start, now)
    return {1: f"up from {before}", -1: f"down from {before}", 0: f"as at first ({before}) within the noise"}[
        direction
    ]
