"""The plots that a report leads with, each under what it found."""

from __future__ import annotations

import math
from collections.abc import Sequence

from populora_core.benchmarks.metrics import Interval
from populora_core.report import metrics
from populora_core.report.charts import Plot, Series, line_plot
from populora_core.report.figures import Figures
from populora_core.report.learnt import points, way
from populora_core.report.metrics import Metric
from populora_core.report.palette import GREEN, GREY, LINES, Style
from populora_core.report.scored import Scored, Yardstick, scored, yardsticks
from populora_core.report.series import early, one_error, recent
from populora_core.report.text import mean, percent, signed

LEAD = 4  # plots
BASE_STYLE = Style(GREY, "4 4", "diamond")


def lead_plots(figures: Figures) -> list[Plot]:
    """What was measured beside the frozen base first, then what the curriculum did."""
    found = (
        _yardstick(yardsticks(figures.run.directory)),
        _held_out(scored(figures.run.directory)),
        _found(figures, metrics.LEARNABLE, "of the newest problems teach"),
        _found(figures, metrics.LINES_OF_CODE, "statements a program"),
        _found(figures, metrics.PROGRAMS, "different programs a generation"),
        _found(figures, metrics.SOLVE_RATE, "of attempts are correct"),
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
    harder, gain = last.harder(), last.newest.gain()
    problems = way(
        harder, "Problems got easier", "Problems got harder", "Whether problems got harder cannot be told yet"
    )
    solvers = way(gain, "solvers better", "solvers worse", "solvers no better for sure")
    return line_plot(
        f"{problems} ({signed(100 * harder.value, 0)} points for the base), {solvers} ({signed(100 * gain.value, 0)})",
        "The yardstick: solved of the newest problems by the base, which never changes, and by the solvers; "
        "and by the solvers of the first problems. Bands are 95 % intervals.",
        "solved",
        lines,
        percent,
    )


def _held_out(found: Sequence[Scored]) -> Plot | None:
    if not found:
        return None
    last = found[-1]
    gain = last.gain()
    better = way(gain, "better", "worse", "no better for sure")
    return line_plot(
        f"On held-out problems solvers are {better} than the base: {points(gain)}",
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


def _measured(label: str, style: Style, points: Sequence[tuple[float, Interval]]) -> Series:
    band = [(x, score.low, score.high) for x, score in points]
    return Series(label, style, [(x, score.value) for x, score in points], (band,))


def _found(figures: Figures, metric: Metric, words: str) -> Plot | None:
    """A metric of the whole run under where it went, with one standard error where it is known."""
    drawn = metric.points(figures, None)
    errors = metric.errors(figures, None)
    rows = figures["figures_generation"]
    start, now = (_level(metric, list(part)) for part in (early(figures, rows), recent(figures, rows)))
    if start is None or now is None:
        return None
    change = now[0] - start[0]
    noise = 2 * math.hypot(now[1], start[1])
    before, after = metric.form(start[0]), metric.form(now[0])
    went = "up from" if change > noise else "down from" if change < -noise else "as at first:"
    title = f"{after} {words}, {went} {before}" if before != after else f"{after} {words}, as at first"
    says = metric.says + (" The band is one standard error." if errors else "")
    return line_plot(
        title,
        says,
        metric.unit,
        [Series("", LINES[0], drawn, one_error(drawn, errors))],
        metric.form,
        metric.zero,
    )


def _level(metric: Metric, rows: Sequence[dict[str, float]]) -> tuple[float, float] | None:
    """The mean of a metric over some generations and its standard error, 0 where that is not known."""
    known = [row for row in rows if row[metric.key] is not None]
    level = mean(sum(row[metric.key] for row in known), len(known))
    if level is None:
        return None
    errors = [metric.error(row, metric.key) for row in known] if metric.error else []
    return level, math.hypot(*errors) / len(known) if errors else 0.0
