"""From rows to series: sums over what a plot does not tell apart, then one number a generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from populora_core.report.charts import Series
from populora_core.report.figures import Figures, Rows
from populora_core.report.palette import LINES, VERDICTS, Style
from populora_core.report.text import finite, mean
from populora_core.support.aliases import Row

Totals = dict[Any, dict[str, float]]

MOST_LANES = 8  # members of a role that are drawn one by one


def totals(rows: Iterable[Row], by: str, *fields: str) -> Totals:
    """value of `by` -> field -> sum over the rows."""
    found: Totals = {}
    for row in rows:
        sums = found.setdefault(row[by], dict.fromkeys(fields, 0.0))
        for field in fields:
            sums[field] += row[field] or 0.0
    return found


def where(rows: Iterable[Row], **values: object) -> list[Row]:
    """The rows whose columns have these values."""
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def ratio(rows: Iterable[Row], over: str, under: str) -> list[tuple[float, float | None]]:
    """(generation, sum of `over` / sum of `under`); None where the latter is zero."""
    found = totals(rows, "generation", over, under)
    return [(generation, mean(sums[over], sums[under])) for generation, sums in sorted(found.items())]


def window(figures: Figures) -> int:
    """How many generations 'recently' and 'at first' mean: a third of the run, at most five."""
    return max(1, min(5, figures.last // 3))


def recent(figures: Figures, rows: Iterable[Row]) -> list[Row]:
    """The rows of the run's last `window` generations."""
    return [row for row in rows if row["generation"] > figures.last - window(figures)]


def early(figures: Figures, rows: Iterable[Row]) -> list[Row]:
    """The rows of its first `window` generations."""
    return [row for row in rows if 1 <= row["generation"] <= window(figures)]


def share_of(rows: Iterable[Row], verdict: str) -> list[Row]:
    """The rows with a column `hits`: how many of their `n` have the verdict."""
    return [{**row, "hits": row["n"] if row["verdict"] == verdict else 0} for row in rows]


def grouped_verdicts(rows: Iterable[Row]) -> dict[int, dict[str, float]]:
    """generation -> group of `VERDICTS` -> count."""
    group_of = {verdict: group for group, (_, verdicts) in VERDICTS.items() for verdict in verdicts}
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        groups = found.setdefault(row["generation"], {})
        group = group_of.get(row["verdict"], "not judged")
        groups[group] = groups.get(group, 0.0) + row["n"]
    return found


def rating_series(figures: Figures, role: str) -> list[Series]:
    """A line a slot with its band mu ± 2 sigma, broken where a child took the slot; of a large role its spread."""
    rows = where(figures["ratings"], role=role)
    slots = sorted({row["slot"] for row in rows})
    if len(slots) > MOST_LANES:
        return _spread(rows, role)
    made_by = {row["member_id"]: row["operator"] for row in figures["members"]}
    return [
        _slot(where(rows, slot=slot), f"{role[0].upper()}{slot}", LINES[index % len(LINES)], made_by)
        for index, slot in enumerate(slots)
    ]


def _slot(rows: Sequence[Row], label: str, style: Style, made_by: Mapping[str, str]) -> Series:
    lives: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["generation"]):
        lives.setdefault(row["member_id"], []).append(row)
    points: list[tuple[float, float | None]] = []
    rings = []
    for index, (member, life) in enumerate(lives.items()):
        if index:
            points.append((life[0]["generation"], None))
            text = f"{member} begins: {made_by[member]}"
            rings.append((life[0]["generation"], life[0]["mu"], text))
        points += [(row["generation"], row["mu"]) for row in life]
    bands = tuple(
        [(row["generation"], row["mu"] - 2 * row["sigma"], row["mu"] + 2 * row["sigma"]) for row in life]
        for life in lives.values()
    )
    return Series(label, style, points, bands, tuple(rings))


def _spread(rows: Sequence[Row], role: str) -> list[Series]:
    by_generation: dict[int, list[float]] = {}
    for row in rows:
        by_generation.setdefault(row["generation"], []).append(row["mu"])
    ordered = {generation: sorted(values) for generation, values in sorted(by_generation.items())}

    def at(share: float) -> list[tuple[float, float]]:
        return [(g, values[round(share * (len(values) - 1))]) for g, values in ordered.items()]

    middle = [(g, low, high) for (g, low), (_, high) in zip(at(0.1), at(0.9), strict=True)]
    return [
        Series(f"best {role}", LINES[0], at(1.0)),
        Series(f"median {role} (band: 10 to 90 % of them)", LINES[1], at(0.5), (middle,)),
        Series(f"weakest {role}", LINES[2], at(0.0)),
    ]


def role_band(rows: Rows, role: str, style: Style) -> Series:
    """A role's mean entropy with the range over its members."""
    own = where(rows, role=role)
    points = [(row["generation"], finite(row["entropy"])) for row in own]
    edges = [
        (row["generation"], row["lowest"], row["highest"])
        for row in own
        if finite(row["entropy"]) is not None
    ]
    return Series(role, style, points, (edges,))


def running_sum(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    total = 0.0
    sums: list[tuple[float, float | None]] = []
    for x, y in points:
        total += y or 0.0
        sums.append((x, total))
    return sums
