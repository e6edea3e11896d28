"""The kinds of plots: lines with bands, stacked bars, a heat map. Each is a pure function from numbers to a `Plot`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from markupsafe import Markup

from populora_core.report import svg
from populora_core.report.palette import Style
from populora_core.report.series import Points
from populora_core.report.text import Format, number, percent

GENERATION = "generation"
CELL_TEXT = 13  # columns of a heat map up to which a number fits into a cell
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


def stacked_plot(
    title: str,
    says: str,
    unit: str,
    parts_of: Mapping[int, Mapping[str, float]],
    colours: Mapping[str, str],
    form: Format = number,
    leave_out: Collection[str] = (),
    shares: bool = False,
) -> Plot | None:
    """Bars over generations, each a pile of parts in the order of `colours`; None where all are empty.

    Args:
        parts_of: generation -> part -> amount.
        shares: draw each part as its share of the whole bar.
        leave_out: parts of the whole that are not drawn.
    """
    present = [
        part
        for part in colours
        if part not in leave_out and any(parts.get(part) for parts in parts_of.values())
    ]
    if not present:
        return None
    wholes = {x: (sum(parts.values()) or 1.0) if shares else 1.0 for x, parts in parts_of.items()}
    heights = {
        x: {part: parts.get(part, 0.0) / wholes[x] for part in present}
        for x, parts in sorted(parts_of.items())
    }
    high = max(sum(parts.values()) for parts in heights.values()) * 1.05
    area = svg.frame((min(parts_of) - 0.5, max(parts_of) + 0.5), (0.0, high))
    width = (area.x(1.0) - area.x(0.0)) * 0.82
    paths: dict[str, list[str]] = {part: [] for part in present}
    for x, parts in heights.items():
        base = 0.0
        for part, value in parts.items():
            if value:
                top, left = area.y(base + value), area.x(x) - width / 2
                paths[part].append(
                    f"M{svg.px(left)} {svg.px(top)}h{svg.px(width)}V{svg.px(area.y(base))}h-{svg.px(width)}z"
                )
                base += value
    drawn = [svg.axes(area, GENERATION, unit, form)]
    drawn += [
        svg.element("path", d="".join(paths[part]), fill=colours[part], data_series=str(place))
        for place, part in enumerate(present)
    ]
    newest = heights[max(heights)]
    keys = tuple(LegendKey(svg.block(colours[part]), part, form(newest[part])) for part in present)
    rows = [
        (area.x(x), (str(x), *(form(value) if value else "" for value in parts.values())))
        for x, parts in heights.items()
    ]
    table = PlotTable((GENERATION, *present), rows)
    return Plot(title, says, svg.drawing(f"{title}. {says}", drawn), keys, table)


@dataclass(frozen=True, slots=True)
class HeatMapCell:
    """One square of a heat map; `value` in [0, 1], None where there is nothing."""

    value: float | None
    text: str


def heat_map(
    title: str,
    says: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[tuple[str, str], HeatMapCell],
) -> Plot | None:
    """Shares in rows and columns: blue above their mean, orange below it; None where no cell has a value."""
    known = [cell.value for cell in cells.values() if cell.value is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    most = max(0.05, *(abs(value - mean) for value in known))
    left, top = 74.0, 30.0
    size = (svg.WIDTH - left - svg.RIGHT) / len(columns)
    deep = min(size, 40.0)
    lean = len(columns) > 6
    top += 20.0 if lean else 0.0
    height = top + deep * len(rows) + 24
    parts = [svg.text("student", (left + svg.WIDTH) / 2, 11.0)]
    for index, column in enumerate(columns):
        x = left + (index + 0.5) * size
        turned = f"rotate(-35 {svg.px(x)} {svg.px(top - 5)})" if lean else None
        parts.append(svg.text(column, x, top - 5, "start" if lean else "middle", transform=turned))
    for index, row in enumerate(rows):
        y = top + index * deep
        parts.append(svg.text(row, left - 6, y + deep / 2 + 4, "end"))
        for place, column in enumerate(columns):
            cell = cells.get((row, column), HeatMapCell(None, f"{row} and {column} never met"))
            share = None if cell.value is None else (cell.value - mean) / most
            parts.append(_cell(left + place * size, y, size, deep, cell, share, len(columns) <= CELL_TEXT))
    parts += [svg.upright("teacher", 11.0, top + deep * len(rows) / 2), _ramp(height - 16, mean, most)]
    met = [
        (None, (row, column, percent(square.value), square.text.partition("\n")[2]))
        for row, column in product(rows, columns)
        if (square := cells.get((row, column))) is not None and square.value is not None
    ]
    table = PlotTable(("teacher", "student", "solved", "attempts and matches"), met)
    return Plot(title, says, svg.drawing(f"{title}. {says}", parts, height), table=table)


def _cell(
    x: float, y: float, width: float, height: float, cell: HeatMapCell, share: float | None, written: bool
) -> Markup:
    fill = "var(--mark)" if share is None else shade(share)
    title = svg.element_title(cell.text)
    square = svg.element("rect", title, x=x + 1, y=y + 1, width=width - 2, height=height - 2, fill=fill)
    if not written or share is None or cell.value is None:
        return square
    style = f"fill:{'#fff' if abs(share) > 0.7 else '#111'}"
    words = f"{100 * cell.value:.0f}"
    middle = x + width / 2, y + height / 2 + 4
    return square + svg.text(words, *middle, style=style, pointer_events="none")


def shade(share: float) -> str:
    """-1 to 1: dark orange through white to dark blue; lightness alone tells how far from the middle."""
    light, dark = (246, 248, 250), (0, 62, 116) if share > 0 else (140, 62, 0)
    far = min(1.0, abs(share))
    return "#" + "".join(f"{round(a + (b - a) * far):02x}" for a, b in zip(light, dark, strict=True))


def _ramp(y: float, mean: float, most: float) -> Markup:
    low, high = max(0.0, mean - most), min(1.0, mean + most)
    shares = [(low + (high - low) * index / 10 - mean) / most for index in range(11)]
    steps = [
        svg.element("rect", x=170.0 + index * 10, y=y, width=10, height=8, fill=shade(share))
        for index, share in enumerate(shares)
    ]
    words = [
        svg.text(percent(low), 164.0, y + 8, "end"),
        svg.text(f"{percent(high)} solved", 286.0, y + 8, "start"),
    ]
    return svg.joined([*steps, *words])
