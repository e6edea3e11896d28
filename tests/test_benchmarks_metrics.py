"""Metrics: estimates equal their closed forms, intervals cover at their stated rate."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.benchmarks.metrics import maj_at_k, mean_interval, paired_interval, pass_at_k, voted

COUNTS = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


@given(COUNTS)
def test_pass_at_k_is_its_closed_form(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    assert pass_at_k([n], [c], k)[0] == pytest.approx(1 - comb(n - c, k) / comb(n, k), abs=1e-12)


def test_pass_at_k_of_many_completions_stays_a_number() -> None:
    assert pass_at_k([100_000], [1], 1000)[0] == pytest.approx(0.01)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 5, 1), (4, -1, 1), (4, 1, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k}"):
        pass_at_k([n], [c], k)


@pytest.mark.parametrize(
    ("answers", "correct", "k", "expected"),
    [
        (["7", "7", "8"], [True, True, False], 3, 1.0),
        (["8", "7", "8"], [False, True, False], 3, 0.0),
        (["7", "8"], [True, False], 2, 0.5),  # a tie is broken evenly
        ([None, None, "7"], [False, False, True], 3, 1.0),  # no answer, no vote
        ([None, None], [False, False], 2, 0.0),
        (["7", "8", "8", "8"], [True, False, False, False], 1, 0.25),
        (["7", "7", "8", "8"], [True, True, False, False], 2, 0.5),
    ],
)
def test_the_most_frequent_answer_decides(
    answers: list[str | None], correct: list[bool], k: int, expected: float
) -> None:
    assert maj_at_k(answers, correct, k) == expected


@pytest.mark.parametrize(
    ("answers", "place"),
    [
        (["a", "b", "b"], 1),
        (["a", "b", "b", "a"], 0),
        ([None, "b", "a"], 1),
        ([None, None, "a"], 2),
        ([None, None], None),
        ([], None),
    ],
)
def test_a_vote_gives_the_most_frequent_answer_and_of_equals_that_of_who_stands_higher(
    answers: list[str | None], place: int | None
) -> None:
    assert voted(answers) == place


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9))
def test_a_vote_without_a_tie_is_the_majority_of_one_players_answers(answers: list[str | None]) -> None:
    counts = sorted((answers.count(answer) for answer in {*answers} - {None}), reverse=True)
    tied = len(counts) > 1 and counts[0] == counts[1]
    place = voted(answers)
    for right in "abc":
        share = maj_at_k(answers, [answer == right for answer in answers], len(answers))
        given = place is not None and answers[place] == right
        assert share == float(given) or (tied and share in (0.0, 1 / 2, 1 / 3))


@pytest.mark.parametrize(("problems", "rate"), [(30, 0.1), (30, 0.5), (120, 0.03), (300, 0.35)])
def test_an_interval_covers_the_true_rate_95_times_in_100(problems: int, rate: float) -> None:
    rng = np.random.default_rng(1)
    found = [mean_interval([rng.random(problems) < rate], rng) for _ in range(600)]
    covered = np.mean([interval.low <= rate <= interval.high for interval in found])
    assert covered >= 0.923, "three standard errors of the simulation below 0.95"


def test_an_interval_is_no_wider_than_it_must_be() -> None:
    rng = np.random.default_rng(2)
    found = mean_interval([rng.random(400) < 0.4], rng)
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.sqrt(0.24 / 400), rel=0.1)


def test_nothing_right_in_thirty_still_has_an_upper_bound() -> None:
    found = mean_interval([np.zeros(30)], np.random.default_rng(0))
    assert (found.value, found.low) == (0.0, 0.0)
    assert 0.08 < found.high < 0.2


@pytest.mark.parametrize("gain", [0.0, 0.1])
def test_a_paired_interval_covers_the_true_difference_95_times_in_100(gain: float) -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(600):
        hard = rng.random(200)  # one latent difficulty decides both: strongly paired
        before, after = hard < 0.4, (hard + rng.normal(0, 0.02, 200)) < 0.4 + gain
        truth = gain
        found = paired_interval([after], [before], rng)
        covered += found.low <= truth <= found.high
    assert covered >= 0.923 * 600


def test_pairing_narrows_a_comparison() -> None:
    rng = np.random.default_rng(4)
    hard = rng.random(300)
    before, after = hard < 0.4, hard < 0.45
    paired = paired_interval([after], [before], rng)
    alone = mean_interval([after], rng)
    assert paired.high - paired.low < 0.7 * (alone.high - alone.low)


def test_benchmarks_count_alike_whatever_their_size() -> None:
    found = mean_interval([np.ones(10), np.zeros(1000)], np.random.default_rng(0))
    assert found.value == 0.5


def test_the_same_generator_gives_the_same_interval() -> None:
    scores = np.random.default_rng(5).random(50)
    assert mean_interval([scores], np.random.default_rng(1)) == mean_interval(
        [scores], np.random.default_rng(1)
    )


def test_an_interval_over_no_problems_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        mean_interval([[]], np.random.default_rng(0))
