"""A plot, its parts, and the kind that most pages show, lines with bands: a pure function from numbers to a `Plot`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from populora_core.report import svg
from populora_core.report.palette import Style
from populora_core.report.series import Points
from populora_core.report.text import Format, number

GENERATION = "generation"
MOST_ROWS = 100  # of the table behind a plot; a longer run shows every second generation, or fewer
MOST_LABELS, LONGEST_LABEL = 5, 18  # lines that are named where they end, and letters of such a name


@dataclass(frozen=True, slots=True)
class LegendKey:
    """One entry of a legend: a sample of the mark, its name and what to say beside it."""

    sample: Markup
    label: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class PlotTable:
    """The numbers behind a drawing.

    Attributes:
        rows: of each the place along the x axis, in the drawing's units, None where it has none; and its cells.
    """

    header: tuple[str, ...]
    rows: Sequence[tuple[float | None, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing with the words round it.

    Attributes:
        says: one sentence: what it shows and how to read it.
        keys: a legend, where the drawing does not name its parts itself.
    """

    title: str
    says: str
    drawing: Markup
    keys: tuple[LegendKey, ...] = ()
    table: PlotTable | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """A line over generations.

    Attributes:
        points: (generation, value); None breaks the line.
        bands: (generation, lower, upper), in pieces that are not joined.
        smooth: the points without their noise; none where there are few.
    """

    label: str
    style: Style
    points: Points
    bands: tuple[Sequence[tuple[float, float, float]], ...] = ()
    smooth: Points = ()

    @property
    def newest(self) -> float | None:
        return next((y for _, y in reversed(self.points) if y is not None), None)


def line_plot(
    title: str,
    says: str,
    unit: str,
    series: Sequence[Series],
    form: Format = number,
    zero: bool = True,
    along: str = GENERATION,
    rules: Sequence[tuple[float, str]] = (),
    newest: bool = True,
) -> Plot | None:
    """Lines over generations, or what else `along` names; None where no series has a value.

    Few lines are named where they end, many in a legend.

    Args:
        unit: the label of the y axis.
        zero: let the y axis reach zero.
        rules: (generation, text) of what happened to all of them.
        newest: whether a line's last value stands beside its name.
    """
    drawn = [item for item in series if item.newest is not None]
    if not drawn:
        return None
    ends = [
        (item.newest or 0.0, item.label, form(item.newest or 0.0) if newest else "", item.style)
        for item in drawn
    ]
    direct = len(drawn) <= MOST_LABELS and max(len(item.label) for item in drawn) <= LONGEST_LABEL
    right = 22 + svg.LETTER * max(len(text) for _, *both, _ in ends for text in both) if direct else svg.RIGHT
    xs = [x for item in drawn for x, _ in item.points]
    ys = [y for item in drawn for _, y in item.points if y is not None]
    edges = [edge for item in drawn for piece in item.bands for _, *both in piece for edge in both]
    area = svg.frame((min(xs), max(xs)), svg.value_range(ys + edges, zero), right=right)
    parts = [svg.axes(area, along, unit, form), *(svg.rule(area, *what) for what in rules)]
    for place, item in enumerate(drawn):
        marks = [svg.band(area, piece, item.style.colour) for piece in item.bands if len(piece) > 1]
        marks.append(svg.polyline(area, item.points, item.style, smooth=bool(item.smooth)))
        if item.smooth:
            marks.append(svg.stroke(area, item.smooth, item.style))
        parts.append(svg.element("g", svg.joined(marks), data_series=str(place)))
    keys: tuple[LegendKey, ...] = ()
    if direct:
        parts += svg.end_labels(area, ends)
    else:
        keys = tuple(LegendKey(svg.swatch(style), name, value) for _, name, value, style in ends)
    drawing = svg.drawing(f"{title}. {says}", parts)
    return Plot(title, says, drawing, keys, _table(area, (along, unit), drawn, form))


def _table(area: svg.Frame, axes: tuple[str, str], drawn: Sequence[Series], form: Format) -> PlotTable:
    """The table beside a plot: each line's value at each x, newest first, with its band."""
    known = [{x: y for x, y in item.points if y is not None} for item in drawn]
    bands = [{x: (low, high) for piece in item.bands for x, low, high in piece} for item in drawn]

    def cell(place: int, x: float) -> str:
        at = x if axes[0] == GENERATION else _near(known[place], x)
        if at not in known[place]:
            return ""
        between = bands[place].get(at)
        return form(known[place][at]) + (f" ({form(between[0])} to {form(between[1])})" if between else "")

    xs = sorted(set().union(*known))
    shown = xs[::-1][:: max(1, math.ceil(len(xs) / MOST_ROWS))][::-1]
    return PlotTable(
        (axes[0], *(item.label or axes[1] for item in drawn)),
        [(area.x(x), (number(x), *(cell(place, x) for place in range(len(drawn))))) for x in shown],
    )


def _near(known: Mapping[float, float], x: float) -> float:
    """The x of a series to tell about at x: the nearest, or x itself where the series ended before.

    Series over what a run has spent share no x, unlike those over generations.
    """
    nearest = min(known, key=lambda own: abs(own - x))
    apart = (max(known) - min(known)) / max(1, len(known) - 1)
    return nearest if abs(nearest - x) <= apart / 2 else x
