"""Claims, and the rules by which runs decide them: the same for every study.

Thresholds are frozen by a study's page before its first reported seed: a change here after it needs another study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

import numpy as np

from populora_core.support import ids
from populora_plugins.study.budget import JUDGED, Basis, Window, windows
from populora_plugins.study.statistics import (
    Test,
    detrended,
    equivalence,
    holm,
    one_sample,
    sign_changes,
    swings,
    two_samples,
)
from populora_plugins.study.summary import ALL, Summary

ALPHA = 0.05
PAIRED_SEEDS = 6  # with five, no change of signs is rare enough for an interval of 95 %
LEAST_SEEDS = 5  # of each arm: with four, no permutation is rare enough once Holm has corrected twelve
DEGREE, SHUFFLES = 2, 2000  # of the trend that oscillation is judged about; draws of its null
LEAST_CHANGES = 4.0  # sides changed about the trend: two whole swings, where a mere bend has at most three

Statistic = Callable[[Window], float | None]


class Verdict(StrEnum):
    """The verdict of a study on a claim."""

    REPRODUCED = "reproduced"  # significant after correction, as large as asked, every condition holds
    NOT_REPRODUCED = "not reproduced"  # the interval excludes the effect, or a condition is refuted
    SUPPORTED = "supported"  # significant after correction, and as large as asked; or equal within the margin
    NO_DIFFERENCE = "no difference"  # smaller than the margin either way
    REFUTED = "refuted"  # the opposite is so
    CANNOT_TELL = "cannot tell"


class Rule(StrEnum):
    """The rule by which a claim is decided."""

    REPRODUCTION = "reproduction"  # of an effect that the paper reports: reproduced, or not
    DIFFERENCE = "difference"  # supported, refuted, or no difference
    EQUIVALENCE = "equivalence"  # that there is no difference: supported, or refuted


class ClaimArm(StrEnum):
    """An arm by what it is in a comparison."""

    POPULATION = "population"
    SOLO = "solo"
    FROZEN = "frozen"  # the population with teachers that never learn
    PAIR = "pair"  # one teacher and one student
    ISLANDS = "islands"  # as many pairs that never meet
    AVERAGED = "averaged"  # the population, whose members become their average now and then
    TEACHERS = "teachers"  # many teachers, one student
    FORMAT = "format"  # a teacher that is paid for any valid problem
    POOL = "pool"  # no teacher: the base's own problems


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one arm alone: its interval over seeds lies at or beyond a bound.

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
    """A statement about the population, alone or beside another arm.

    Attributes:
        paper: what the paper says, or why one should think so.
        measured: what is compared, for the reader.
        statistic: of one run; None where it has no such value.
        sign: +1 where the population's is the larger by the claim, -1 where the other arm's is.
        margin: the smallest effect of interest, in the unit; smaller ones either way are no difference.
        oscillation: judged by the swings of the population's solve rate instead of a difference of the arms.
        first, against: what is compared with what; against None: the first's statistic lies above 0.
        bases: budgets at which it must hold.
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
    against: ClaimArm | None = ClaimArm.SOLO
    bases: tuple[Basis, ...] = JUDGED
    rule: Rule = Rule.REPRODUCTION
    first: ClaimArm = ClaimArm.POPULATION


def score_difference(
    key: str,
    title: str,
    says: str,
    measured: str,
    statistic: Statistic,
    margin: float,
    first: ClaimArm = ClaimArm.POPULATION,
    against: ClaimArm | None = None,
    bases: tuple[Basis, ...] = (Basis.UPDATES,),
) -> Claim:
    """A claim that scores of `first` lie above those of `against`, or above 0, by at least the margin."""
    return Claim(
        key,
        title,
        says,
        measured,
        "score",
        statistic,
        margin,
        first=first,
        against=against,
        bases=bases,
        rule=Rule.DIFFERENCE,
    )


@dataclass(frozen=True, slots=True)
class Family:
    """Claims that are corrected together.

    Attributes:
        says: what a verdict of the family means, for a reader of the report.
    """

    key: str
    title: str
    says: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """A claim at equal budgets of one basis.

    Attributes:
        test: the effect in the claim's direction; None where runs are missing or have no such value.
        p_adjusted: by Holm over the family's claims, on this basis.
        means: of each arm.
        conditions: what each says -> whether it is met.
        p_same: that the effect is below the margin either way, by two one-sided tests; not corrected.
    """

    claim: Claim
    basis: Basis
    verdict: Verdict
    test: Test | None
    p_adjusted: float
    means: Mapping[ClaimArm, float]
    conditions: Mapping[str, bool | None]
    p_same: float = 1.0


Sides = Mapping[ClaimArm, Sequence[Window]]
"""The arms of a comparison at equal budgets; empty where one of them has no run."""


def answers(
    claims: Sequence[Claim], arms: Mapping[ClaimArm, Sequence[Summary]], basis: Basis
) -> list[ClaimResult]:
    """The claims of a family that are answered at equal budgets of one basis, in their order."""
    asked = [claim for claim in claims if basis in claim.bases]
    compared = {(claim.first, claim.against) for claim in asked}
    sides = {pair: _sides(arms, *pair, basis) for pair in compared}
    found = [(claim, sides[claim.first, claim.against]) for claim in asked]
    tests = [_tested(claim, sides) for claim, sides in found]
    unasked = [1.0] * (len(claims) - len(asked))  # one family: the strict reading where bases differ
    adjusted = holm([_rejecting(claim, *test) for claim, test in zip(asked, tests, strict=True)] + unasked)
    return [
        _answer(claim, basis, sides, test, p_same, p)
        for (claim, sides), (test, p_same), p in zip(found, tests, adjusted, strict=False)
    ]


def overall(of_one_claim: Sequence[ClaimResult]) -> Verdict:
    """The verdict on which every basis agrees."""
    found = {answer.verdict for answer in of_one_claim}
    return found.pop() if len(found) == 1 else Verdict.CANNOT_TELL


def decide(
    claim: Claim, test: Test | None, p_adjusted: float, met: Sequence[bool | None], p_same: float = 1.0
) -> Verdict:
    """The rules of the studies' pages."""
    if test is None:
        return Verdict.CANNOT_TELL
    shown = p_adjusted <= ALPHA and test.value >= claim.margin and all(met)
    match claim.rule:
        case Rule.REPRODUCTION if test.high <= claim.margin or False in met:
            return Verdict.NOT_REPRODUCED
        case Rule.REPRODUCTION if shown:
            return Verdict.REPRODUCED
        case Rule.DIFFERENCE if shown:
            return Verdict.SUPPORTED
        case Rule.DIFFERENCE if p_same <= ALPHA:
            return Verdict.NO_DIFFERENCE
        case Rule.DIFFERENCE if test.high < 0.0:
            return Verdict.REFUTED
        case Rule.EQUIVALENCE if p_adjusted <= ALPHA:
            return Verdict.SUPPORTED
        case Rule.EQUIVALENCE if test.low > claim.margin or test.high < -claim.margin:
            return Verdict.REFUTED
    return Verdict.CANNOT_TELL


def _sides(
    arms: Mapping[ClaimArm, Sequence[Summary]], first: ClaimArm, against: ClaimArm | None, basis: Basis
) -> Sides:
    names = [first, *([against] if against else [])]
    groups = [arms.get(name, ()) for name in names]
    return dict(zip(names, windows(groups, basis), strict=True)) if all(groups) else {}


def _tested(claim: Claim, sides: Sides) -> tuple[Test | None, float]:
    """The claim's test, and the p of its equivalence."""
    if claim.oscillation:
        return (_swings(sides) if sides else None), 1.0
    values = [_values(claim.statistic, runs) for runs in sides.values()]
    if not values or not all(values):
        return None, 1.0
    if claim.against is None:
        return one_sample(values[0]), equivalence(one_sample, claim.margin, values[0])
    first, second = values[:: claim.sign]
    return two_samples(first, second), equivalence(two_samples, claim.margin, first, second)


def _rejecting(claim: Claim, test: Test | None, p_same: float) -> float:
    """The p whose smallness supports the claim."""
    if claim.rule is Rule.EQUIVALENCE:
        return p_same
    return test.p if test else 1.0


def _answer(
    claim: Claim, basis: Basis, sides: Sides, test: Test | None, p_same: float, p: float
) -> ClaimResult:
    if claim.oscillation:
        changes = None if test is None else _changes(sides[ClaimArm.POPULATION])
        says = "changes sides at least four times"
        conditions = {says: None if changes is None else changes >= LEAST_CHANGES}
        means = {} if changes is None else {ClaimArm.POPULATION: changes}
    else:
        conditions = {c.says: _met(c, sides) for c in claim.conditions} if sides else {}
        means = {arm: fmean(own) for arm, runs in sides.items() if (own := _values(claim.statistic, runs))}
    enough = bool(sides) and min(map(len, sides.values())) >= LEAST_SEEDS
    verdict = decide(claim, test, p, list(conditions.values()), p_same) if enough else Verdict.CANNOT_TELL
    return ClaimResult(claim, basis, verdict, test, p, means, conditions, p_same)


def _met(condition: Condition, sides: Sides) -> bool | None:
    values = _values(condition.statistic, sides[condition.arm])
    return condition.met(one_sample(values)) if values else None


def _values(statistic: Statistic, runs: Sequence[Window]) -> list[float]:
    """One value a run; nothing at all unless every run has one."""
    found = [value for run in runs if (value := statistic(run)) is not None]
    return found if len(found) == len(runs) else []


def _solve_rates(runs: Sequence[Window]) -> list[list[float]]:
    series = [run.run.series("solve_rate", ALL) for run in runs]
    return [[own[g] for g in run.generations if g in own] for own, run in zip(series, runs, strict=True)]


def _swings(sides: Sides) -> Test | None:
    """Expected minus observed sign changes of each run; p by shuffles."""
    rates = _solve_rates(sides[ClaimArm.POPULATION])
    if min(map(len, rates)) < DEGREE + 3:
        return None
    found = swings(rates, DEGREE, SHUFFLES, ids.generator(0, "oscillation"))
    fewer = one_sample(np.asarray(found.expected) - np.asarray(found.observed))
    return Test(fewer.value, fewer.low, fewer.high, fewer.effect, found.p)


def _changes(runs: Sequence[Window]) -> float:
    """Mean sign changes of the solve rate about its trend."""
    return fmean(sign_changes(detrended(rates, DEGREE)) for rates in _solve_rates(runs))
