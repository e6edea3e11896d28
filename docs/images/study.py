"""Draws `study.svg`, the four panels of README, from the summaries of the first study.

python docs/images/study.py
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from markupsafe import Markup

from populora_core.report import svg
from populora_core.report.palette import GREY, Style, variables
from populora_core.report.palette import LINES as STYLES
from populora_core.report.text import Format, number, percent
from populora_core.study.budget import Basis, common_budget, spent, window
from populora_core.study.summary import ALL, HELD_OUT, Summary
from populora_core.study.verdicts import Results, read_results

STUDY = Path(__file__).parents[2] / "bench" / "results" / "study-1"
GAP = 40.0  # between panels, for a panel's title
MILLION = 1e6
CLOSE = 24.0  # a line's name goes below it where another line ends so little above
NAME = 125.0  # a name keeps clear of its line over that much, which is a little more than it is wide
SCORED = 6
LOOK = (
    f"svg {{ {variables()} }}"
    + """
text { font: 12px system-ui, sans-serif; fill: #3d444d } .title { font-size: 14px; font-weight: 600 }
.grid { stroke: #e4e8ec } .zero { stroke: #8c959f }
"""
)
Line = list[tuple[float, float]]


def mean_line(runs: list[Summary], series: list[dict[int, float]], budget: float) -> Line:
    """(millions of tokens, mean over seeds) of each generation that every seed reached within the budget."""
    paid = [spent(run, Basis.TOTAL) for run in runs]
    shared = set.intersection(*(set(own) & set(cost) for own, cost in zip(series, paid, strict=True)))
    line = [(fmean(cost[at] for cost in paid), fmean(own[at] for own in series)) for at in sorted(shared)]
    return [(tokens / MILLION, value) for tokens, value in line if tokens <= budget * (1 + 1e-9)]


def so_far(series: dict[int, float]) -> dict[int, float]:
    return dict(zip(sorted(series), accumulate(series[at] for at in sorted(series)), strict=True))


def held_out(runs: list[Summary], budget: float) -> Line:
    """The mean score of those that solve, at six points of the budget, on lines between the evaluations."""
    points = [budget * step / SCORED for step in range(SCORED + 1)]
    parts = [part for part in runs[0].parts(HELD_OUT) if part.startswith(("student", "solo"))]
    scores = {
        point: [window(run, Basis.TOTAL, point).held_out(part) for run in runs for part in parts]
        for point in points
    }
    return [
        (point / MILLION, fmean(score for score in own if score is not None)) for point, own in scores.items()
    ]


def panel(title: str, unit: str, lines: dict[str, Line], styles: dict[str, Style], form: Format) -> Markup:
    """One drawing: labelled lines under a title."""
    xs = [x for line in lines.values() for x, _ in line]
    ys = [y for line in lines.values() for _, y in line]
    area = svg.frame((0.0, max(xs)), svg.value_range(ys, zero=False))
    parts = [svg.axes(area, "tokens of all adapters, millions", unit, form)]
    ends = {label: area.y(line[-1][1]) for label, line in lines.items()}
    for label, line in lines.items():
        parts.append(svg.polyline(area, [*line], styles[label]))
        right = area.x(line[-1][0])
        beside = [area.y(y) for x, y in line if area.x(x) >= right - NAME]
        crowded = any(0 < ends[label] - other < CLOSE for other in ends.values())
        parts.append(
            svg.element(
                "text",
                label,
                x=right - 6,
                y=max(beside) + 17 if crowded else min(beside) - 8,
                text_anchor="end",
                style=f"fill:{styles[label].colour}",
            )
        )
    return svg.element("text", title, class_="title", x=svg.LEFT, y=-6.0) + svg.joined(parts)


def draw(results: Results) -> Markup:
    """The whole picture: two rows of two panels."""
    arms = {"population": results.of(results.population), "single agent": results.of(results.solo)}
    styles = {"population": STYLES[0], "single agent": STYLES[1], "untrained base": Style(GREY, "2 3")}
    budget = common_budget([run for runs in arms.values() for run in runs], Basis.TOTAL)

    def lines(values: Callable[[Summary], dict[int, float]]) -> dict[str, Line]:
        return {name: mean_line(runs, [values(run) for run in runs], budget) for name, runs in arms.items()}

    scores = {name: held_out(runs, budget) for name, runs in arms.items()}
    base = scores["population"][0][1]
    panels = [
        panel(
            "How varied its answers are",
            "entropy, nats per token",
            lines(lambda run: run.series("entropy", "student")),
            styles,
            number,
        ),
        panel(
            "Kinds of problems seen so far",
            "cells",
            lines(lambda run: so_far(run.series("new_cells", ALL))),
            styles,
            number,
        ),
        panel(
            "How much of its own problems it solves",
            "attempts correct",
            lines(lambda run: run.series("solve_rate", ALL)),
            styles,
            percent,
        ),
        panel(
            "Held-out problems solved",
            "",
            scores | {"untrained base": [(0.0, base), (budget / MILLION, base)]},
            styles,
            percent,
        ),
    ]
    width, height = svg.WIDTH, svg.HEIGHT + GAP
    placed = [
        svg.element("g", drawn, transform=f"translate({place % 2 * width} {place // 2 * height + GAP - 10})")
        for place, drawn in enumerate(panels)
    ]
    sheet = svg.element("rect", width="100%", height="100%", fill="#fff")
    return svg.element(
        "svg",
        svg.element("style", Markup(LOOK)) + sheet + svg.joined(placed),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {svg.px(2 * width)} {svg.px(2 * height)}",
        role="img",
    )


def write(target: Path) -> None:
    target.write_text(f"{draw(read_results(STUDY))}\n")


if __name__ == "__main__":
    write(Path(__file__).with_suffix(".svg"))
