"""Draws the pictures of docs/study.md and README from the summaries of the studies.

python docs/images/study.py

`study-1.svg` to `study-3.svg` are sheets of panels. `practice.svg` and its dark twin are README's one panel, whose
letters are 16 pixels on a phone. Colours are literal: many viewers know no variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from markupsafe import Markup

from populora_core.report import svg
from populora_core.report.palette import COLOURS, GREY, Style
from populora_core.report.palette import LINES as STYLES
from populora_core.report.text import Format, number, percent, signed
from populora_plugins.study.budget import Basis, Window, common_budget, spent, windows
from populora_plugins.study.drawings import scores
from populora_plugins.study.frontier import SOLVED
from populora_plugins.study.judgement import ClaimArm, Statistic
from populora_plugins.study.outcomes import validated
from populora_plugins.study.population import average
from populora_plugins.study.statistics import Test, one_sample, two_samples
from populora_plugins.study.summary import ALL, HELD_OUT, Summary
from populora_plugins.study.verdicts import Results, read_results

RESULTS = Path(__file__).parents[2] / "bench" / "results"
GAP = 40.0  # between panels, for a panel's title
MILLION = 1e6
CLOSE = 24.0  # a line's name goes below it where another line ends so little above
NAME_HEIGHT = 14.0
ROW = 36.0  # height of an adapter's row
NAME = 125.0  # a name keeps clear of its line over that much, which is a little more than it is wide
BASE = "untrained base"
LOOK = """
text { font: 12px system-ui, sans-serif; fill: #3d444d } .title { font-size: 14px; font-weight: 600 }
.grid { stroke: #e4e8ec } .zero { stroke: #8c959f }
"""
FIVE_STEPS = f"{HELD_OUT}.level_5"
LETTERS = 18.0  # of README's panel, 400 units wide: 16 pixels where a phone shows it 358 wide
TALL = 390.0
PAPER = {False: ("#ffffff", "#1a1d21", "#d8dde3"), True: ("#0d1117", "#e6e8eb", "#30363d")}
"""Paper, ink and grid of README's panel, light and dark."""
NAMES_AT = {
    "four and four": (0.90, "start"),
    "one and one": (0.78, "start"),
    "frozen teachers": (0.40, "end"),
    "single agent": (0.14, "end"),
    BASE: (0.04, "start"),
}
"""Heights of the names in README's panel, and the ends of the panel at which they stand."""
Line = list[tuple[float, float]]


class Compared(NamedTuple):
    """Arms that one picture compares: their runs and lines, and what they are held to."""

    runs: dict[str, list[Summary]]
    styles: dict[str, Style]
    basis: Basis
    unit: float  # of the basis, one on the axis
    budget: float

    def spent(self, run: Summary) -> dict[int, float]:
        return {at: cost / self.unit for at, cost in spent(run, self.basis).items()}

    def lines(self, values: Callable[[Summary], dict[int, float]]) -> dict[str, Line]:
        """The mean over seeds of each generation that every seed reached within the budget."""
        return {name: self._line(runs, [values(run) for run in runs]) for name, runs in self.runs.items()}

    def _line(self, runs: list[Summary], series: list[dict[int, float]]) -> Line:
        paid = [self.spent(run) for run in runs]
        shared = set.intersection(*(set(own) & set(cost) for own, cost in zip(series, paid, strict=True)))
        line = [(fmean(cost[at] for cost in paid), fmean(own[at] for own in series)) for at in sorted(shared)]
        return [(cost, value) for cost, value in line if cost * self.unit <= self.budget * (1 + 1e-9)]

    def held_out(self, measure: str) -> dict[str, Line]:
        """The mean score of those that solve, on lines between the evaluations, and the base's."""
        lines = {
            name: [
                (point / self.unit, fmean(values))
                for point, values in scores(runs, measure, self.basis, self.budget)
            ]
            for name, runs in self.runs.items()
        }
        base = next(iter(lines.values()))[0][1]
        return lines | {BASE: [(0.0, base), (self.budget / self.unit, base)]}


def compared(results: Results, arms: dict[str, str], basis: Basis, unit: float = 1.0) -> Compared:
    """Arms by what the picture calls them, as far as all of their runs go."""
    runs = {name: results.of(arm) for name, arm in arms.items()}
    styles = dict(zip(runs, STYLES, strict=False)) | {BASE: Style(GREY, "2 3")}
    return Compared(
        runs, styles, basis, unit, common_budget([run for own in runs.values() for run in own], basis)
    )


def panel(
    title: str,
    along: str,
    unit: str,
    lines: dict[str, Line],
    styles: dict[str, Style],
    form: Format,
    named: bool = True,
) -> Markup:
    """One drawing: lines under a title, which bear their names unless another panel of the sheet tells them."""
    xs = [x for line in lines.values() for x, _ in line]
    ys = [y for line in lines.values() for _, y in line]
    room = (max(ys) - min(ys)) / 10 if named else 0.0  # for a name below the lowest line
    area = svg.frame((0.0, max(xs)), svg.value_range([*ys, min(ys) - room], zero=False))
    parts = [svg.axes(area, along, unit, form)]
    named_at: list[float] = []
    ends = {label: area.y(line[-1][1]) for label, line in lines.items()}
    for label, line in lines.items():
        parts.append(svg.polyline(area, [*line], styles[label]))
        if not named:
            continue
        right = area.x(line[-1][0])
        beside = [area.y(y) for x, y in line if area.x(x) >= right - NAME]
        crowded = any(0 < ends[label] - other < CLOSE for other in ends.values())
        above, below = min(beside) - 8, max(beside) + 17
        y = below if crowded or any(abs(above - other) < NAME_HEIGHT for other in named_at) else above
        named_at.append(y)
        parts.append(
            svg.element(
                "text",
                label,
                x=right - 6,
                y=y,
                text_anchor="end",
                style=f"fill:{styles[label].colour}",
            )
        )
    return svg.element("text", title, class_="title", x=svg.LEFT, y=-6.0) + svg.joined(parts)


def sheet(panels: list[Markup]) -> Markup:
    """Two panels a row."""
    width, height = svg.WIDTH, svg.HEIGHT + GAP
    placed = [
        svg.element("g", drawn, transform=f"translate({place % 2 * width} {place // 2 * height + GAP - 10})")
        for place, drawn in enumerate(panels)
    ]
    return picture(svg.joined(placed), 2 * width, -(-len(panels) // 2) * height, LOOK)


def picture(drawn: Markup, width: float, height: float, look: str, dark: bool = False) -> Markup:
    """The whole file: on paper, in literal colours."""
    paper = svg.element("rect", width="100%", height="100%", fill=PAPER[dark][0])
    whole = svg.element(
        "svg",
        svg.element("style", Markup(look)) + paper + drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {svg.px(width)} {svg.px(height)}",
        role="img",
    )
    return Markup(re.sub(r"var\(--(\w+)\)", lambda name: COLOURS[name[1]][dark], whole))


def first(results: Results) -> Markup:
    """The population and the single agent, over the tokens of all adapters."""
    arms = compared(
        results, {"population": results.population, "single agent": results.solo}, Basis.TOTAL, MILLION
    )
    along = "tokens of all adapters, millions"

    def drawn(title: str, unit: str, lines: dict[str, Line], form: Format) -> Markup:
        return panel(title, along, unit, lines, arms.styles, form)

    return sheet(
        [
            drawn(
                "How varied its answers are",
                "entropy, nats per token",
                arms.lines(lambda run: run.series("entropy", "student")),
                number,
            ),
            drawn(
                "Kinds of problems seen so far",
                "cells",
                arms.lines(lambda run: so_far(run.series("new_cells", ALL))),
                number,
            ),
            drawn(
                "How much of its own problems it solves",
                "attempts correct",
                arms.lines(lambda run: run.series("solve_rate", ALL)),
                percent,
            ),
            drawn("Held-out problems solved", "", arms.held_out(HELD_OUT), percent),
        ]
    )


def deciding(results: Results) -> Compared:
    """The arms that decide the second study, over the updates of a member."""
    return compared(
        results,
        {
            "four and four": results.population,
            "frozen teachers": results.compared[ClaimArm.FROZEN],
            "one and one": results.compared[ClaimArm.PAIR],
            "single agent": results.solo,
        },
        Basis.UPDATES,
    )


def practice(results: Results, dark: bool = False) -> Markup:
    """README's panel: programs of five steps, of which the base solves a third."""
    arms = deciding(results)
    lines = arms.held_out(FIVE_STEPS)
    _, ink, grid = PAPER[dark]
    x = svg.Scale(0.0, arms.budget, 66.0, svg.WIDTH - 10)
    area = svg.Frame(x, svg.Scale(0.0, 1.0, TALL - 62, 84.0))
    parts = [
        svg.text(words, 4.0, y, "start", class_="title")
        for words, y in (
            ("Without practice around the frontier,", 20.0),
            ("teachers that learn lift students", 43.0),
        )
    ]
    parts.append(svg.text("held-out programs of five steps solved", 4.0, 68.0, "start"))
    for share in (0.0, 0.5, 1.0):
        y = area.y(share)
        parts += [
            svg.element("line", class_="grid", x1=x.start, x2=x.end, y1=y, y2=y),
            svg.text(percent(share), x.start - 6, y + 6, "end"),
        ]
    parts += [svg.text(number(at), x(at), area.bottom + 24) for at in (0.0, 100.0, 200.0)]
    parts.append(svg.text("updates of an adapter", (x.start + x.end) / 2, area.bottom + 48))
    for name, line in lines.items():
        colour = arms.styles[name].colour
        if name in arms.runs:
            seeds = scores(arms.runs[name], FIVE_STEPS, arms.basis, arms.budget)
            parts.append(svg.band(area, [(at, min(own), max(own)) for at, own in seeds], colour))
        parts.append(svg.stroke(area, [*line], arms.styles[name], width=3))
        height, end = NAMES_AT[name]
        words = f"{name} {percent(line[-1][1])}"
        at = x.end if end == "end" else x.start + 4
        parts.append(svg.text(words, at, area.y(height) + 6, end, style=f"fill:{colour}"))
    look = (
        f"text {{ font: {svg.px(LETTERS)}px system-ui, sans-serif; fill: {ink} }} "
        f".title {{ font-weight: 600 }} .grid {{ stroke: {grid} }}"
    )
    return picture(svg.joined(parts), svg.WIDTH, TALL, look, dark)


def second(results: Results) -> Markup:
    """The arms that decide, over the updates of a member."""
    arms = deciding(results)

    def drawn(title: str, unit: str, lines: dict[str, Line], form: Format, named: bool = False) -> Markup:
        return panel(title, Basis.UPDATES.label, unit, lines, arms.styles, form, named)

    def problems(measure: str) -> dict[str, Line]:
        return arms.lines(lambda run: run.series(measure, ALL))

    return sheet(
        [
            drawn("Held-out programs of 2 to 5 steps solved", "", arms.held_out(SOLVED), percent, named=True),
            drawn("Held-out programs of 5 steps solved", "", arms.held_out(f"{HELD_OUT}.level_5"), percent),
            drawn("Steps of new problems", "statements that matter", problems("level"), number),
            drawn("How often blind guesses are right", "", problems("chance"), percent),
        ]
    )


def so_far(series: dict[int, float]) -> dict[int, float]:
    return dict(zip(sorted(series), accumulate(series[at] for at in sorted(series)), strict=True))


class Taken(NamedTuple):
    """An adapter that a user can take home: its scores over seeds, and how far they lie above the pair's."""

    name: str
    scores: list[float]
    above: Test | None


def validation(window: Window) -> float | None:
    return validated(window.run)


HOMES: Sequence[tuple[str, ClaimArm, Statistic]] = (
    ("4+4: best by validation", ClaimArm.POPULATION, validation),
    ("four 1+1 that never meet: average", ClaimArm.ISLANDS, average),
    ("4+4: average", ClaimArm.POPULATION, average),
    ("4+4 averaged every ten generations", ClaimArm.AVERAGED, average),
)
"""Adapters of arms with four students, by what the picture calls them."""


def paced(runs: Sequence[Summary]) -> list[Summary]:
    """The runs, each with the mean seconds of its arm: its own depend on what else the machine did."""
    mean = fmean(run.origin.seconds - run.origin.evaluation_seconds for run in runs)
    return [replace(run, origin=replace(run.origin, seconds=mean, evaluation_seconds=0.0)) for run in runs]


def taken_home(results: Results, basis: Basis) -> list[Taken]:
    """The student of the pair, and the others, each beside it where both have spent as much."""

    def beside(arm: ClaimArm) -> list[list[Window]]:
        return windows([paced(results.of(results.compared[each])) for each in (arm, ClaimArm.PAIR)], basis)

    found = [Taken("1+1: its student", reached(beside(ClaimArm.POPULATION)[1], average), None)]
    for name, arm, of in HOMES:
        own, pair = beside(arm)
        scores = reached(own, of)
        found.append(Taken(name, scores, two_samples(scores, reached(pair, average))))
    return found


def reached(runs: Sequence[Window], of: Statistic) -> list[float]:
    return [value for run in runs if (value := of(run)) is not None]


def whiskers(title: str, taken: Sequence[Taken], shown: tuple[float, float]) -> Markup:
    """One drawing: a row for each adapter, with its interval and by how much it leads."""
    x = svg.Scale(*shown, 16.0, svg.WIDTH - svg.RIGHT)
    area = svg.Frame(x, svg.Scale(0.0, 1.0, svg.HEIGHT - svg.BOTTOM, svg.TOP))
    alone = x(100 * fmean(taken[0].scores))
    parts = [svg.element("line", class_="zero", x1=alone, x2=alone, y1=svg.TOP, y2=area.bottom)]
    for place, (each, style) in enumerate(zip(taken, STYLES, strict=False)):
        y, test = svg.TOP + ROW * (place + 1) - 8, one_sample(each.scores)
        low, mean, high = (x(100 * value) for value in (test.low, test.value, test.high))
        parts += [
            svg.text(each.name, x.start, y - 12, "start", style=f"fill:{style.colour}"),
            svg.text(led(each.above), x.end, y - 12, "end"),
            svg.element("line", x1=low, x2=high, y1=y, y2=y, stroke=style.colour, stroke_width=2),
            svg.element("path", d=svg.marker(mean, y, style.marker), fill=style.colour),
        ]
    parts.append(svg.x_axis(area, "held-out programs of 2 to 5 steps solved, %"))
    return svg.element("text", title, class_="title", x=x.start, y=-6.0) + svg.joined(parts)


def led(above: Test | None) -> str:
    """The lead over the pair in points, with its interval."""
    if above is None:
        return "above 1+1, points (95 %)"
    low, high = (signed(100 * end, 1).lstrip("+") for end in (above.low, above.high))
    return f"{signed(100 * above.value, 1)} ({low} to {high})"


def third(results: Results) -> Markup:
    """The adapters that a user takes home from four and four, beside the pair's student."""
    panels = {basis: taken_home(results, basis) for basis in (Basis.TOTAL, Basis.SECONDS)}
    tests = [one_sample(each.scores) for taken in panels.values() for each in taken]
    shown = svg.value_range((100 * end for test in tests for end in (test.low, test.high)), zero=False)
    return sheet([whiskers(f"At equal {basis.label}", taken, shown) for basis, taken in panels.items()])


PICTURES: dict[str, tuple[str, Callable[[Results], Markup]]] = {
    "study-1": ("study-1", first),
    "study-2": ("study-2", second),
    "study-3": ("study-3", third),
    "practice": ("study-2", practice),
    "practice-dark": ("study-2", partial(practice, dark=True)),
}
"""Of each picture the study that it is drawn from, and its drawing."""


def write(name: str, target: Path) -> None:
    study, draw = PICTURES[name]
    target.write_text(f"{draw(read_results(RESULTS / study))}\n")


if __name__ == "__main__":
    for name in PICTURES:
        write(name, Path(__file__).with_name(f"{name}.svg"))
