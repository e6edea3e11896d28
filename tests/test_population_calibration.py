"""Ratings on simulated populations of known skill: predictions track solve rates, and order is recovered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

import pytest
from simulated_play import GOAL, RULES, SETTLED, reliability, reliability_error
from simulated_play import play as simulate

from populora_core.population.matchmaking import SCHEMES
from populora_core.population.rating import Outcome, Rating, newborn_rating
from populora_core.support.shipped import REPOSITORY

play = cache(simulate)


def test_wins_are_even_once_predictions_track_the_solve_rate() -> None:
    """A win is a surprise against the prediction, not a share of solved problems: it says which way to go."""
    outcomes = [match.outcome for generation, match in play().matches if generation > SETTLED]
    wins = sum(outcome is Outcome.STUDENT for outcome in outcomes) / len(outcomes)
    losses = sum(outcome is Outcome.TEACHER for outcome in outcomes) / len(outcomes)
    assert 0.25 < wins < 0.65
    assert 0.25 < losses < 0.65


@pytest.mark.parametrize("scheme", ["pfsp", "uniform", "round_robin"])
@pytest.mark.parametrize("role", ["teacher", "student"])
def test_ratings_recover_the_true_order(role: str, scheme: str) -> None:
    assert play(0, scheme).order_recovered(role)


def test_a_child_starts_at_its_parents_mean_with_full_sigma() -> None:
    parents: Sequence[Rating] = [Rating(30.0, 1.0), Rating(20.0, 2.0)]
    assert newborn_rating(parents, RULES) == Rating(25.0, RULES.sigma)
    assert newborn_rating(parents[:1], RULES) == Rating(30.0, RULES.sigma)


def test_the_kept_figures_meet_the_goal_and_are_those_of_these_simulations() -> None:
    runs = json.loads((REPOSITORY / "bench" / "results" / "calibration.json").read_text())["runs"]
    assert {run["scheme"] for run in runs} == set(SCHEMES)
    assert all(run["reliability_error"] <= GOAL for run in runs)
    for run in runs:
        again = reliability_error(reliability(play(run["seed"], run["scheme"]).settled))
        assert again == pytest.approx(run["reliability_error"])
