"""Plots of studies alone: claims as a forest, and scores by level, at the end and over training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from markupsafe import Markup

from populora_core.benchmarks.scores import BASE
from populora_core.report import svg
from populora_core.report.charts import Plot, PlotTable, Series, line_plot
from populora_core.report.palette import BLUE, GREEN, GREY, LINES, VERMILLION, Style
from populora_core.report.text import number, percent
from populora_plugins.study.budget import JUDGED, Basis, common_budget, window
from populora_plugins.study.claims import held_out
from populora_plugins.study.frontier import SOLVED
from populora_plugins.study.judgement import ClaimResult, Verdict
from populora_plugins.study.summary import HELD_OUT, Summary
from populora_plugins.study.verdicts import Answered, Results

BADGES = {
    Verdict.REPRODUCED: GREEN,
    Verdict.SUPPORTED: GREEN,
    Verdict.NOT_REPRODUCED: VERMILLION,
    Verdict.REFUTED: VERMILLION,
    Verdict.NO_DIFFERENCE: BLUE,
    Verdict.CANNOT_TELL: GREY,
}
WIDEST = 6.0  # margins to either side; what lies beyond is drawn at the edge
ROW, TITLE = 20.0, 20.0  # height of an interval, and of the claim's name over it
AT_EQUAL = dict(zip(JUDGED, ("updates", "trained", "total"), strict=True))
LEVEL = f"{HELD_OUT}.level_"
SCORED = (
    12  # points of a budget at which a score is drawn, beside its beginning: close to where it was measured
)


def arm_styles(results: Results) -> dict[str, Style]:
    """Arms that are compared have colours; those that describe are grey, distinguished by dash and marker."""
    compared = [arm for arm in results.arms if arm in results.compared.values()]
    others = [arm for arm in results.arms if arm not in compared]
    styles = dict(zip(compared, LINES, strict=False))
    return styles | {arm: replace(LINES[1 + place % 6], colour=GREY) for place, arm in enumerate(others)}


def deciders(results: Results) -> list[str]:
    """The arms that decide, as far as they have runs; every arm where none of them has."""
    compared = [arm for arm in results.arms if arm in results.compared.values() and results.of(arm)]
    return compared or [arm for arm in results.arms if results.of(arm)]


def forest(found: Sequence[Answered]) -> Plot | None:
    """Every claim's effect in units of its margin with its interval, and the verdict; None where nothing was tested.

    A claim without a margin has its effect in words.
    """
    rows = [
        (claim, verdict, [answer for answer in own if answer.test is not None])
        for claim, verdict, own in found
    ]
    rows = [row for row in rows if row[2]]
    if not rows:
        return None
    height = sum(TITLE + ROW * len(own) for _, _, own in rows) + svg.BOTTOM
    x = svg.Scale(-WIDEST, WIDEST, svg.LEFT, svg.WIDTH - svg.RIGHT)
    area = svg.Frame(x, svg.Scale(0.0, 1.0, height - svg.BOTTOM, 0.0))
    parts = [
        svg.element(
            "rect",
            x=x(-1.0),
            y=0.0,
            width=x(1.0) - x(-1.0),
            height=area.bottom,
            fill=GREY,
            fill_opacity="0.15",
        ),
        svg.element("line", class_="zero", x1=x(0.0), x2=x(0.0), y1=0.0, y2=area.bottom),
    ]
    y, table = 0.0, []
    for claim, verdict, own in rows:
        parts += [svg.text(claim.title, 2.0, y + 15, "start"), _badge(verdict, y + 15)]
        y += TITLE
        for answer in own:
            parts += [
                svg.text(AT_EQUAL[answer.basis], svg.LEFT - 6, y + 13, "end"),
                _whisker(x, answer, y + 9),
            ]
            y += ROW
            table.append(
                (None, (claim.title, AT_EQUAL[answer.basis], *_numbers(answer), answer.verdict.value))
            )
    parts.append(svg.x_axis(area, "effect, in margins"))
    says = (
        "Right of zero is the claim's direction. A line is the 95 % interval, drawn up to six margins, with an arrow "
        "where it goes on; a mark without a line has no interval. Shaded is one margin either way."
    )
    header = ("claim", "at equal", "effect", "low", "high", "verdict")
    drawing = svg.drawing(f"Claims. {says}", parts, height)
    return Plot("Effects and verdicts", says, drawing, table=PlotTable(header, table))


def _badge(verdict: Verdict, y: float) -> Markup:
    """The verdict's word at the right edge, behind a mark in its colour."""
    word = verdict.value
    right = svg.WIDTH - svg.RIGHT
    mark = svg.marker(right - svg.LETTER * len(word) - 4, y - 4, "square")
    return svg.element("path", d=mark, fill=BADGES[verdict]) + svg.text(word, right, y, "end")


def _whisker(x: svg.Scale, answer: ClaimResult, y: float) -> Markup:
    test, margin, colour = answer.test, answer.claim.margin, BADGES[answer.verdict]
    assert test is not None
    if not margin:
        value, low, high = _numbers(answer)
        return svg.text(f"{value} ({low} to {high}), no margin", x(-WIDEST), y + 4, "start")
    ends = [end / margin for end in (test.low, test.high) if math.isfinite(end)]
    within = [x(max(-WIDEST, min(WIDEST, end))) for end in (*ends, test.value / margin)]
    line = svg.element(
        "line", x1=min(within), x2=max(within), y1=y, y2=y, stroke=colour, stroke_width=2 if ends else 0
    )
    beyond = {math.copysign(1.0, end) for end in (*ends, test.value / margin) if abs(end) > WIDEST}
    arrows = [svg.element("path", d=_arrow(x(side * WIDEST), y, side), fill=colour) for side in beyond]
    inside = abs(test.value / margin) <= WIDEST
    mark = [svg.element("path", d=svg.marker(within[-1], y, "diamond"), fill=colour)] if inside else []
    return line + svg.joined([*arrows, *mark])


def _arrow(x: float, y: float, side: float) -> str:
    """The path of a head that points out of the plot."""
    back = svg.px(x - side * 8)
    return f"M{svg.px(x + side * 2)} {svg.px(y)}L{back} {svg.px(y - 5)}L{back} {svg.px(y + 5)}z"


def _numbers(answer: ClaimResult) -> tuple[str, str, str]:
    assert answer.test is not None
    value, low, high = (
        number(end) if math.isfinite(end) else "none"
        for end in (answer.test.value, answer.test.low, answer.test.high)
    )
    return value, low, high


def score_over_training(results: Results, arms: Sequence[str]) -> Plot | None:
    """Plot the second study's outcome: levels 2 to 5, from the base on to where all compared arms go."""
    return _over_training(
        results, arms, SOLVED, "Levels 2 to 5", "Bands are from the lowest to the highest seed."
    )


def level_plots(results: Results, arms: Sequence[str]) -> Iterator[Plot | None]:
    """Score by level where the budget of updates ends, then each level over training."""
    levels = sorted(
        {
            int(value.measure.removeprefix(LEVEL))
            for run in results.runs
            for value in run.values
            if value.measure.startswith(LEVEL)
        }
    )
    styles = arm_styles(results)
    if levels and arms:
        yield _by_level(results, arms, levels, styles)
    for level in levels:
        yield _over_training(results, arms, f"{LEVEL}{level}", f"Level {level}")


def _by_level(
    results: Results, arms: Sequence[str], levels: Sequence[int], styles: Mapping[str, Style]
) -> Plot | None:
    budget, lines = _budget(results), []
    for arm in arms:
        ends = {level: _at(results.of(arm), f"{LEVEL}{level}", Basis.UPDATES, budget) for level in levels}
        known = {level: own for level, own in ends.items() if own}
        band = [(float(level), min(own), max(own)) for level, own in known.items()]
        points = [(float(level), fmean(own)) for level, own in known.items()]
        lines.append(Series(arm, styles[arm], points, (band,) if arm in results.compared.values() else ()))
    base = {level: results.runs[0].series(f"{LEVEL}{level}", BASE) for level in levels}
    points = [(float(level), own[min(own)]) for level, own in base.items() if own]
    lines.append(Series(BASE, Style(GREY, "1 3"), points))
    return line_plot(
        "Score by level",
        "Where the compared arms have taken as many updates.",
        "score",
        lines,
        percent,
        along="level",
        newest=False,
    )


def _over_training(
    results: Results, arms: Sequence[str], measure: str, title: str, says: str = ""
) -> Plot | None:
    """The arms' scores beside the base's; None where no one has one."""
    base = next((own[min(own)] for run in results.runs if (own := run.series(measure, BASE))), None)
    if base is None:
        return None
    styles, budget = arm_styles(results), _budget(results)
    lines = [_scores(results, arm, measure, styles[arm], budget) for arm in arms]
    lines.append(Series(BASE, Style(GREY, "1 3"), [(0.0, base), (budget, base)]))
    return line_plot(title, says, "score", lines, percent, zero=False, along=Basis.UPDATES.label)


def _scores(results: Results, arm: str, measure: str, style: Style, budget: float) -> Series:
    """Mean over members and seeds; arms that describe have no band."""
    found = scores(results.of(arm), measure, Basis.UPDATES, budget)
    points = [(at, fmean(values)) for at, values in found]
    band = [(at, min(values), max(values)) for at, values in found]
    return Series(arm, style, points, (band,) if arm in results.compared.values() else ())


def _budget(results: Results) -> float:
    """Updates that every run of the compared arms took, or every run where none of these is there."""
    compared = [run for name in results.compared.values() for run in results.of(name)]
    return common_budget(compared or results.runs, Basis.UPDATES)


def scores(
    runs: Sequence[Summary], measure: str, basis: Basis, budget: float
) -> list[tuple[float, list[float]]]:
    """Points of spent budget with the solvers' mean of each run there, from the base on as far as all runs go."""
    points = [budget * part / SCORED for part in range(SCORED + 1)]
    found = [(point, _at(runs, measure, basis, point)) for point in points]
    return [(point, values) for point, values in found if values]


def _at(runs: Sequence[Summary], measure: str, basis: Basis, point: float) -> list[float]:
    """The solvers' mean of each run, on lines between evaluations; none where a run does not go so far."""
    if common_budget(runs, basis) < point * (1 - 1e-9):
        return []
    values = [held_out(fmean, measure)(window(run, basis, point)) for run in runs]
    return [value for value in values if value is not None]
