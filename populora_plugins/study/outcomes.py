"""Outcomes of a study's arms where their runs end, beside the base: means, members, votes and problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from populora_core.benchmarks.scores import BASE
from populora_core.report.page import ReportTable
from populora_plugins.study.budget import Basis, spent, window
from populora_plugins.study.frontier import EDGE, SOLVED
from populora_plugins.study.heldout import best_of
from populora_plugins.study.summary import ALL, HELD_OUT, Summary
from populora_plugins.study.tables import UNKNOWN, difference, spread
from populora_plugins.study.verdicts import Results

LEVELS = "levels_2_5"
Ended = Callable[[Summary], float | None]
"""A figure of a run at its end; None where it has none."""


def members(of: Callable[[Sequence[float]], float], measure: str) -> Ended:
    """A figure, by `of`, over the last scores of those who solve."""

    def ended(run: Summary) -> float | None:
        series = [run.series(measure, part) for part in run.solvers(measure)]
        return of([own[max(own)] for own in series]) if series else None

    return ended


def together(measure: str) -> Ended:
    """The value of all members together, at the last evaluation."""

    def ended(run: Summary) -> float | None:
        series = run.series(measure, ALL)
        return series[max(series)] if series else None

    return ended


def problems(measure: str) -> Ended:
    """The mean over new problems, in the last quarter of the run's updates."""

    def ended(run: Summary) -> float | None:
        most = max(spent(run, Basis.UPDATES).values(), default=0.0)
        whole = window(run, Basis.UPDATES, most)
        return whole.mean(measure, ALL, whole.late)

    return ended


def best_solver(run: Summary) -> tuple[str, float] | None:
    """The slot that scores best at the last evaluation and its score, over levels 2 to 5 where the suite has levels."""
    measure = SOLVED if run.solvers(SOLVED) else HELD_OUT
    series = {part: run.series(measure, part) for part in run.solvers(measure)}
    ends = {part: own[max(own)] for part, own in series.items()}
    best = best_of(ends)
    return None if best is None else (best, ends[best])


def validated(run: Summary) -> float | None:
    """The score of the member that is best on the validation half; None where the last evaluation has no member."""
    chosen, scored = run.series(f"take_home.{LEVELS}", ALL), run.series(f"vote.{LEVELS}", ALL)
    return chosen.get(max(scored)) if scored else None


def taken_home(run: Summary) -> float | None:
    """The score of the member that a user would choose: on the validation half, else the best solver; None of none."""
    chosen, best = validated(run), best_solver(run)
    return chosen if chosen is not None or best is None else best[1]


class Ending(NamedTuple):
    """A column of the table: what it says of a run, and the measure that the base has of it, if any."""

    ended: Ended
    of_base: str | None = None


def _mean(measure: str) -> Ending:
    return Ending(members(fmean, measure), measure)


OUTCOMES: Mapping[str, Ending] = {
    "levels 2 to 5": _mean(SOLVED),
    "edge": _mean(EDGE),
    "beyond": _mean(f"{HELD_OUT}.beyond"),
    "weakest member": Ending(members(min, SOLVED)),
    "taken home": Ending(taken_home),
    "vote": Ending(together(f"vote.{LEVELS}")),
    "mean@8": _mean(f"mean_at_8.{LEVELS}"),
    "pass@8": Ending(together(f"pass_at_8.{LEVELS}")),
    "half solved to level": _mean("frontier"),
    "a tenth solved to level": _mean("frontier_tenth"),
    "tokens of an answer": _mean("held_out_tokens"),
    "level of problems": Ending(problems("level")),
    "chance": Ending(problems("chance")),
    "chance above a fifth": Ending(problems("guessable")),
}


def outcomes_table(results: Results) -> ReportTable:
    """One row an arm: the mean over its seeds, the lowest and the highest, and how far it lies above the population.

    No row where nothing is told by level.
    """
    return ReportTable("Where the runs end", list(_rows(results)), folded=False)


def _rows(results: Results) -> Iterator[dict[str, str]]:
    if not any(run.solvers(SOLVED) for run in results.runs):
        return
    ends, above = _mean(SOLVED).ended, f"levels 2 to 5, above {results.population}"
    population = _known(ends, results.of(results.population))
    cells = {title: spread(_base(results, each.of_base)[:1]) for title, each in OUTCOMES.items()}
    yield {"arm": BASE} | cells | {above: UNKNOWN}
    for arm in results.arms:
        runs = results.of(arm)
        if runs:
            cells = {title: spread(_known(each.ended, runs)) for title, each in OUTCOMES.items()}
            lies = UNKNOWN if arm == results.population else difference(_known(ends, runs), population)
            yield {"arm": f"{arm} ({len(runs)})"} | cells | {above: lies}


def _base(results: Results, measure: str | None) -> list[float]:
    """The base's value, which is the same in every run."""
    series = [run.series(measure, BASE) for run in results.runs] if measure else []
    return [own[min(own)] for own in series if own]


def _known(ended: Ended, runs: Sequence[Summary]) -> list[float]:
    return [value for run in runs if (value := ended(run)) is not None]
