"""Exact tests on one value a seed: permutation, sign flips, runs of signs, Holm's correction. Pure functions.

Seeds are exchangeable under the null, so every p value is a share of all rearrangements; nothing is assumed of
how values are distributed. With n seeds in each of two groups the smallest p is 1 / C(2n, n): 1/924 for six, 1/20
for three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from populora_core.support.arrays import Array

CONFIDENCE = 0.95
_EQUAL = 1e-12  # relative: rearrangements that differ by rounding alone are equal


@dataclass(frozen=True, slots=True)
class Test:
    """One test with its effect.

    Attributes:
        value: the effect in its own unit.
        low, high: its 95 % interval; infinite where there are too few seeds for one.
        effect: the effect over the spread of seeds (Hedges' g); None without a spread.
        p: of the null hypothesis that there is no effect, against a positive one.
    """

    value: float
    low: float
    high: float
    effect: float | None
    p: float

    __test__ = False  # its name is no business of pytest's


def two_samples(first: ArrayLike, second: ArrayLike) -> Test:
    """Test whether `first` lies above `second`: the exact permutation test of the difference of means.

    Moving S from the first group and T, as many, from the second into each other's place lowers the difference
    exactly where mean(S) - mean(T) is above the shift that is tested. So the sorted differences of such means
    give the p value of every shift, and with them the interval (Tritchler 1984, Journal of the American
    Statistical Association 79, 200-207).

    Raises:
        ValueError: an empty group, or a value that is not finite.
    """
    x, y = _finite(first), _finite(second)
    sizes = range(1, min(len(x), len(y)) + 1)
    moved = [np.subtract.outer(_subset_means(x, size), _subset_means(y, size)).ravel() for size in sizes]
    return _test(x.mean() - y.mean(), np.concatenate(moved), _hedges(x, y))


def one_sample(values: ArrayLike) -> Test:
    """Test whether the values lie above 0: the exact test by sign flips, with the interval that it gives.

    The mean of those values whose signs are flipped takes the place of the differences in `two_samples`; the
    distribution is assumed symmetric.

    Raises:
        ValueError: no value, or one that is not finite.
    """
    x = _finite(values)
    moved = [_subset_means(x, size) for size in range(1, len(x) + 1)]
    spread = float(x.std(ddof=1)) if len(x) > 1 else 0.0
    return _test(x.mean(), np.concatenate(moved), x.mean() / spread if spread > 0 else None)


def equivalence(test: Callable[..., Test], margin: float, *groups: ArrayLike) -> float:
    """The p of an effect that is below `margin` either way: the larger of two one-sided tests'.

    At p up to .05 the 90 % interval lies within the margins (Schuirmann 1987, Journal of Pharmacokinetics and
    Biopharmaceutics 15, 657-680).

    Args:
        test: `one_sample`, or `two_samples`.
        groups: what it takes.
    """
    first, *others = map(_finite, groups)
    above = test(margin + first, *others)
    below = test(margin - first, *(-other for other in others))
    return max(above.p, below.p)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p values, in the order given: reject where at most alpha."""
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


def sign_changes(series: ArrayLike) -> NDArray[np.int64]:
    """Count how often a series crosses 0; 0 itself counts as above, with what rounding makes of it.

    Args:
        series: shape (..., steps).

    Returns:
        Shape (...).
    """
    values = np.asarray(series, np.float64)
    above = values >= -_EQUAL
    return (above[..., 1:] != above[..., :-1]).sum(axis=-1)


def detrended(series: ArrayLike, degree: int) -> Array:
    """The series, shape (..., steps), without their least-squares polynomials over equal steps."""
    values = np.asarray(series, np.float64)
    steps = np.linspace(-1.0, 1.0, values.shape[-1])
    basis, _ = np.linalg.qr(np.polynomial.legendre.legvander(steps, degree))
    return values - (values @ basis) @ basis.T


@dataclass(frozen=True, slots=True)
class Swings:
    """Sign changes of detrended series against the same residuals in a random order.

    Attributes:
        observed: sign changes of each series.
        expected: their mean over shuffles, of each series.
        p: share of shuffles whose changes, over all series, are as few as the observed ones: swings that last
            longer than chance makes them.
    """

    observed: tuple[int, ...]
    expected: tuple[float, ...]
    p: float


def swings(series: Sequence[ArrayLike], degree: int, shuffles: int, rng: np.random.Generator) -> Swings:
    """Test several series together for swings that last (a smooth oscillation changes side seldom, noise often).

    Residuals are shuffled and detrended again, since taking a trend out of noise makes it change side a little
    more often (Freedman and Lane 1983).

    Raises:
        ValueError: a series too short to leave residuals.
    """
    observed, drawn = [], np.zeros((shuffles, len(series)), np.int64)
    for place, values in enumerate(series):
        residuals = detrended(_finite(values), degree)
        if len(residuals) < degree + 3:
            raise ValueError(f"{len(residuals)} values have no swings about a trend of degree {degree}")
        observed.append(int(sign_changes(residuals)))
        shuffled = rng.permuted(np.tile(residuals, (shuffles, 1)), axis=1)
        drawn[:, place] = sign_changes(detrended(shuffled, degree))
    as_few = int((drawn.sum(axis=1) <= sum(observed)).sum())
    return Swings(tuple(observed), tuple(drawn.mean(axis=0).tolist()), (1 + as_few) / (1 + shuffles))


def _test(value: float, moved: Array, effect: float | None) -> Test:
    """The test whose rearrangements, but the observed one, lie at the shifts `moved`."""
    ordered = np.sort(moved)
    count = len(ordered) + 1
    near = _EQUAL * max(1.0, float(np.abs(ordered).max()))
    p = (1 + int((ordered <= near).sum())) / count
    # The smallest shift that is not rejected at half of what the interval leaves out.
    place = math.floor((1.0 - CONFIDENCE) / 2.0 * count + 1e-9)
    low, high = (ordered[place - 1], ordered[-place]) if place else (-math.inf, math.inf)
    return Test(float(value), float(low), float(high), None if effect is None else float(effect), p)


def _subset_means(values: Array, size: int) -> Array:
    """The mean of every subset of so many values."""
    return values[np.asarray(list(combinations(range(len(values)), size)))].mean(axis=1)


def _hedges(x: Array, y: Array) -> float | None:
    """Hedges' g: the difference of means over the pooled standard deviation, corrected for small samples."""
    freedom = len(x) + len(y) - 2
    if freedom < 1:
        return None
    pooled = math.sqrt((((x - x.mean()) ** 2).sum() + ((y - y.mean()) ** 2).sum()) / freedom)
    return (x.mean() - y.mean()) / pooled * (1.0 - 3.0 / (4.0 * freedom - 1.0)) if pooled > 0 else None


def _finite(values: ArrayLike) -> Array:
    array = np.asarray(values, np.float64)
    if not array.size or not np.isfinite(array).all():
        raise ValueError(f"a test needs at least one value, all finite; came {array.tolist()}")
    return array
