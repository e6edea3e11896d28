"""Matchmaking: who meets whom, and with which probability."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populora_core.config.sections import MatchSection
from populora_core.population.matchmaking import SCHEMES, Pair, draw_matches, with_hall_of_fame
from populora_core.support.errors import PopulationError

sizes = st.integers(1, 6)
seeds = st.integers(0, 2**32)


def draw(
    p: np.ndarray, scheme: str = "pfsp", floor: float = 0.1, generation: int = 1, seed: int = 0
) -> list[Pair]:
    rng = np.random.default_rng(seed)
    return draw_matches(p, MatchSection(scheme=scheme, uniform_floor=floor), generation, rng)


def chances(n_teachers: int, n_students: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((n_teachers, n_students))


@given(sizes, sizes, st.sampled_from(sorted(SCHEMES)), seeds)
def test_every_teacher_gets_one_match_and_students_share_them_evenly(
    n_teachers: int, n_students: int, scheme: str, seed: int
) -> None:
    p = chances(n_teachers, n_students, seed)
    pairs = draw(p, scheme, seed=seed)
    assert pairs == draw(p, scheme, seed=seed), "the same seed draws the same"
    assert sorted(pair.teacher for pair in pairs) == list(range(n_teachers))
    counts = Counter(dict.fromkeys(range(n_students), 0))
    counts.update(pair.student for pair in pairs)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_recorded_weight_is_how_often_the_pair_is_drawn() -> None:
    p = np.array([[0.5, 0.9, 0.99]])
    drawn = [draw(p, seed=seed)[0] for seed in range(4000)]
    for student in range(3):
        weights = {pair.weight for pair in drawn if pair.student == student}
        assert len(weights) == 1
        assert np.mean([pair.student == student for pair in drawn]) == pytest.approx(weights.pop(), abs=0.03)


def test_pfsp_weights_mix_variance_with_the_uniform_floor() -> None:
    p = np.array([[0.5, 0.9]])
    variance = p[0] * (1.0 - p[0])
    pair = draw(p, floor=0.2)[0]
    assert pair.weight == pytest.approx(0.8 * variance[pair.student] / variance.sum() + 0.2 / 2)


def test_pfsp_prefers_even_matches_and_hard_pfsp_those_the_student_loses() -> None:
    p = np.array([[0.05, 0.5, 0.95]])
    favourite = {
        scheme: Counter(draw(p, scheme, seed=seed)[0].student for seed in range(300)).most_common(1)[0][0]
        for scheme in ("pfsp", "pfsp_hard")
    }
    assert favourite == {"pfsp": 1, "pfsp_hard": 0}


def test_the_last_student_left_is_certain() -> None:
    assert draw(chances(3, 3, seed=1))[-1].weight == 1.0


def test_teachers_draw_in_random_order() -> None:
    first = {draw(chances(3, 3, seed=1), seed=seed)[0].teacher for seed in range(30)}
    assert first == {0, 1, 2}


def test_the_floor_lets_no_pair_starve() -> None:
    drawn = Counter(draw(np.array([[1.0, 0.5]]), seed=seed)[0].student for seed in range(300))
    assert drawn[0] > 0


def test_certain_results_everywhere_draw_uniformly() -> None:
    assert {pair.weight for pair in draw(np.ones((1, 4)), floor=0.0)} == {0.25}


@given(sizes, st.integers(1, 50))
def test_round_robin_lets_all_pairs_meet_in_turn(n: int, start: int) -> None:
    met = {
        (pair.teacher, pair.student)
        for generation in range(start, start + n)
        for pair in draw(np.full((n, n), 0.5), "round_robin", floor=0.0, generation=generation)
    }
    assert len(met) == n * n


def test_the_hardness_of_hard_pfsp_is_a_setting() -> None:
    p = np.array([[0.25, 0.75]])
    for hardness in (1.0, 3.0):
        rules = MatchSection(scheme="pfsp_hard", uniform_floor=0.0, parameters={"hardness": hardness})
        pair = draw_matches(p, rules, 1, np.random.default_rng(0))[0]
        weights = (1.0 - p[0]) ** hardness
        assert pair.weight == pytest.approx(weights[pair.student] / weights.sum())


def test_impossible_win_probabilities_are_refused() -> None:
    with pytest.raises(PopulationError, match="unusable weights"):
        draw(np.array([[1.5, 0.5]]))


@settings(max_examples=25)
@given(seeds)
def test_weights_are_probabilities(seed: int) -> None:
    assert all(0.0 < pair.weight <= 1.0 for pair in draw(chances(5, 3, seed), seed=seed))


def with_past(share: float, seed: int, p: np.ndarray | None = None) -> tuple[list[Pair], list[Pair]]:
    """Matches of three teachers and three students, and the same with four past teachers and four past students."""
    p = chances(7, 7, seed) if p is None else p
    rules, rng = MatchSection(hall_of_fame=share), np.random.default_rng(seed)
    pairs = draw_matches(p[:3, :3], rules, 1, rng)
    return pairs, with_hall_of_fame(pairs, p, (3, 3), rules, 1, rng)


@given(seeds)
def test_a_past_member_takes_one_side_of_a_match_and_plays_once(seed: int) -> None:
    before, after = with_past(1.0, seed)
    for pair, own in zip(before, after, strict=True):
        assert (own.teacher >= 3) != (own.student >= 3), "one side is past, the other stays"
        assert pair.teacher == own.teacher or pair.student == own.student
    past = [
        (side, number)
        for own in after
        for side, number in (("t", own.teacher), ("s", own.student))
        if number >= 3
    ]
    assert len(past) == len(set(past)) == 3


def test_a_share_of_matches_has_a_past_member_on_either_side_alike() -> None:
    called = [own for seed in range(1000) for own in with_past(0.4, seed)[1]]
    assert np.mean([own.teacher >= 3 or own.student >= 3 for own in called]) == pytest.approx(0.4, abs=0.03)
    assert np.mean([own.teacher >= 3 for own in called]) == pytest.approx(0.2, abs=0.03)


def test_past_members_are_drawn_by_the_weights_against_the_side_that_stays() -> None:
    p = np.full((7, 7), 0.5)
    p[:3, 3:] = [0.5, 0.9, 0.99, 0.99]
    drawn = [own for seed in range(3000) for own in with_past(1.0, seed, p)[1][:1] if own.student >= 3]
    weights = p[0, 3:] * (1.0 - p[0, 3:])
    expected = 0.9 * weights / weights.sum() + 0.1 / 4
    assert [np.mean([own.student == 3 + n for own in drawn]) for n in range(4)] == pytest.approx(
        expected, abs=0.04
    )
    assert {round(own.weight, 6) for own in drawn if own.student == 3} == {round(expected[0], 6)}


def test_without_a_past_or_without_a_share_the_matches_stay_as_they_are() -> None:
    before, after = with_past(0.0, 5)
    assert after == before
    rules = MatchSection(hall_of_fame=1.0)
    assert with_hall_of_fame(before, chances(3, 3, 1), (3, 3), rules, 1, np.random.default_rng(1)) == before
