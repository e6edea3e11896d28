"""The kinds of plots: lines with bands, stacked bars, a heat map. Each is a pure function from numbers to a `Plot`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from populora_core.report import svg
from populora_core.report.palette import Style
from populora_core.report.text import Format, number, percent

Points = Sequence[tuple[float, float | None]]
GENERATION = "generation"
CELL_TEXT = 13  # columns of a heat map up to which a number fits into a cell


@dataclass(frozen=True, slots=True)
class LegendKey:
    """One entry of a legend: a sample of the mark, its name and what to say beside it."""

    sample: Markup
    label: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing with the words round it.

    Attributes:
        says: one sentence: what it shows and how to read it.
    """

    title: str
    says: str
    drawing: Markup
    keys: tuple[LegendKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """A line over generations.

    Attributes:
        points: (generation, value); None breaks the line.
        band: (generation, lower, upper), in pieces that are not joined.
        rings: (generation, value, text) of points to point out.
    """

    label: str
    style: Style
    points: Points
    bands: tuple[Sequence[tuple[float, float, float]], ...] = ()
    rings: tuple[tuple[float, float, str], ...] = ()

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
    cut: bool = False,
    along: str = GENERATION,
) -> Plot | None:
    """Lines over generations, or what else `along` names; None where no series has a value.

    Args:
        unit: the label of the y axis.
        zero: let the y axis reach zero.
        cut: let the lines and the inner four fifths of the bands set the range; wider bands end at the frame.
    """
    drawn = [item for item in series if item.newest is not None]
    if not drawn:
        return None
    xs = [x for item in drawn for x, _ in item.points]
    ys = [y for item in drawn for _, y in item.points if y is not None]
    edges = sorted(edge for item in drawn for piece in item.bands for _, *both in piece for edge in both)
    spare = len(edges) // 10 if cut else 0
    area = svg.frame((min(xs), max(xs)), svg.value_range(ys + edges[spare : len(edges) - spare], zero))
    parts = [svg.axes(area, along, unit, form)]
    parts += [
        svg.band(area, piece, item.style.colour) for item in drawn for piece in item.bands if len(piece) > 1
    ]
    parts += [svg.polyline(area, item.points, item.style) for item in drawn]
    values = [(item.label, {x: y for x, y in item.points if y is not None}) for item in drawn]
    texts = []
    for x in sorted(set(xs)):
        at = {label: x if along == GENERATION else _near(known, x) for label, known in values}
        lines = [f"{label}: {form(known[at[label]])}" for label, known in values if at[label] in known]
        texts.append((x, "\n".join([f"{along} {number(x)}", *lines])))
    parts.append(svg.hovers(area, texts))
    parts += [
        svg.ring(area.x(x), area.y(y), item.style.colour, told) for item in drawn for x, y, told in item.rings
    ]
    keys = tuple(LegendKey(svg.swatch(item.style), item.label, form(item.newest or 0.0)) for item in drawn)
    return Plot(title, says, svg.drawing(parts), keys)


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
    shares: bool = False,
) -> Plot | None:
    """Bars over generations, each a pile of parts in the order of `colours`; None where all are empty.

    Args:
        parts_of: generation -> part -> amount.
        shares: draw each bar as shares of its whole.
    """
    present = [part for part in colours if any(parts.get(part) for parts in parts_of.values())]
    if not present:
        return None
    wholes = {x: sum(parts.values()) for x, parts in parts_of.items()}
    heights = {
        x: {part: parts.get(part, 0.0) / ((wholes[x] or 1.0) if shares else 1.0) for part in present}
        for x, parts in parts_of.items()
    }
    high = 1.0 if shares else max(wholes.values()) * 1.05
    area = svg.frame((min(parts_of) - 0.5, max(parts_of) + 0.5), (0.0, high))
    width = (area.x(1.0) - area.x(0.0)) * 0.82
    paths: dict[str, list[str]] = {part: [] for part in present}
    texts = []
    for x, parts in sorted(heights.items()):
        base, lines = 0.0, []
        for part, value in parts.items():
            if value:
                top, left = area.y(base + value), area.x(x) - width / 2
                paths[part].append(
                    f"M{svg.px(left)} {svg.px(top)}h{svg.px(width)}V{svg.px(area.y(base))}h-{svg.px(width)}z"
                )
                lines.append(f"{part}: {form(value)}")
                base += value
        texts.append((float(x), "\n".join([f"generation {x}", *reversed(lines)])))
    drawn = [svg.axes(area, GENERATION, unit, form)]
    thin = "0.6" if width > 3 else "0"
    drawn += [
        svg.element("path", d="".join(paths[part]), fill=colours[part], stroke="#fff", stroke_width=thin)
        for part in present
    ]
    newest = heights[max(heights)]
    keys = tuple(LegendKey(svg.block(colours[part]), part, form(newest[part])) for part in reversed(present))
    return Plot(title, says, svg.drawing([*drawn, svg.hovers(area, texts)]), keys)


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
    """Shares in rows and columns, the darker the larger; None where no cell has a value."""
    known = [cell.value for cell in cells.values() if cell.value is not None]
    if not known:
        return None
    most = max(0.1, math.ceil(max(known) * 10) / 10)
    left, top = 62.0, 30.0
    size = (svg.WIDTH - left - svg.RIGHT) / len(columns)
    deep = min(size, 40.0)
    lean = len(columns) > 6
    top += 14.0 if lean else 0.0
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
            parts.append(_cell(left + place * size, y, size, deep, cell, most, len(columns) <= CELL_TEXT))
    parts += [svg.upright("teacher", 11.0, top + deep * len(rows) / 2), _ramp(height - 16, most)]
    return Plot(title, says, svg.drawing(parts, height))


def _cell(
    x: float, y: float, width: float, height: float, cell: HeatMapCell, most: float, written: bool
) -> Markup:
    share = 0.0 if cell.value is None else cell.value / most
    fill = "#f1f1f1" if cell.value is None else shade(share)
    title = svg.element_title(cell.text)
    square = svg.element("rect", title, x=x + 1, y=y + 1, width=width - 2, height=height - 2, fill=fill)
    if not written or cell.value is None:
        return square
    style = f"fill:{'#fff' if share > 0.55 else '#111'}"
    words = f"{100 * cell.value:.0f}"
    middle = x + width / 2, y + height / 2 + 4
    return square + svg.text(words, *middle, style=style, pointer_events="none")


def shade(share: float) -> str:
    """White to dark blue: one hue, so that lightness alone tells the amount."""
    light, dark = (239, 246, 252), (0, 62, 116)
    return "#" + "".join(
        f"{round(a + (b - a) * min(1.0, max(0.0, share))):02x}" for a, b in zip(light, dark, strict=True)
    )


def _ramp(y: float, most: float) -> Markup:
    steps = [
        svg.element("rect", x=170.0 + index * 10, y=y, width=10, height=8, fill=shade(index / 9))
        for index in range(10)
    ]
    words = [
        svg.text("0 %", 164.0, y + 8, "end"),
        svg.text(f"{percent(most)} solved", 276.0, y + 8, "start"),
    ]
    return svg.joined([*steps, *words])
