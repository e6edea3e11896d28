"""Fitness functions, and which survivors breed."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.config.sections import EvolveSection
from populora_core.population.fitness import fitness_of, learnable_share, standing
from populora_core.population.member import Member, Role
from populora_core.population.selection import SELECTIONS, checked_places, choose_parents
from populora_core.support.errors import PopulationError

seeds = st.integers(0, 2**32)
levels = st.lists(st.floats(-50.0, 50.0), min_size=2, max_size=9).map(lambda v: np.array(sorted(v)[::-1]))


def member(slot: int, mu: float = 25.0, sigma: float = 5.0) -> Member:
    return Member(f"student-{slot:02d}-g0000", Role.STUDENT, slot, 0, (), "founder", mu, sigma, 0)


def by(selection: str) -> EvolveSection:
    return EvolveSection(selection=selection)


def frequencies(selection: str, values: list[float], n: int = 1, **parameters: Any) -> np.ndarray:
    rng, select = np.random.default_rng(0), SELECTIONS.bound(selection, parameters)
    count: Counter[int] = Counter()
    for _ in range(3000):
        count.update(checked_places(selection, select(np.array(values), n, rng), len(values), n))
    return np.array([count[place] for place in range(len(values))]) / 3000.0


# Fitness


def test_internal_fitness_is_the_lower_bound_of_the_rating() -> None:
    members = [member(0, 30.0, 2.0), member(1, 25.0, 1.0)]
    assert list(fitness_of(EvolveSection(fitness="internal"), members, {}).values()) == [24.0, 22.0]


def test_external_fitness_is_what_was_evaluated() -> None:
    members = [member(0), member(1)]
    scores = {members[0].member_id: 0.25, members[1].member_id: 0.5}
    assert fitness_of(EvolveSection(fitness="external"), members, scores) == scores


def test_a_blend_weighs_standardised_fitness() -> None:
    members = [member(0, 30.0), member(1, 20.0)]
    scores = {members[0].member_id: 0.1, members[1].member_id: 0.3}
    even = fitness_of(EvolveSection(fitness="blend"), members, scores)
    assert list(even.values()) == pytest.approx([0.0, 0.0])
    external = fitness_of(
        EvolveSection(fitness="blend", parameters={"blend": {"weight": 0.75}}), members, scores
    )
    assert list(external.values()) == pytest.approx([-0.5, 0.5])


def test_a_blend_of_equals_is_zero() -> None:
    members = [member(0), member(1)]
    assert set(
        fitness_of(EvolveSection(fitness="blend"), members, {m.member_id: 0.3 for m in members}).values()
    ) == {0.0}


@pytest.mark.parametrize("name", ["external", "blend"])
def test_fitness_of_a_member_that_was_not_evaluated_is_refused(name: str) -> None:
    members = [member(0), member(1)]
    with pytest.raises(PopulationError, match="none of student-01-g0000, whose external fitness is None"):
        fitness_of(EvolveSection(fitness=name), members, {members[0].member_id: 0.5})


@pytest.mark.parametrize(
    ("solve_rates", "share"),
    [([0.0, 1.0, 0.5, 0.25], 0.5), ([0.0], 0.0), ([None, 0.5], 1.0), ([], None), ([None], None)],
)
def test_a_teachers_external_fitness_is_the_share_of_problems_solved_sometimes(
    solve_rates: list[float | None], share: float | None
) -> None:
    assert learnable_share(solve_rates) == share


def test_an_ineligible_member_stands_no_higher_than_the_least_fit_eligible_one() -> None:
    ranked = [member(slot) for slot in range(4)]
    fitness = dict(zip([m.member_id for m in ranked], [5.0, 3.0, 9.0, 1.0], strict=True))
    eligible = {m.member_id: m.slot < 2 for m in ranked}
    assert standing(ranked, fitness, eligible).tolist() == [5.0, 3.0, 3.0, 1.0]


# Selection


@given(levels, seeds, st.sampled_from(sorted(SELECTIONS)), st.integers(1, 2))
def test_parents_are_different_survivors_and_the_same_for_the_same_seed(
    values: np.ndarray, seed: int, selection: str, n: int
) -> None:
    one, other = (choose_parents(values, n, by(selection), np.random.default_rng(seed)) for _ in range(2))
    assert one == other
    assert len(set(one)) == n
    assert all(0 <= place < len(values) for place in one)


@pytest.mark.parametrize("selection", sorted(SELECTIONS))
@pytest.mark.parametrize("n", [1, 2])
def test_where_all_are_equally_fit_all_are_equally_likely_to_breed(selection: str, n: int) -> None:
    assert frequencies(selection, [3.0] * 4, n) == pytest.approx(np.full(4, n / 4), abs=0.04)


def test_truncation_breeds_uniformly_from_the_fittest_share() -> None:
    assert frequencies("truncation", [4.0, 3.0, 2.0, 1.0], share=0.5) == pytest.approx(
        [0.5, 0.5, 0.0, 0.0], abs=0.04
    )


def test_truncation_leaves_as_many_as_a_crossover_needs() -> None:
    assert frequencies("truncation", [4.0, 3.0, 2.0, 1.0], 2, share=0.1).tolist() == [1.0, 1.0, 0.0, 0.0]


def test_a_tournament_is_won_by_the_fittest_of_those_drawn() -> None:
    # Of four, three are drawn: the fittest is among them three times in four, else the second wins.
    assert frequencies("tournament", [4.0, 3.0, 2.0, 1.0]) == pytest.approx([0.75, 0.25, 0.0, 0.0], abs=0.04)
    assert frequencies("tournament", [4.0, 3.0], size=9).tolist() == [1.0, 0.0]


def test_rank_proportional_selection_goes_by_rank_and_not_by_size() -> None:
    expected = [0.4, 0.3, 0.2, 0.1]
    assert frequencies("rank_proportional", [1e6, 3.0, 2.0, -9.0]) == pytest.approx(expected, abs=0.04)
    assert frequencies("rank_proportional", [4.0, 2.0, 2.0, 1.0]) == pytest.approx(
        [0.4, 0.25, 0.25, 0.1], abs=0.04
    )


def test_fitness_uniform_selection_breeds_rare_levels_as_often_as_crowded_ones() -> None:
    chances = frequencies("fitness_uniform", [10.0, 0.2, 0.1, 0.0])
    assert chances[0] == pytest.approx(0.5, abs=0.04)


def test_fitness_without_bounds_does_not_break_selection() -> None:
    rng, standing = np.random.default_rng(0), np.array([math.inf, 1.0, 0.0, -math.inf])
    for selection in SELECTIONS:
        assert all(len(choose_parents(standing, 1, by(selection), rng)) == 1 for _ in range(100))


def test_a_selection_that_chooses_twice_the_same_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SELECTIONS, "narcissus", lambda standing, n, rng: np.zeros(n, dtype=int))
    with pytest.raises(PopulationError, match="2 different places"):
        choose_parents(np.zeros(2), 2, by("narcissus"), np.random.default_rng(0))
