"""The paper's qualitative claims, what would confirm or refute each, and the statistics of one run that they compare.

Thresholds are frozen by the study's page (bench/results/study-1/study.md) before its first reported seed: a change here
after it needs a new study.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from populora_plugins.study.budget import Window
from populora_plugins.study.judgement import Claim, ClaimArm, Condition, Family, Statistic
from populora_plugins.study.summary import ALL, HELD_OUT


def level(measure: str, part: str = ALL) -> Statistic:
    """The mean over the late window."""
    return lambda run: run.mean(measure, part, run.late)


def change(measure: str) -> Statistic:
    """The mean over the late window minus that over the early one."""

    def statistic(run: Window) -> float | None:
        late, early = run.mean(measure, ALL, run.late), run.mean(measure, ALL, run.early)
        return None if late is None or early is None else late - early

    return statistic


def new_cells(run: Window) -> float | None:
    """New cells for every hundred proposals of the late window."""
    proposals = run.total("proposals", ALL, run.late)
    return 100.0 * run.total("new_cells", ALL, run.late) / proposals if proposals else None


def length(run: Window) -> float | None:
    """Tokens of a completion: proposals and attempts counting alike."""
    both = [run.mean(measure, ALL, run.late) for measure in ("proposal_length", "attempt_length")]
    return None if None in both else sum(filter(None, both)) / 2


def held_out(of: Callable[[Sequence[float]], float], measure: str = HELD_OUT) -> Statistic:
    """The score of those who solve, students or the solo member, at the end of the budget."""

    def statistic(run: Window) -> float | None:
        scores = [run.held_out(part, measure) for part in run.run.solvers(measure)]
        return of([score for score in scores if score is not None]) if scores and None not in scores else None

    return statistic


def trend(measure: str, title: str, unit: str, margin: float) -> Claim:
    """The claim that a measure of problems rises for the population's teachers, and not for the single agent."""
    moved = change(measure)
    return Claim(
        measure,
        f"{title} grows",
        f"{title} rises for the population's teachers and falls or stalls for the single agent.",
        "change from the early to the late window, population minus solo",
        unit,
        moved,
        margin,
        conditions=(
            Condition("rises in the population", ClaimArm.POPULATION, moved, 0.0),
            Condition(
                "does not rise by as much in the single agent", ClaimArm.SOLO, moved, margin, above=False
            ),
        ),
    )


_RATE = level("solve_rate")

CLAIMS: tuple[Claim, ...] = (
    trend("ast_depth", "AST depth", "nodes", 0.25),
    trend("cyclomatic_complexity", "Cyclomatic complexity", "paths", 0.2),
    trend("lines_of_code", "Lines of code", "statements", 0.25),
    trend("variable_count", "Variable count", "names", 0.15),
    Claim(
        "oscillation",
        "The solve rate oscillates",
        "The students' solve rate swings up and down instead of climbing.",
        "sign changes about a quadratic trend, fewer than of the shuffled series; population alone",
        "sign changes",
        lambda run: None,
        1.0,
        oscillation=True,
    ),
    Claim(
        "solo_solves_all",
        "The single agent's solve rate goes to one",
        "The single agent's solve rate climbs towards 100 %, the population's does not.",
        "solve rate in the late window, solo minus population",
        "solve rate",
        _RATE,
        0.05,
        sign=-1,
        conditions=(Condition("the single agent solves at least 90 %", ClaimArm.SOLO, _RATE, 0.9),),
    ),
    Claim(
        "reward",
        "Lower training reward",
        "The population's reward in training is lower than the single agent's.",
        "reward of an attempt in the late window, solo minus population",
        "reward",
        level("student_reward"),
        0.05,
        sign=-1,
    ),
    Claim(
        "coverage",
        "Coverage keeps growing",
        "The population keeps reaching new kinds of problems; the single agent stops early.",
        "new cells for a hundred proposals of the late window, population minus solo",
        "cells",
        new_cells,
        0.5,
    ),
    Claim(
        "entropy",
        "Entropy stays",
        "The single agent's entropy goes to about 0; teachers stay clearly above it.",
        "entropy of the proposer in the late window, population minus solo",
        "nats per token",
        level("entropy", "teacher"),
        0.05,
        conditions=(
            Condition(
                "the single agent's is at most 0.2",
                ClaimArm.SOLO,
                level("entropy", "teacher"),
                0.2,
                above=False,
            ),
        ),
    ),
    Claim(
        "length",
        "Longer responses",
        "Responses become some four times as long as the single agent's.",
        "tokens of a completion in the late window, population minus solo",
        "tokens",
        length,
        2.0,
    ),
    Claim(
        "held_out_mean",
        "The mean member beats the single agent",
        "The population's mean is above the compute-matched single agent on held-out benchmarks.",
        "mean score of the students minus solo's",
        "score",
        held_out(fmean),
        0.01,
    ),
    Claim(
        "held_out_weakest",
        "The weakest member beats the single agent",
        "Even the weakest member is above the single agent in aggregate.",
        "lowest score among the students minus solo's",
        "score",
        held_out(min),
        0.0,
    ),
)

PAPER = Family(
    "claims",
    "What the paper says, and what was measured",
    "A verdict is given where it is the same at equal updates per adapter, at equal trained tokens per adapter "
    "and at equal tokens of all adapters; the row shows the basis on which it holds most narrowly, or all three "
    "where they leave it open. Effects are in the direction that the paper claims, with 95 % intervals over "
    "seeds, exact if the arms differ by a shift. Of the oscillation the interval is the range of the seeds, and p "
    "comes from shuffles: swings slower than noise count, whatever makes them. Only “reproduced” is corrected "
    "for the number of claims.",
    CLAIMS,
)
