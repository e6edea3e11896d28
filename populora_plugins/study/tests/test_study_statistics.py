"""Exact tests: closed forms, brute force, the level under the null."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populora_plugins.study.statistics import detrended, holm, one_sample, sign_changes, swings, two_samples

VALUES = st.lists(st.integers(-50, 50), min_size=2, max_size=4)


def brute_p(x: list[float], y: list[float]) -> float:
    """The permutation p value by trying every way to label the pooled values."""
    pooled = np.asarray(x + y, float)
    places = list(combinations(range(len(pooled)), len(x)))
    found = []
    for chosen in places:
        mask = np.zeros(len(pooled), bool)
        mask[list(chosen)] = True
        found.append(pooled[mask].mean() - pooled[~mask].mean())
    observed = np.mean(x) - np.mean(y)
    return float(np.mean(np.asarray(found) >= observed - 1e-9))


@given(VALUES, VALUES)
@settings(max_examples=60)
def test_two_samples_equals_every_relabelling(x: list[int], y: list[int]) -> None:
    assert two_samples(x, y).p == pytest.approx(brute_p([*map(float, x)], [*map(float, y)]))


@given(VALUES)
@settings(max_examples=40)
def test_one_sample_equals_every_flip_of_signs(x: list[int]) -> None:
    values = np.asarray(x, float)
    flips = [
        np.mean([v if (bits >> place) & 1 else -v for place, v in enumerate(values)])
        for bits in range(2 ** len(values))
    ]
    assert one_sample(x).p == pytest.approx(np.mean(np.asarray(flips) >= values.mean() - 1e-9))


@pytest.mark.parametrize(("seeds", "smallest"), [(6, 1 / 924), (5, 1 / 252), (3, 1 / 20)])
def test_groups_apart_have_the_smallest_p_of_their_sizes(seeds: int, smallest: float) -> None:
    x, y = np.arange(seeds) + 100.0, np.arange(seeds)
    test = two_samples(x, y)
    assert test.p == pytest.approx(smallest)
    assert test.value == 100.0


def test_the_interval_holds_the_shifts_that_the_test_does_not_reject() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(1.0, 1.0, 6), rng.normal(0.0, 1.0, 6)
    test = two_samples(x, y)
    for shift, inside in ((test.low + 1e-6, True), (test.low - 1e-6, False)):
        assert (two_samples(x - shift, y).p > 0.025) is inside
    for shift, inside in ((test.high - 1e-6, True), (test.high + 1e-6, False)):
        assert (two_samples(y, x - shift).p > 0.025) is inside


def test_six_sign_flips_give_the_range_as_interval_and_three_none_of_two_groups() -> None:
    test = one_sample([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert (test.low, test.high, test.p) == (1.0, 6.0, 1 / 64)
    few = two_samples([1.0, 2.0, 3.0], [0.0, 0.5, 0.7])
    assert (few.low, few.high) == (-math.inf, math.inf)


def test_the_effect_is_hedges_g() -> None:
    x, y = [1.0, 2.0, 3.0], [0.0, 1.0, 2.0]
    assert two_samples(x, y).effect == pytest.approx(1.0 * (1 - 3 / 15))
    assert two_samples([1.0, 1.0], [0.0, 0.0]).effect is None


def test_under_the_null_a_test_rejects_no_more_than_its_level() -> None:
    rng = np.random.default_rng(0)
    ps = np.asarray([two_samples(*rng.standard_cauchy((2, 4))).p for _ in range(600)])
    for level in (0.05, 0.1, 0.5):
        assert (ps <= level).mean() <= level + 3 * math.sqrt(level * (1 - level) / len(ps))


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(500):
        test = two_samples(rng.normal(0.7, 1.0, 5), rng.normal(0.0, 1.0, 5))
        covered += test.low <= 0.7 <= test.high
    assert covered / 500 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 500)


def test_holm_is_the_published_example_and_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=15))
def test_holm_never_lowers_a_p_and_never_changes_their_order(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert all(a >= p for a, p in zip(adjusted, ps, strict=True))
    ordered = sorted(range(len(ps)), key=ps.__getitem__)
    assert all(adjusted[a] <= adjusted[b] for a, b in pairwise(ordered))


def test_detrending_takes_a_polynomial_out_and_leaves_what_it_does_not_explain() -> None:
    steps = np.arange(20.0)
    assert np.abs(detrended(3.0 - steps + 0.1 * steps**2, 2)).max() < 1e-9
    assert sign_changes(np.sin(steps)) == 6
    assert sign_changes(np.stack([steps, np.sin(steps)])).tolist() == [0, 6]


def oscillating(rng: np.random.Generator, amplitude: float) -> list[np.ndarray]:
    steps = np.arange(60)
    return [
        0.5 + amplitude * np.sin(2 * np.pi * steps / 15 + rng.uniform(0, 6)) + rng.normal(0, 0.03, 60)
        for _ in range(3)
    ]


def test_swings_that_last_are_found_and_noise_is_not() -> None:
    rng = np.random.default_rng(4)
    found = swings(oscillating(rng, 0.1), 2, 500, rng)
    assert found.p <= 1 / 501 + 1e-12
    assert np.mean(found.observed) < np.mean(found.expected)
    ps = [swings(oscillating(rng, 0.0), 2, 200, rng).p for _ in range(200)]
    assert np.mean(np.asarray(ps) <= 0.05) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_too_few_values_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        one_sample([])
    with pytest.raises(ValueError, match="finite"):
        two_samples([1.0, math.nan], [1.0])
    with pytest.raises(ValueError, match="swings"):
        swings([[1.0, 2.0, 3.0]], 2, 10, np.random.default_rng(0))
