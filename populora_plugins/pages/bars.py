"""Stacked bars over generations."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from populora_core.report import svg
from populora_core.report.charts import GENERATION, LegendKey, Plot, PlotTable
from populora_core.report.text import Format, number


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
