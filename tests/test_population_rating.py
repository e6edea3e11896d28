"""Ratings: predictions, outcomes, and the fold of matches into ratings."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import small_config
from hypothesis import given
from hypothesis import strategies as st

from populora_core.config.sections import RatingSection
from populora_core.population.rating import (
    Match,
    Outcome,
    Rating,
    lower_bound,
    match_outcome,
    rate,
    win_probabilities,
)
from populora_core.runs.preflight import LEAST_DRAWS, check_changed, preflight
from populora_core.support.errors import ConfigError

RULES = RatingSection()
FRESH = Rating(RULES.mu, RULES.sigma)


def win_probability(student: Rating, teacher: Rating) -> float:
    return float(win_probabilities([student], [teacher], RULES)[0, 0])


ratings = st.builds(Rating, st.floats(0.0, 50.0), st.floats(0.5, 9.0))


@pytest.mark.parametrize(
    ("student", "teacher"),
    [(FRESH, FRESH), (Rating(30.0, 2.0), Rating(25.0, 4.0)), (Rating(18.0, 1.0), Rating(27.0, 6.0))],
)
def test_the_win_probability_agrees_with_simulated_matches(student: Rating, teacher: Rating) -> None:
    rng, n = np.random.default_rng(7), 400_000

    def performances(rating: Rating) -> np.ndarray:
        return rng.normal(rng.normal(rating.mu, rating.sigma, n), RULES.beta)

    simulated = np.mean(performances(student) > performances(teacher))
    assert win_probability(student, teacher) == pytest.approx(simulated, abs=4.0 * 0.5 / n**0.5)


@given(ratings, ratings)
def test_the_win_probabilities_of_the_two_sides_sum_to_one(a: Rating, b: Rating) -> None:
    assert win_probability(a, b) + win_probability(b, a) == pytest.approx(1.0)


@given(st.lists(ratings, min_size=1, max_size=6), st.lists(ratings, min_size=1, max_size=6))
def test_a_pair_s_probability_does_not_depend_on_the_others_to_the_last_bit(
    students: list[Rating], teachers: list[Rating]
) -> None:
    alone = [[win_probability(student, teacher) for student in students] for teacher in teachers]
    assert win_probabilities(students, teachers, RULES).tolist() == alone


def outcome(solve_rate: float | None, **changes: object) -> Outcome:
    facts = {"n_valid": 5, "n_lost": 0, "p_student_win": 0.5} | changes
    return match_outcome(solve_rate, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("solve_rate", "expected"),
    [
        (0.0, Outcome.TEACHER),
        (0.47, Outcome.TEACHER),
        (0.49, Outcome.DRAW),
        (0.5, Outcome.DRAW),
        (0.51, Outcome.DRAW),
        (0.53, Outcome.STUDENT),
        (1.0, Outcome.STUDENT),
    ],
)
def test_who_beats_the_prediction_by_more_than_the_draw_band_wins(
    solve_rate: float, expected: Outcome
) -> None:
    assert outcome(solve_rate) is expected


def test_a_teacher_without_a_valid_problem_loses() -> None:
    assert outcome(None, n_valid=0) is Outcome.STUDENT


def test_a_match_whose_problems_nobody_solved_is_void() -> None:
    assert outcome(None) is Outcome.VOID


@pytest.mark.parametrize("n_valid", [0, 5])
def test_a_match_that_infrastructure_left_undecided_is_void(n_valid: int) -> None:
    assert outcome(None, n_valid=n_valid, n_lost=1) is Outcome.VOID


@pytest.mark.parametrize(
    ("outcome", "winner", "loser"), [(Outcome.TEACHER, "t", "s"), (Outcome.STUDENT, "s", "t")]
)
def test_one_match_of_newcomers_gives_the_published_numbers(
    outcome: Outcome, winner: str, loser: str
) -> None:
    after = rate([Match("t", "s", outcome)], {"t": FRESH, "s": FRESH}, RULES)
    assert (after[winner].mu, after[loser].mu) == pytest.approx((29.396, 20.604), abs=1e-3)
    assert (after["t"].sigma, after["s"].sigma) == pytest.approx((7.171, 7.171), abs=1e-3)


def test_a_draw_draws_ratings_together() -> None:
    before = {"t": Rating(30.0, 4.0), "s": Rating(20.0, 4.0)}
    after = rate([Match("t", "s", Outcome.DRAW)], before, RULES)
    assert 20.0 < after["s"].mu < after["t"].mu < 30.0


def test_a_draw_makes_both_surer_however_rare_draws_are() -> None:
    """Where they are rarer still, trueskill has no digits left: at 0 a draw makes both less sure."""
    with pytest.raises(ConfigError, match="loses its digits"):
        preflight(small_config(rating={"draw_probability": 0.0}), "run.toml")
    with pytest.raises(ConfigError, match="loses its digits"):  # a fork
        check_changed(small_config(rating={"draw_probability": 0.0}), small_config(), "the settings")
    rare = RatingSection(draw_probability=LEAST_DRAWS)
    after = rate([Match("t", "s", Outcome.DRAW)], {"t": FRESH, "s": FRESH}, rare)
    assert max(after["t"].sigma, after["s"].sigma) < FRESH.sigma


@given(ratings, ratings)
def test_a_void_match_leaves_the_ratings(a: Rating, b: Rating) -> None:
    before = {"t": a, "s": b}
    assert rate([Match("t", "s", Outcome.VOID)], before, RULES) == before


played = st.lists(
    st.builds(Match, st.sampled_from(["t0", "t1"]), st.sampled_from(["s0", "s1"]), st.sampled_from(Outcome)),
    max_size=8,
)


@given(played, st.integers(0, 8))
def test_rating_in_two_goes_equals_rating_in_one(matches: list[Match], cut: int) -> None:
    before = dict.fromkeys(("t0", "t1", "s0", "s1"), FRESH)
    in_two = rate(matches[cut:], rate(matches[:cut], before, RULES), RULES)
    assert in_two == rate(matches, before, RULES)


def test_ratings_may_grow_less_sure_when_skill_drifts() -> None:
    sure = {"t": Rating(25.0, 0.1), "s": Rating(25.0, 0.1)}
    after = rate([Match("t", "s", Outcome.STUDENT)], sure, RULES.model_copy(update={"tau": 1.0}))
    assert after["t"].sigma > 0.1


def test_the_lower_bound_is_three_sigma_below_the_mean() -> None:
    assert lower_bound(Rating(30.0, 2.0)) == 24.0
