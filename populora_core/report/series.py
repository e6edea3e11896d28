"""Series of one number per generation from rows, and means over several generations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from populora_core.report.charts import Points, Series
from populora_core.report.figures import Figures
from populora_core.report.palette import INFRASTRUCTURE, LINES, VERDICTS, Style
from populora_core.report.text import finite, mean, plain, short_id
from populora_core.support.aliases import Row

MOST_LANES = 8  # members of a role that are drawn one by one
SMOOTHED, FROM = 5, 15  # generations of a smoothed line's mean; lines of so many have one
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


def pooled(rows: Iterable[Row], key: str, over: str) -> float | None:
    """The mean of a column whose values are means over `over` rows each; None where there are none."""
    known = [(row[key], row[over]) for row in rows if row[key] is not None]
    return mean(sum(value * count for value, count in known), sum(count for _, count in known))


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


def grouped_verdicts(rows: Iterable[Row]) -> dict[int, dict[str, float]]:
    """generation -> group of `VERDICTS` -> count; of judged rows, like every share."""
    group_of = {verdict: group for group, (_, verdicts) in VERDICTS.items() for verdict in verdicts}
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["verdict"] == INFRASTRUCTURE:
            continue
        groups = found.setdefault(row["generation"], {})
        group = group_of.get(row["verdict"], "not judged")
        groups[group] = groups.get(group, 0.0) + row["n"]
    return found


def rating_series(figures: Figures, role: str) -> list[Series]:
    """Lower bounds mu - 3 sigma, a line a slot, broken where a child took it; of a large role its spread."""
    rows = where(figures["ratings"], role=role)
    slots = sorted({row["slot"] for row in rows})
    if len(slots) > MOST_LANES:
        return _spread(rows)
    return [_slot(where(rows, slot=slot), LINES[index % len(LINES)]) for index, slot in enumerate(slots)]


def _slot(rows: Sequence[Row], style: Style) -> Series:
    """The lives of one slot, under the name of who holds it now."""
    points: list[tuple[float, float | None]] = []
    holder = None
    for row in sorted(rows, key=lambda row: row["generation"]):
        if holder not in (None, row["member_id"]):
            points.append((row["generation"] - 0.5, None))
        holder = row["member_id"]
        points.append((row["generation"], row["fitness"]))
    return Series(short_id(holder or ""), style, points)


def births(figures: Figures, role: str) -> list[tuple[float, str]]:
    """(generation, who was replaced by whom), for the rules across a role's plots."""
    made = where(figures["evolutions"], role=role)
    by_generation = groupby(sorted(made, key=itemgetter("generation")), itemgetter("generation"))
    return [
        (
            generation,
            "\n".join(f"{short_id(r['removed_id'])} gives way to {short_id(r['child_id'])}" for r in rows),
        )
        for generation, rows in by_generation
    ]


def _spread(rows: Sequence[Row]) -> list[Series]:
    """Best, median and weakest, the band from 10 to 90 % of them."""
    by_generation: dict[int, list[float]] = {}
    for row in rows:
        by_generation.setdefault(row["generation"], []).append(row["fitness"])
    ordered = {generation: sorted(values) for generation, values in sorted(by_generation.items())}

    def at(share: float) -> list[tuple[float, float]]:
        return [(g, values[round(share * (len(values) - 1))]) for g, values in ordered.items()]

    middle = [(g, low, high) for (g, low), (_, high) in zip(at(0.1), at(0.9), strict=True)]
    return [
        Series("best", LINES[0], at(1.0)),
        Series("median", LINES[1], at(0.5), (middle,)),
        Series("weakest", LINES[2], at(0.0)),
    ]


def role_band(figures: Figures, role: str, key: str, style: Style) -> Series:
    """The mean over a role's members with their range."""
    edges = [
        (generation, min(own), max(own)) for generation, own in by_member(figures, role, key).items() if own
    ]
    return Series(plain(role), style, role_means(figures, role, key), (edges,))


def one_error(points: Points, errors: Mapping[int, float]) -> tuple[list[tuple[float, float, float]], ...]:
    """The band of one standard error on either side, in one piece; none where no error is known."""
    found = [(x, y - errors[int(x)], y + errors[int(x)]) for x, y in points if y is not None and x in errors]
    return (found,) if found else ()


def smoothed(points: Points) -> Points:
    """The mean of the `SMOOTHED` generations round each point, of fewer at the ends; nothing of a short line."""
    if len(points) < FROM:
        return ()
    side, found = SMOOTHED // 2, []
    for place, (x, y) in enumerate(points):
        near = [value for _, value in points[max(0, place - side) : place + side + 1] if value is not None]
        found.append((x, None if y is None else sum(near) / len(near)))
    return found
