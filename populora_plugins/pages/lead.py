"""The plots that a report leads with, each under its finding."""

from __future__ import annotations

from collections.abc import Sequence

from populora_core.benchmarks.metrics import Interval
from populora_core.report import metrics
from populora_core.report.charts import Plot, Series, line_plot
from populora_core.report.figures import Figures
from populora_core.report.learnt import held_out_claim, yardstick_claim
from populora_core.report.metrics import Metric
from populora_core.report.palette import GREEN, GREY, LINES, Style
from populora_core.report.scored import Scored, Yardstick, scored, yardsticks
from populora_core.report.series import span, went
from populora_core.report.text import percent
from populora_plugins.pages.dumbbell import Dumbbell, dumbbell_plot
from populora_plugins.pages.lines import metric_line, reading

LEAD = 4  # plots
BASE_STYLE = Style(GREY, "4 4", "diamond")


def lead_plots(figures: Figures) -> list[Plot]:
    """The leading plots: first measurements beside the frozen base, then figures of the curriculum."""
    found = (
        _yardstick(yardsticks(figures.run.directory)),
        *_held_out(scored(figures.run.directory)),
        _found(figures, metrics.LEARNABLE, "of the newest problems teach"),
        _found(figures, metrics.LINES_OF_CODE, "statements per program"),
        _found(figures, metrics.PROGRAMS, "different programs per generation"),
        _found(figures, metrics.SOLVE_RATE, "of attempts at teachers' problems are correct"),
    )
    return [plot for plot in found if plot is not None][:LEAD]


def _yardstick(found: Sequence[Yardstick]) -> Plot | None:
    """Base and solvers on the newest problems: a falling base says harder problems, a gap above it better solvers."""
    if not found:
        return None
    last = found[-1]
    first = [(1.0, last.first.base)]
    lines = [
        _measured(
            "base, newest", BASE_STYLE, [*first, *((item.generation, item.newest.base) for item in found)]
        ),
        _measured("solvers, newest", LINES[0], [(item.generation, item.newest.solvers) for item in found]),
        _measured(
            "solvers, first",
            Style(GREEN, "2 3", "triangle"),
            [(item.generation, item.first.solvers) for item in found],
        ),
    ]
    return line_plot(
        yardstick_claim(last),
        "The yardstick: solved of the newest problems by the base, which never changes, and by the solvers; "
        "and by the solvers of the first problems. Bands are 95 % intervals.",
        "solved",
        lines,
        percent,
    )


def _held_out(found: Sequence[Scored]) -> list[Plot | None]:
    """The last score by level, or by what else the suite has strata of; and the course of the whole."""
    return [strata_plot(found[-1]), _course(found)] if found else []


def strata_plot(item: Scored) -> Plot | None:
    """Base and solvers at each stratum; None where the suite has none."""
    rows = [
        Dumbbell(f"{name} ({of.problems})", of.base, of.solvers, of.gain)
        for name, of in item.by_stratum.items()
    ]
    name = item.first_hard_level()
    title = f"{item.suite}: score by stratum"
    if name is not None:
        of = item.by_stratum[name]
        title = f"{name.capitalize()}: from {percent(of.base.value)} to {percent(of.solvers.value)} solved"
    says = (
        f"Score on {item.suite} after generation {item.generation}, with the number of problems: grey is the base, "
        "blue the mean of the solvers, lines are 95 % intervals."
    )
    if name is not None:
        says += " The title names the first level that the base solves less than half of."
    return dumbbell_plot(title, says, ("base", "solvers"), rows)


def _course(found: Sequence[Scored]) -> Plot:
    last = found[-1]
    drawn = line_plot(
        held_out_claim(last),
        f"Score on {last.suite}, which no one trains on: mean of the solvers, and the base. Bands are 95 % intervals "
        "of each; the difference is paired, so it is surer than they look.",
        "score",
        [
            _measured("base", BASE_STYLE, [(item.generation, item.base) for item in found]),
            _measured("solvers", LINES[0], [(item.generation, item.solvers) for item in found]),
        ],
        percent,
        zero=False,
    )
    assert drawn is not None, "every score has a value"
    return drawn


def _measured(label: str, style: Style, points: Sequence[tuple[float, Interval]]) -> Series:
    band = [(x, score.low, score.high) for x, score in points]
    return Series(label, style, [(x, score.value) for x, score in points], (band,))


def _found(figures: Figures, metric: Metric, words: str) -> Plot | None:
    """A metric of the whole run under where it went, with one standard error where it is known."""
    line = metric_line(metric, figures, None, "", LINES[0])
    start, now = metric.ends(figures, None)
    if start is None or now is None:
        return None
    title = f"{metric.form(now.mean)} {words}, {went(metric.form, start, now)}"
    says = f"{reading(metric, [line], 'The band is')} The title compares the first {span(figures)} with the last."
    return line_plot(title, says, metric.unit, [line], metric.form, metric.zero)
