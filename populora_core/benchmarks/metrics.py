"""Scores with error bars: pass@k, maj@k, bootstrap intervals over problems, paired comparisons. Pure functions.

A score is an array over problems, each value in [0, 1]; infrastructure never enters one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from populora_core.support.arrays import Array

RESAMPLES = 4000
CONFIDENCE = 0.95
PSEUDO = 2  # pseudo-observations at each end of the scale: Agresti and Coull's "plus four" at 95 %
PAIRED_PSEUDO = 1  # Agresti and Min's choice for paired proportions: half as many


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over problems with its interval, of 95 % unless said."""

    value: float
    low: float
    high: float


def pass_at_k(n: ArrayLike, c: ArrayLike, k: int) -> Array:
    """The unbiased estimate of pass@k (Chen et al. 2021, arXiv:2107.03374, section 2.1), by problem.

    1 - C(n - c, k) / C(n, k), as a product of factors at most 1, so that nothing overflows.

    Args:
        n: completions judged, shape (problems,).
        c: correct ones among them, shape (problems,).

    Raises:
        ValueError: k below 1, fewer than k completions, or more correct ones than completions.
    """
    drawn, correct = np.broadcast_arrays(np.asarray(n, np.int64), np.asarray(c, np.int64))
    if k < 1 or (drawn < k).any() or (correct < 0).any() or (correct > drawn).any():
        raise ValueError(f"pass@{k} needs 1 <= k <= n and 0 <= c <= n; came n {drawn}, c {correct}")
    step = np.arange(k)
    left = np.maximum(drawn[..., None] - correct[..., None] - step, 0)  # 0 once fewer than k are wrong
    return 1.0 - np.prod(left / (drawn[..., None] - step), axis=-1)


def voted(answers: Sequence[Hashable | None]) -> int | None:
    """The place of the answer that a vote gives; None where no one answers.

    The most frequent answer counts; of equally frequent ones, that whose first voter stands higher.

    Args:
        answers: of the voters as they stand, the best first, in a form in which equal answers are equal; None for
            no answer, which casts no vote.
    """
    return next(iter(_leaders(answers)), None)


def maj_at_k(answers: Sequence[str | None], correct: Sequence[bool], k: int) -> float:
    """The chance that the most frequent of k answers by one player is correct, for one problem.

    Consecutive groups of k are averaged; what is left over counts for nothing. No answer casts no vote, ties
    are broken evenly, since none of a player's own answers stands higher, and a group without any answer is wrong.

    Args:
        answers: in the order of sampling, in a form in which equal answers are equal.
        correct: of each answer.

    Raises:
        ValueError: k below 1, or fewer than k answers.
    """
    if k < 1 or len(answers) < k:
        raise ValueError(f"maj@{k} needs at least k answers, came {len(answers)}")
    groups = [range(start, start + k) for start in range(0, len(answers) - k + 1, k)]
    return sum(_majority([answers[i] for i in g], [correct[i] for i in g]) for g in groups) / len(groups)


def _majority(answers: Sequence[str | None], correct: Sequence[bool]) -> float:
    leaders = _leaders(answers)
    if not leaders:
        return 0.0
    right = {answer for answer, good in zip(answers, correct, strict=True) if good}
    return sum(answers[place] in right for place in leaders) / len(leaders)


def _leaders(answers: Sequence[Hashable | None]) -> list[int]:
    """The places at which the most frequent answers come first."""
    votes = Counter(answer for answer in answers if answer is not None)
    most = max(votes.values(), default=0)
    return [answers.index(answer) for answer, count in votes.items() if count == most]


def mean_interval(groups: Sequence[ArrayLike], rng: np.random.Generator) -> Interval:
    """The mean of the groups' means with a percentile bootstrap over the problems of each group.

    A plain bootstrap of 0 right in 30 has no width, and near the ends it covers too rarely. As Agresti and
    Coull (1998) do for proportions, two pseudo-observations at each end of the scale join every group in the
    resampling; the value itself is the plain mean.

    Args:
        groups: the scores of one benchmark each, in [0, 1]; one group is the usual case.

    Raises:
        ValueError: no group, or one without problems.
    """
    return _bootstrap(groups, (0.0, 1.0), PSEUDO, rng)


def paired_interval(
    first: Sequence[ArrayLike],
    second: Sequence[ArrayLike],
    rng: np.random.Generator,
    confidence: float = CONFIDENCE,
) -> Interval:
    """`first` minus `second` on the same problems, in the same order (see `mean_interval`).

    Differences lie in [-1, 1]; one pseudo-observation at each end joins every group (Agresti and Min 2005).
    """
    differences = [
        np.asarray(a, np.float64) - np.asarray(b, np.float64) for a, b in zip(first, second, strict=True)
    ]
    return _bootstrap(differences, (-1.0, 1.0), PAIRED_PSEUDO, rng, confidence)


def _bootstrap(
    groups: Sequence[ArrayLike],
    ends: tuple[float, float],
    pseudo: int,
    rng: np.random.Generator,
    confidence: float = CONFIDENCE,
) -> Interval:
    scores = [np.asarray(group, np.float64) for group in groups]
    if not scores or any(len(group) == 0 for group in scores):
        raise ValueError("an interval needs at least one problem of every benchmark")
    means = np.zeros(RESAMPLES)
    for group in scores:
        # Resampling means drawing how often each distinct value comes, which costs the same for any n.
        values, counts = np.unique(np.concatenate([group, np.repeat(ends, pseudo)]), return_counts=True)
        drawn = rng.multinomial(counts.sum(), counts / counts.sum(), size=RESAMPLES)
        means += drawn @ values / counts.sum()
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means / len(scores), (tail, 1.0 - tail))
    value = float(np.mean([group.mean() for group in scores]))
    return Interval(value, min(float(low), value), max(float(high), value))
