"""A plot of two scores a row with their intervals, joined: what was, and what is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from populora_core.benchmarks.metrics import Interval
from populora_core.report import svg
from populora_core.report.charts import LegendKey, Plot, PlotTable
from populora_core.report.palette import BLUE, GREY, Style
from populora_core.report.text import in_points, percent

ROW = 30.0
MOST_NAMED = 0.5  # of the width, for the names of the rows
BEFORE, AFTER = Style(GREY, "", "diamond"), Style(BLUE, "", "circle")


@dataclass(frozen=True, slots=True)
class Dumbbell:
    """One row: two scores in [0, 1], and their paired difference."""

    label: str
    before: Interval
    after: Interval
    gain: Interval


def dumbbell_plot(title: str, says: str, names: tuple[str, str], rows: Sequence[Dumbbell]) -> Plot | None:
    """Rows from the top down; None without any.

    Args:
        names: of the two scores.
    """
    if not rows:
        return None
    height = ROW * len(rows) + 8 + svg.BOTTOM
    named = 12 + svg.LETTER * max(len(row.label) for row in rows)
    x = svg.Scale(0.0, 100.0, min(named, MOST_NAMED * svg.WIDTH), svg.WIDTH - svg.RIGHT)
    area = svg.Frame(x, svg.Scale(0.0, 1.0, height - svg.BOTTOM, 0.0))
    parts = [svg.x_axis(area, "right, in per cent")]
    for place, row in enumerate(rows):
        parts.append(_row(x, row, ROW * place + ROW / 2 + 4))
    keys = tuple(
        LegendKey(svg.swatch(style), name) for name, style in zip(names, (BEFORE, AFTER), strict=True)
    )
    header = ("", *(f"{name}, {what}" for name in names for what in ("score", "95 % interval")), "difference")
    drawing = svg.drawing(f"{title}. {says}", parts, height)
    return Plot(title, says, drawing, keys, PlotTable(header, [(None, _cells(row)) for row in rows]))


def _row(x: svg.Scale, row: Dumbbell, y: float) -> Markup:
    marks = [
        svg.text(row.label, x.start - 8, y + 4, "end"),
        svg.element(
            "line", class_="zero", x1=x(100 * row.before.value), x2=x(100 * row.after.value), y1=y, y2=y
        ),
    ]
    for score, style, shift in ((row.before, BEFORE, 4.0), (row.after, AFTER, -4.0)):
        ends = {"x1": x(100 * score.low), "x2": x(100 * score.high), "y1": y + shift, "y2": y + shift}
        marks.append(svg.element("line", **ends, stroke=style.colour, stroke_width=2))
        mark = svg.marker(x(100 * score.value), y + shift, style.marker)
        marks.append(svg.element("path", d=mark, fill=style.colour))
    return svg.joined(marks)


def _cells(row: Dumbbell) -> list[str]:
    cells = [row.label]
    for score in (row.before, row.after):
        cells += [percent(score.value), f"{percent(score.low)} to {percent(score.high)}"]
    return [*cells, in_points(row.gain.value)]
