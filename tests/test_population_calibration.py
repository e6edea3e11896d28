"""Ratings on simulated populations of known skill: predictions track solve rates, order is recovered, and
match rows alone rebuild every rating."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bench.calibration import (
    GENERATIONS,
    GOAL,
    RULES,
    SETTLED,
    figures,
    plot,
    reliability,
    reliability_error,
)
from bench.calibration import play as simulate
from populora_core.config.sections import REPOSITORY
from populora_core.population.matchmaking import SCHEMES
from populora_core.population.rating import Outcome, Rating, newborn_rating, replay
from populora_core.support.errors import PopulationError

play = cache(simulate)


@pytest.mark.parametrize("scheme", ["pfsp", "uniform", "round_robin"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_predicted_win_probability_tracks_the_solve_rate(seed: int, scheme: str) -> None:
    assert reliability_error(reliability(play(seed, scheme).settled)) <= GOAL


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
    assert play(0, scheme).order_recovered(role)


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


def test_the_reliability_error_is_the_mean_gap_over_matches() -> None:
    played = np.array([[40, 0.21, 0.31, 1.0], [40, 0.23, 0.33, 0.0], [40, 0.8, 0.8, 0.5]])
    bins = reliability(played)
    assert [row["matches"] for row in bins] == [2, 1]
    assert [row["won"] for row in bins] == [0.5, 0.5]
    assert reliability_error(bins) == pytest.approx(0.1 * 2 / 3)


def test_a_prediction_that_does_not_track_is_found_out() -> None:
    played = play().settled.copy()
    played[:, 1] = 1.0 - played[:, 1]
    assert reliability_error(reliability(played)) > GOAL


def test_the_kept_figures_and_plot_are_those_that_the_command_writes() -> None:
    results = REPOSITORY / "bench" / "results"
    kept = json.loads((results / "calibration.json").read_text())
    assert {run["scheme"] for run in kept["runs"]} == set(SCHEMES)
    again = figures(["pfsp"], [0])["runs"]
    assert again == [
        pytest.approx(run) for run in kept["runs"] if (run["scheme"], run["seed"]) == ("pfsp", 0)
    ]
    assert all(run["reliability_error"] <= GOAL for run in kept["runs"])
    svg = (results / "calibration.svg").read_text()
    assert svg == plot(kept)
    circles = ET.fromstring(svg).iterfind("{http://www.w3.org/2000/svg}circle")
    assert len(list(circles)) == len(kept["bins"]) + 1  # one more in the legend
