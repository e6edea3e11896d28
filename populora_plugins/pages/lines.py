"""The lines of plots: a metric's, members' ratings, a role's range; and verdicts in groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from populora_core.report.charts import Series
from populora_core.report.figures import Figures
from populora_core.report.metrics import Metric
from populora_core.report.palette import LINES, Style
from populora_core.report.series import Points, by_member, role_means, where
from populora_core.report.text import plain, short_id
from populora_core.support.aliases import Row
from populora_plugins.pages.colours import INFRASTRUCTURE, VERDICTS

MOST_LANES = 8  # members of a role that are drawn one by one
SMOOTHED, FROM = 5, 15  # generations of a smoothed line's mean; lines of so many have one


def metric_line(
    metric: Metric, figures: Figures, part: str | None, label: str, style: Style, rates: bool = False
) -> Series:
    """A metric's line with one standard error round it, where that is known, and without its noise, where it is long.

    Args:
        rates: of `Metric.rates` in place of `Metric.points`.
    """
    points = metric.rates(figures, part) if rates else metric.points(figures, part)
    smooth = () if metric.cumulative else smoothed(points)
    return Series(label, style, points, one_error(points, metric.errors(figures, part)), smooth)


def reading(metric: Metric, lines: Sequence[Series], bands: str = "Bands are") -> str:
    """The caption of a plot of such lines: what the figure means, and what bands and thick lines are."""
    says = metric.says + (f" {bands} one standard error." if any(line.bands for line in lines) else "")
    if any(line.smooth for line in lines):
        says += f" Thick lines are means of {SMOOTHED} generations."
    return says


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


def rating_series(figures: Figures, role: str) -> tuple[list[Series], str]:
    """Lower bounds mu - 3 sigma, a line a slot, broken where a child took it; of a large role its spread.

    Returns:
        The lines, and their meaning in words.
    """
    rows = where(figures["ratings"], role=role)
    slots = sorted({row["slot"] for row in rows})
    if len(slots) > MOST_LANES:
        return _spread(rows), "best, median and weakest member, the band from the 10th to the 90th percentile"
    lines = [_slot(where(rows, slot=slot), LINES[index % len(LINES)]) for index, slot in enumerate(slots)]
    return lines, "a line per slot under who holds it now"


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
    """The band of one standard error on either side, in pieces: broken where a value or its error is not known."""
    pieces: list[list[tuple[float, float, float]]] = [[]]
    for x, y in points:
        if y is None or x not in errors:
            pieces.append([])
        else:
            pieces[-1].append((x, y - errors[int(x)], y + errors[int(x)]))
    return tuple(filter(None, pieces))


def smoothed(points: Points) -> Points:
    """The mean of the `SMOOTHED` generations round each point, of fewer at the ends; nothing of a short line."""
    if len(points) < FROM:
        return ()
    side, found = SMOOTHED // 2, []
    for place, (x, y) in enumerate(points):
        near = [value for _, value in points[max(0, place - side) : place + side + 1] if value is not None]
        found.append((x, None if y is None else sum(near) / len(near)))
    return found
