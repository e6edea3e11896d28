"""Fitness, selection and replacement: who ranks, who goes, who breeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.config.sections import EvolveSection
from populora_core.population.fitness import FITNESS, rank
from populora_core.population.matchmaking import SCHEMES
from populora_core.population.member import Member, Role
from populora_core.population.replacement import (
    REPLACEMENTS,
    Replacement,
    choose_removed,
    evolves,
    last_birth,
    plan_evolution,
)
from populora_core.population.selection import SELECTIONS
from populora_core.population.variation import CROSSOVERS, MUTATIONS
from populora_core.support.errors import PopulationError

RULES = EvolveSection(
    every=4,
    fraction=0.25,
    minimum_age=4,
    crossover_probability=0.5,
    mutations=("m1", "m2"),
    crossovers=("x1", "x2"),
)


def member(slot: int, born: int = 0, role: Role = Role.TEACHER) -> Member:
    return Member(f"{role}-{slot:02d}-g{born:04d}", role, slot, born, (), "founder", 25.0, 25.0 / 3.0, 0)


def plan(
    members: list[Member],
    generation: int = 4,
    fitness: Mapping[str, float] | None = None,
    rules: EvolveSection = RULES,
    seed: int = 0,
) -> list[Replacement]:
    names = [m.member_id for m in members]
    return plan_evolution(
        generation,
        members,
        fitness or {name: float(index) for index, name in enumerate(names)},
        dict.fromkeys(names, True),
        rules,
        np.random.default_rng(seed),
    )


populations = st.lists(st.integers(0, 12), min_size=1, max_size=12).map(
    lambda born: [member(slot, generation) for slot, generation in enumerate(born)]
)
rules = st.fixed_dictionaries(
    {
        "fraction": st.floats(0.05, 0.95),
        "minimum_age": st.integers(1, 8),
        "crossover_probability": st.sampled_from([0.0, 0.5, 1.0]),
        "selection": st.sampled_from(sorted(SELECTIONS)),
        "replacement": st.sampled_from(sorted(REPLACEMENTS)),
    }
).map(lambda given: RULES.model_copy(update=given))
seeds = st.integers(0, 2**32)


def test_the_fittest_ranks_first_and_the_ineligible_below_all_others() -> None:
    a, b, c, d = members = [member(slot) for slot in range(4)]
    fitness = dict(zip([m.member_id for m in members], [1.0, 9.0, 3.0, 2.0], strict=True))
    eligible = {m.member_id: m is not b for m in members}
    assert rank(members, fitness, eligible) == [c, d, a, b]


def removed(ranked: list[Member], generation: int, rules: EvolveSection) -> list[Member]:
    return choose_removed(ranked, -np.arange(len(ranked), dtype=float), generation, rules)


@pytest.mark.parametrize(
    ("size", "fraction", "gone"), [(1, 0.25, 0), (2, 0.25, 1), (4, 0.25, 1), (8, 0.25, 2), (10, 0.3, 3)]
)
def test_the_fraction_goes_at_least_one_but_never_all(size: int, fraction: float, gone: int) -> None:
    ranked = [member(slot) for slot in range(size)]
    assert removed(ranked, 4, RULES.model_copy(update={"fraction": fraction})) == ranked[::-1][:gone]


def test_newborns_are_passed_over_for_the_worst_of_age() -> None:
    ranked = [member(0), member(1), member(2, born=4), member(3, born=4)]
    assert removed(ranked, 5, RULES) == [ranked[1]]


def test_ageing_replaces_the_oldest_however_fit_and_of_these_the_less_fit() -> None:
    ranked = [member(0, born=2), member(1, born=0), member(2, born=0), member(3, born=6)]
    rules = RULES.model_copy(update={"replacement": "ageing", "fraction": 0.75})
    assert removed(ranked, 12, rules) == [ranked[2], ranked[1], ranked[0]]
    assert removed(ranked, 5, rules) == [ranked[2], ranked[1]]


def test_without_replacement_nobody_goes() -> None:
    assert (
        plan([member(slot) for slot in range(4)], rules=RULES.model_copy(update={"replacement": "none"}))
        == []
    )


def test_a_replacement_of_ones_own_can_neither_cull_newborns_nor_empty_a_sub_population(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(REPLACEMENTS, "everybody", lambda standing, ages: np.arange(len(ages)))
    ranked = [member(0), member(1), member(2), member(3, born=3)]
    rules = RULES.model_copy(update={"replacement": "everybody", "fraction": 0.9})
    assert removed(ranked, 4, rules) == ranked[:3]
    assert removed(ranked[:3], 4, rules) == ranked[:2]


@pytest.mark.parametrize("places", [[0, 0], [7], [-1]])
def test_a_replacement_that_names_no_members_is_refused(
    places: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REPLACEMENTS, "odd", lambda standing, ages: np.array(places))
    with pytest.raises(PopulationError, match="different places from 0 to 2"):
        removed([member(slot) for slot in range(3)], 4, RULES.model_copy(update={"replacement": "odd"}))


@pytest.mark.parametrize(
    ("generation", "every", "evolves"),
    [(0, 4, False), (3, 4, False), (4, 4, True), (6, 4, False), (8, 4, True), (4, 0, False)],
)
def test_evolution_happens_every_so_many_generations(generation: int, every: int, evolves: bool) -> None:
    members = [member(slot) for slot in range(4)]
    assert (
        bool(plan(members, generation, rules=RULES.model_copy(update={"every": every, "minimum_age": 1})))
        is evolves
    )


@given(populations, rules, seeds)
def test_no_plan_empties_a_sub_population_or_breeds_from_the_removed(
    members: list[Member], rules: EvolveSection, seed: int
) -> None:
    """Nobody too young goes, mutants have one parent, crosses two different ones, and the same seed plans the same."""
    planned = plan(members, 12, rules=rules, seed=seed)
    assert planned == plan(members, 12, rules=rules, seed=seed)
    gone = {item.removed_id for item in planned}
    assert len(gone) == len(planned) < len(members)
    born = {m.member_id: m.born_generation for m in members}
    for item in planned:
        assert 12 - born[item.removed_id] >= rules.minimum_age
        assert not gone & set(item.parent_ids)
        assert set(item.parent_ids) <= born.keys()
        assert item.operator in (rules.mutations if len(item.parent_ids) == 1 else rules.crossovers)
        assert len(set(item.parent_ids)) == len(item.parent_ids) <= 2


@given(populations, seeds)
def test_equal_fitness_replaces_the_last_of_age(members: list[Member], seed: int) -> None:
    planned = plan(members, 12, dict.fromkeys([m.member_id for m in members], 0.0), seed=seed)
    of_age = [m.member_id for m in members if m.born_generation <= 8]
    assert [item.removed_id for item in planned] == of_age[::-1][: len(planned)]


def test_the_worst_goes_and_its_child_takes_the_slot() -> None:
    members = [member(slot) for slot in range(4)]
    (item,) = plan(members)
    assert (item.removed_id, item.role, item.slot) == ("teacher-00-g0000", Role.TEACHER, 0)


def test_an_ineligible_member_goes_before_a_less_fit_one() -> None:
    members = [member(slot) for slot in range(4)]
    names = [m.member_id for m in members]
    fitness = dict(zip(names, [0.0, 1.0, 2.0, 3.0], strict=True))
    eligible = {name: name != names[3] for name in names}
    (item,) = plan_evolution(4, members, fitness, eligible, RULES, np.random.default_rng(0))
    assert item.removed_id == names[3]


@given(seeds)
def test_of_two_parents_the_fitter_is_the_second(seed: int) -> None:
    rules = RULES.model_copy(update={"crossover_probability": 1.0})
    (item,) = plan([member(slot) for slot in range(4)], rules=rules, seed=seed)
    assert item.parent_ids[0] < item.parent_ids[1]


@given(seeds)
def test_a_lone_survivor_has_mutants(seed: int) -> None:
    (item,) = plan([member(0), member(1)], seed=seed)
    assert item.parent_ids == ("teacher-01-g0000",)
    assert item.operator in RULES.mutations


def test_where_only_crossovers_are_allowed_a_pair_is_never_broken_up() -> None:
    rules = RULES.model_copy(update={"crossover_probability": 1.0, "mutations": ()})
    assert plan([member(0), member(1)], rules=rules) == []


def test_the_page_on_evolution_names_every_registered_function() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "evolution.md").read_text()
    for registry in (FITNESS, SELECTIONS, REPLACEMENTS, SCHEMES, MUTATIONS, CROSSOVERS):
        for name in registry:
            assert f"`{name}`" in page


@given(st.integers(1, 400), st.integers(1, 30), st.floats(0.0, 0.99))
def test_nobody_is_born_in_the_last_share_of_a_run(planned: int, every: int, share: float) -> None:
    rules = RULES.model_copy(update={"every": every, "last_share": share})
    born = [generation for generation in range(planned + 1) if evolves(rules, generation, planned)]
    assert born == list(range(every, last_birth(rules, planned) + 1, every))
    assert planned - last_birth(rules, planned) <= share * planned + 1e-6


def test_a_run_that_goes_on_beyond_its_length_has_births_again() -> None:
    assert [g for g in range(1, 41) if evolves(RULES, g, planned=30)] == [4, 8, 12, 16, 20, 32, 36, 40]
