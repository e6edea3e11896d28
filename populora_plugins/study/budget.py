"""Equal budgets: runs are compared over windows of what they have spent, never by generation alone.

A solo adapter takes two updates per generation and a population's member one: equal generations are equal in nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

import numpy as np

from populora_plugins.study.summary import ALL, HELD_OUT, Summary

EARLY, LATE = 0.15, 0.25
"""Shares of the common budget: what counts as the beginning and as the end of a run."""


class Basis(StrEnum):
    """The quantity in which two runs are made equal. The value is the measure that counts it."""

    UPDATES = "updates"  # policy-gradient steps an adapter took
    TRAINED = "trained_tokens"  # tokens an adapter was trained on
    TOTAL = "total_tokens"  # tokens that all adapters together read, wrote and were trained on
    SECONDS = "seconds"  # of the clock, on the machine that made the run and beside what ran there

    @property
    def label(self) -> str:
        return {
            "updates": "updates per adapter",
            "trained_tokens": "trained tokens per adapter",
            "total_tokens": "tokens of all adapters",
            "seconds": "seconds by the clock",
        }[self.value]


JUDGED = (Basis.UPDATES, Basis.TRAINED, Basis.TOTAL)
"""Budgets at which a claim is judged where it names none: those that are the same on every machine."""


def spent(run: Summary, basis: Basis) -> dict[int, float]:
    """generation -> spent by its end, since the beginning of the run; of its seconds each takes an equal share."""
    if basis is Basis.SECONDS:
        played = max(run.series(Basis.UPDATES.value, ALL), default=0)
        training = run.origin.seconds - run.origin.evaluation_seconds
        return {at: training * at / played for at in range(1, played + 1)}
    each = sorted(run.series(basis.value, ALL).items())
    return dict(
        zip((generation for generation, _ in each), accumulate(value for _, value in each), strict=True)
    )


def common_budget(runs: Iterable[Summary], basis: Basis) -> float:
    """The largest amount that every run has spent; 0 of no runs."""
    return min((max(spent(run, basis).values(), default=0.0) for run in runs), default=0.0)


@dataclass(frozen=True, slots=True)
class Window:
    """A run as far as a budget goes.

    Attributes:
        generations: those that end within the budget, in order.
        early, late: of these, the ones that end within its first and its last share; never empty.
    """

    run: Summary
    basis: Basis
    budget: float
    generations: tuple[int, ...]
    early: tuple[int, ...]
    late: tuple[int, ...]

    def mean(self, measure: str, part: str, generations: Sequence[int]) -> float | None:
        """Mean over those of the generations that have a value; None if none has."""
        series = self.run.series(measure, part)
        known = [series[generation] for generation in generations if generation in series]
        return sum(known) / len(known) if known else None

    def total(self, measure: str, part: str, generations: Sequence[int]) -> float:
        series = self.run.series(measure, part)
        return sum(series.get(generation, 0.0) for generation in generations)

    def held_out(self, part: str, measure: str = HELD_OUT) -> float | None:
        """A held-out score of one slot at the budget's end, on a line between the evaluations beside it.

        Before any update every member is the base. None where it was not evaluated on both sides.
        """
        paid = {0: 0.0} | spent(self.run, self.basis)
        scores = self.run.series(measure, part)
        base = self.run.series(measure, "base")
        points = [(paid[g], score) for g, score in sorted(scores.items()) if g in paid]
        if base and (not points or points[0][0] > 0.0):
            points.insert(0, (0.0, base[min(base)]))
        if not points or self.budget < points[0][0]:
            return None
        amounts, found = np.array(points).T
        if amounts[-1] < min(self.budget, max(paid.values())):
            return None
        return float(np.interp(self.budget, amounts, found))


def window(run: Summary, basis: Basis, budget: float) -> Window:
    """The part of a run that a budget pays for."""
    paid = spent(run, basis)
    within = tuple(g for g, amount in paid.items() if amount <= budget * (1 + 1e-9)) or tuple(paid)[:1]
    early = tuple(g for g in within if paid[g] <= EARLY * budget) or within[:1]
    late = tuple(g for g in within if paid[g] > (1.0 - LATE) * budget) or within[-1:]
    return Window(run, basis, budget, within, early, late)


def windows(groups: Sequence[Sequence[Summary]], basis: Basis) -> list[list[Window]]:
    """Every run of every group over the budget that all of them have spent."""
    budget = common_budget([run for group in groups for run in group], basis)
    return [[window(run, basis, budget) for run in group] for group in groups]
