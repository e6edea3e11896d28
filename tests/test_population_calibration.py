"""Ratings on simulated populations of known skill: predictions track solve rates, order is recovered, and
match rows alone rebuild every rating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from populora_core import ids
from populora_core.errors import PopulationError
from populora_core.population.matchmaking import draw_matches
from populora_core.population.rating import (
    Birth,
    Match,
    Outcome,
    PlayedMatch,
    Rating,
    RatingRules,
    match_outcome,
    newborn_rating,
    rate,
    replay,
    win_probability,
)

RULES = RatingRules()
SKILLS = np.array([17.0, 20.5, 24.0, 27.5, 31.0])
"""Of five teachers and of five students, on the scale of mu; shuffled apart from the slots."""
GENERATIONS, SETTLED = 120, 30
PROBLEMS, ATTEMPTS = 24, 8
UNEVEN = 4.0  # how far the problems of one teacher differ in difficulty


@dataclass(frozen=True)
class History:
    """What was played: a row a match, and the ratings after each generation."""

    matches: list[PlayedMatch]
    predicted: np.ndarray
    solved: np.ndarray
    ratings: list[dict[str, Rating]]
    skills: dict[str, float]
    births: list[Birth]


@cache
def play(seed: int = 0, scheme: str = "pfsp", evolve_every: int = 0) -> History:
    """Matches as the loop plays them, between members whose skill is known and does not change."""
    rng = np.random.default_rng(seed)
    teachers = [ids.member_id("teacher", slot, 0) for slot in range(len(SKILLS))]
    students = [ids.member_id("student", slot, 0) for slot in range(len(SKILLS))]
    skills = dict(zip(teachers, rng.permutation(SKILLS).tolist(), strict=True))
    skills |= dict(zip(students, rng.permutation(SKILLS).tolist(), strict=True))
    ratings = dict.fromkeys(skills, Rating(RULES.mu, RULES.sigma))
    matches, predicted, solved, after, births = [], [], [], [], []
    for generation in range(1, GENERATIONS + 1):
        p = np.array([[win_probability(ratings[s], ratings[t], RULES) for s in students] for t in teachers])
        played = []
        pairs = draw_matches(p, scheme=scheme, floor=0.1, generation=generation, rng=rng)
        for pair in sorted(pairs, key=lambda pair: pair.teacher):
            teacher, student = teachers[pair.teacher], students[pair.student]
            rate_ = solve_rate(skills[student] - skills[teacher], rng)
            outcome = match_outcome(
                rate_,
                n_valid=PROBLEMS,
                all_infrastructure=False,
                p_student_win=p[pair.teacher, pair.student],
            )
            match_id = ids.match_id(generation, pair.teacher)
            played.append(PlayedMatch(generation, match_id, Match(teacher, student, outcome)))
            if rate_ is not None:
                predicted.append((generation, p[pair.teacher, pair.student]))
                solved.append(rate_)
        ratings = rate([each.match for each in played], ratings, RULES)
        matches += played
        after.append(ratings)
        if evolve_every and generation % evolve_every == 0:
            child = ids.member_id("student", generation % len(students), generation)
            births.append(Birth(generation, child, (students[0], students[1])))
            ratings = ratings | {child: newborn_rating([ratings[students[0]], ratings[students[1]]], RULES)}
            skills[child] = 25.0
            students[generation % len(students)] = child
    return History(matches, np.array(predicted), np.array(solved), after, skills, births)


def solve_rate(advantage: float, rng: np.random.Generator) -> float | None:
    """Share of correct attempts over the problems solved at least once, for problems of uneven difficulty."""
    spread = np.sqrt(2.0) * RULES.beta
    # The uneven part counts towards the same spread, so that the mean chance stays Phi(advantage / spread).
    own = rng.normal(0.0, UNEVEN, PROBLEMS)[:, None]
    draws = rng.normal(0.0, np.sqrt(spread**2 - UNEVEN**2), (PROBLEMS, ATTEMPTS))
    correct = (advantage + own + draws > 0.0).mean(axis=1)
    return float(correct[correct > 0.0].mean()) if (correct > 0.0).any() else None


def reliability_error(predicted: np.ndarray, observed: np.ndarray, bins: int = 10) -> float:
    """Mean over matches of |mean prediction - mean observation| in bins of equal width."""
    place = np.minimum((predicted * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    gaps = np.abs(
        np.bincount(place, predicted, minlength=bins) - np.bincount(place, observed, minlength=bins)
    )
    return float(gaps.sum() / count.sum())


@pytest.mark.parametrize("scheme", ["pfsp", "uniform", "round_robin"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_predicted_win_probability_tracks_the_solve_rate(seed: int, scheme: str) -> None:
    history = play(seed, scheme)
    settled = history.predicted[:, 0] > SETTLED
    error = reliability_error(history.predicted[settled, 1], history.solved[settled])
    assert error <= 0.08


def test_wins_are_even_once_predictions_track_the_solve_rate() -> None:
    """A win is a surprise against the prediction, not a share of solved problems: it says which way to go."""
    outcomes = [each.match.outcome for each in play().matches if each.generation > SETTLED]
    wins = sum(outcome is Outcome.STUDENT for outcome in outcomes) / len(outcomes)
    losses = sum(outcome is Outcome.TEACHER for outcome in outcomes) / len(outcomes)
    assert 0.25 < wins < 0.65
    assert 0.25 < losses < 0.65


@pytest.mark.parametrize("scheme", ["pfsp", "uniform", "round_robin"])
@pytest.mark.parametrize("role", ["teacher", "student"])
def test_ratings_recover_the_true_order(role: str, scheme: str) -> None:
    history = play(0, scheme)
    last = history.ratings[-1]
    names = [name for name in history.skills if name.startswith(role)]
    assert sorted(names, key=lambda n: last[n].mu) == sorted(names, key=lambda n: history.skills[n])


def test_match_rows_and_births_alone_rebuild_every_rating() -> None:
    history = play(seed=1, evolve_every=7)
    assert len(history.births) > 10
    rebuilt = replay(history.matches, history.births, RULES)
    for generation, stored in enumerate(history.ratings, start=1):
        assert {name: rebuilt[generation][name] for name in stored} == stored


def test_births_may_come_in_any_order() -> None:
    history = play(seed=1, evolve_every=7)
    assert replay(history.matches, history.births[::-1], RULES) == replay(
        history.matches, history.births, RULES
    )


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_match_rows_are_detected(seed: int) -> None:
    matches = list(play().matches)
    np.random.default_rng(seed).shuffle(matches)
    with pytest.raises(PopulationError, match="not in their stored order"):
        replay(matches, [], RULES)


def test_a_match_row_that_stands_twice_is_detected() -> None:
    matches = play().matches
    with pytest.raises(PopulationError, match="ORDER BY generation, match_id"):
        replay([*matches, matches[-1]], [], RULES)


def test_rows_relabelled_into_another_order_give_other_ratings() -> None:
    """Even a shuffle that hides behind new match ids shows: the ratings differ from the stored ones."""
    history = play()
    matches = history.matches
    swapped = [replace(row, match=other.match) for row, other in zip(matches, reversed(matches), strict=True)]
    rebuilt = replay(swapped, [], RULES)[GENERATIONS]
    apart = [abs(rebuilt[name].mu - rating.mu) for name, rating in history.ratings[-1].items()]
    assert max(apart) > 0.1


def test_a_child_starts_at_its_parents_mean_with_full_sigma() -> None:
    parents: Sequence[Rating] = [Rating(30.0, 1.0), Rating(20.0, 2.0)]
    assert newborn_rating(parents, RULES) == Rating(25.0, RULES.sigma)
    assert newborn_rating(parents[:1], RULES) == Rating(30.0, RULES.sigma)
