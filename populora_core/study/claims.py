"""The paper's qualitative claims, what would confirm or refute each, and the verdicts that runs give.

Thresholds are frozen by the study's page (bench/results/study-1/study.md) before its first reported seed: a change here
after it needs a new study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from populora_core.study.budget import Basis, Window, windows
from populora_core.study.statistics import (
    Test,
    detrended,
    holm,
    one_sample,
    sign_changes,
    swings,
    two_samples,
)
from populora_core.study.summary import ALL, HELD_OUT, Summary
from populora_core.support import ids

ALPHA = 0.05
LEAST_SEEDS = 5  # of each arm: with four, no permutation is rare enough once Holm has corrected twelve
DEGREE, SHUFFLES = 2, 2000  # of the trend that oscillation is judged about; draws of its null
LEAST_CHANGES = 4.0  # sides changed about the trend: two whole swings, where a mere bend has at most three

Statistic = Callable[[Window], float | None]


class Verdict(StrEnum):
    """What a study says of a claim."""

    REPRODUCED = "reproduced"  # significant after correction, as large as asked, every condition holds
    NOT_REPRODUCED = "not reproduced"  # the interval excludes the effect, or a condition is refuted
    CANNOT_TELL = "cannot tell"


class ClaimArm(StrEnum):
    """Which side of the comparison a condition is about."""

    POPULATION = "population"
    SOLO = "solo"


@dataclass(frozen=True, slots=True)
class Condition:
    """What one arm alone must show: its interval over seeds lies at or beyond a bound.

    Attributes:
        above: whether the statistic must be at least `bound`, or at most.
    """

    says: str
    arm: ClaimArm
    statistic: Statistic
    bound: float
    above: bool = True

    def met(self, test: Test) -> bool | None:
        """True where the whole interval is on the right side, False where it is on the other, else None."""
        low, high = (test.low, test.high) if self.above else (-test.high, -test.low)
        bound = self.bound if self.above else -self.bound
        return True if low >= bound else False if high < bound else None


@dataclass(frozen=True, slots=True)
class Claim:
    """A difference between the arms that the paper reports.

    Attributes:
        paper: what the paper says.
        measured: what is compared, for the reader.
        statistic: of one run; None where it has no such value.
        sign: +1 where the population's is the larger by the paper, -1 where solo's is.
        margin: the smallest effect of interest, in the unit.
        oscillation: judged by the swings of the population's solve rate instead of a difference of the arms.
    """

    key: str
    title: str
    paper: str
    measured: str
    unit: str
    statistic: Statistic
    margin: float
    sign: int = 1
    conditions: tuple[Condition, ...] = ()
    oscillation: bool = False


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """A claim at equal budgets of one basis.

    Attributes:
        test: the effect in the paper's direction; None where runs are missing or have no such value.
        p_adjusted: by Holm over the claims, on this basis.
        means: of each arm.
        conditions: what each says -> whether it is met.
    """

    claim: Claim
    basis: Basis
    verdict: Verdict
    test: Test | None
    p_adjusted: float
    means: Mapping[ClaimArm, float]
    conditions: Mapping[str, bool | None]


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


def held_out(of: Callable[[Sequence[float]], float]) -> Statistic:
    """The score of those who solve, students or the solo member, at the end of the budget."""

    def statistic(run: Window) -> float | None:
        slots = [part for part in run.run.parts(HELD_OUT) if part.startswith(("student-", "solo-"))]
        scores = [run.held_out(part) for part in slots]
        return of([score for score in scores if score is not None]) if scores and None not in scores else None

    return statistic


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _trend(measure: str, title: str, unit: str, margin: float) -> Claim:
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
    _trend("ast_depth", "AST depth", "nodes", 0.25),
    _trend("cyclomatic_complexity", "Cyclomatic complexity", "paths", 0.2),
    _trend("lines_of_code", "Lines of code", "statements", 0.25),
    _trend("variable_count", "Variable count", "names", 0.15),
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
        "nats a token",
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
        held_out(_mean),
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


def answers(population: Sequence[Summary], solo: Sequence[Summary], basis: Basis) -> list[ClaimResult]:
    """Every claim at equal budgets of one basis, in the order of `CLAIMS`."""
    if not population or not solo:
        return [ClaimResult(claim, basis, Verdict.CANNOT_TELL, None, 1.0, {}, {}) for claim in CLAIMS]
    sides = dict(zip((ClaimArm.POPULATION, ClaimArm.SOLO), windows([population, solo], basis), strict=True))
    tests = [_swings(sides) if claim.oscillation else _contrast(claim, sides) for claim in CLAIMS]
    adjusted = holm([test.p if test else 1.0 for test in tests])
    enough = min(len(population), len(solo)) >= LEAST_SEEDS
    return [
        _answer(claim, basis, sides, test, p, enough)
        for claim, test, p in zip(CLAIMS, tests, adjusted, strict=True)
    ]


def overall(of_one_claim: Sequence[ClaimResult]) -> Verdict:
    """The verdict on which every basis agrees."""
    found = {answer.verdict for answer in of_one_claim}
    return found.pop() if len(found) == 1 else Verdict.CANNOT_TELL


def decide(claim: Claim, test: Test | None, p_adjusted: float, met: Sequence[bool | None]) -> Verdict:
    """The rule of the study's page."""
    if test is None:
        return Verdict.CANNOT_TELL
    if test.high <= claim.margin or False in met:
        return Verdict.NOT_REPRODUCED
    if p_adjusted <= ALPHA and test.value >= claim.margin and all(met):
        return Verdict.REPRODUCED
    return Verdict.CANNOT_TELL


def _answer(
    claim: Claim,
    basis: Basis,
    sides: Mapping[ClaimArm, Sequence[Window]],
    test: Test | None,
    p: float,
    enough: bool,
) -> ClaimResult:
    if claim.oscillation:
        changes = None if test is None else _changes(sides[ClaimArm.POPULATION])
        conditions = {
            "changes sides at least four times": None if changes is None else changes >= LEAST_CHANGES
        }
        means = {} if changes is None else {ClaimArm.POPULATION: changes}
    else:
        conditions = {c.says: _met(c, sides) for c in claim.conditions}
        means = {arm: _mean(own) for arm, runs in sides.items() if (own := _values(claim.statistic, runs))}
    verdict = decide(claim, test, p, list(conditions.values())) if enough else Verdict.CANNOT_TELL
    return ClaimResult(claim, basis, verdict, test, p, means, conditions)


def _met(condition: Condition, sides: Mapping[ClaimArm, Sequence[Window]]) -> bool | None:
    values = _values(condition.statistic, sides[condition.arm])
    return condition.met(one_sample(values)) if values else None


def _contrast(claim: Claim, sides: Mapping[ClaimArm, Sequence[Window]]) -> Test | None:
    population, solo = (_values(claim.statistic, sides[arm]) for arm in (ClaimArm.POPULATION, ClaimArm.SOLO))
    if not population or not solo:
        return None
    return two_samples(population, solo) if claim.sign > 0 else two_samples(solo, population)


def _values(statistic: Statistic, runs: Sequence[Window]) -> list[float]:
    """One value a run; nothing at all unless every run has one."""
    found = [value for run in runs if (value := statistic(run)) is not None]
    return found if len(found) == len(runs) else []


def _solve_rates(runs: Sequence[Window]) -> list[list[float]]:
    series = [run.run.series("solve_rate", ALL) for run in runs]
    return [[own[g] for g in run.generations if g in own] for own, run in zip(series, runs, strict=True)]


def _swings(sides: Mapping[ClaimArm, Sequence[Window]]) -> Test | None:
    """Expected minus observed sign changes of each run; p by shuffles."""
    rates = _solve_rates(sides[ClaimArm.POPULATION])
    if min(map(len, rates)) < DEGREE + 3:
        return None
    found = swings(rates, DEGREE, SHUFFLES, ids.generator(0, "oscillation"))
    fewer = one_sample(np.asarray(found.expected) - np.asarray(found.observed))
    return Test(fewer.value, fewer.low, fewer.high, fewer.effect, found.p)


def _changes(runs: Sequence[Window]) -> float:
    """Mean sign changes of the solve rate about its trend."""
    return _mean([float(sign_changes(detrended(rates, DEGREE))) for rates in _solve_rates(runs)])
