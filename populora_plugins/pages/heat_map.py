"""A heat map: shares in rows and columns, each a square whose colour says how far from their mean it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from markupsafe import Markup

from populora_core.report import svg
from populora_core.report.charts import Plot, PlotTable
from populora_core.report.text import percent

CELL_TEXT = 13  # columns up to which a number fits into a cell


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
