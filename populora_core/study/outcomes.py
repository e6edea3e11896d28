"""What each arm of a study came to where its runs end, beside the base: means, members, votes and problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from populora_core.benchmarks.scores import BASE
from populora_core.report.sections import ReportTable
from populora_core.study.budget import Basis, spent, window
from populora_core.study.frontier import EDGE, SOLVED
from populora_core.study.summary import ALL, HELD_OUT, Summary
from populora_core.study.tables import spread
from populora_core.study.verdicts import Results

Ended = Callable[[Summary], float | None]
"""A figure of a run at its end; None where it has none."""


def members(of: Callable[[Sequence[float]], float], measure: str) -> Ended:
    """Of those who solve, at the last evaluation."""

    def ended(run: Summary) -> float | None:
        series = [run.series(measure, part) for part in run.solvers(measure)]
        return of([own[max(own)] for own in series]) if series else None

    return ended


def together(measure: str) -> Ended:
    """Of all of them together, at the last evaluation."""

    def ended(run: Summary) -> float | None:
        series = run.series(measure, ALL)
        return series[max(series)] if series else None

    return ended


def problems(measure: str) -> Ended:
    """Of new problems, in the last quarter of the run's updates."""

    def ended(run: Summary) -> float | None:
        most = max(spent(run, Basis.UPDATES).values(), default=0.0)
        whole = window(run, Basis.UPDATES, most)
        return whole.mean(measure, ALL, whole.late)

    return ended


def taken_home(run: Summary) -> float | None:
    """The score of the member that a user would choose: the best on the validation half, else the best there is."""
    chosen = together("take_home.levels_2_5")(run)
    return chosen if chosen is not None else members(max, SOLVED)(run) or members(max, HELD_OUT)(run)


OUTCOMES: Mapping[str, Ended] = {
    "levels 2 to 5": members(fmean, SOLVED),
    "edge": members(fmean, EDGE),
    "beyond": members(fmean, f"{HELD_OUT}.beyond"),
    "best member": members(max, SOLVED),
    "weakest member": members(min, SOLVED),
    "taken home": taken_home,
    "vote": together("vote.levels_2_5"),
    "mean@8": members(fmean, "mean_at_8.levels_2_5"),
    "pass@8": together("pass_at_8.levels_2_5"),
    "half solved to level": members(fmean, "frontier"),
    "a tenth solved to level": members(fmean, "frontier_tenth"),
    "tokens of an answer": members(fmean, "held_out_tokens"),
    "level of problems": problems("level"),
    "chance": problems("chance"),
    "chance above a fifth": problems("guessable"),
}
OF_BASE = {
    "levels 2 to 5": SOLVED,
    "edge": EDGE,
    "beyond": f"{HELD_OUT}.beyond",
    "mean@8": "mean_at_8.levels_2_5",
    "half solved to level": "frontier",
    "a tenth solved to level": "frontier_tenth",
    "tokens of an answer": "held_out_tokens",
}
"""What the base, which never changes, has of these."""


def outcomes_table(results: Results) -> ReportTable:
    """One row an arm: the mean over its seeds, the lowest and the highest. No row where nothing is told by level."""
    rows = [{"arm": name} | dict(cells) for name, cells in _rows(results)]
    return ReportTable("Where the runs end", rows, folded=False)


def _rows(results: Results) -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    if not any(run.solvers(SOLVED) for run in results.runs):
        return
    yield BASE, ((title, spread(_base(results, title)[:1])) for title in OUTCOMES)
    for arm in results.arms:
        runs = results.of(arm)
        if runs:
            yield (
                f"{arm} ({len(runs)})",
                ((title, spread(_known(ended, runs))) for title, ended in OUTCOMES.items()),
            )


def _base(results: Results, title: str) -> list[float]:
    """Of every run the same."""
    series = [run.series(OF_BASE[title], BASE) for run in results.runs] if title in OF_BASE else []
    return [own[min(own)] for own in series if own]


def _known(ended: Ended, runs: Sequence[Summary]) -> list[float]:
    return [value for run in runs if (value := ended(run)) is not None]
