"""The ask/tell loop of a sub-population, and its refusals, each naming the call before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.population.evolution import Evolution
from populora_core.population.member import Member, Role
from populora_core.population.replacement import EvolutionRules, Replacement, plan_evolution
from populora_core.support import ids
from populora_core.support.errors import PopulationError

RULES = EvolutionRules(
    every=2,
    fraction=0.25,
    minimum_age=2,
    crossover_probability=0.5,
    mutations=("m",),
    crossovers=("x",),
)


def founders(n: int = 4) -> list[Member]:
    return [
        Member(ids.member_id("teacher", slot, 0), Role.TEACHER, slot, 0, (), "founder", 25.0, 8.0, 0)
        for slot in range(n)
    ]


def tell(evolution: Evolution, generation: int, members: list[Member]) -> None:
    fitness = {m.member_id: float(m.slot) for m in members}
    evolution.tell(generation, members, fitness, dict.fromkeys(fitness, True))


def settle(members: list[Member], plan: list[Replacement], generation: int) -> list[Member]:
    """The population after the children have taken their slots."""
    slots = {item.slot for item in plan}
    return [
        replace(m, member_id=ids.member_id("teacher", m.slot, generation), born_generation=generation)
        if m.slot in slots
        else m
        for m in members
    ]


@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 4), st.sampled_from([0.0, 0.5]))
def test_a_sub_population_lives_on_and_no_newborn_is_culled(
    seed: int, size: int, minimum_age: int, crossover: float
) -> None:
    rules = replace(RULES, minimum_age=minimum_age, crossover_probability=crossover)
    evolution, members, rng = Evolution(rules), founders(size), np.random.default_rng(seed)
    for generation in range(1, 13):
        fitness = {m.member_id: float(value) for m, value in zip(members, rng.normal(size=size), strict=True)}
        evolution.tell(generation, members, fitness, dict.fromkeys(fitness, True))
        plan = evolution.ask(rng)
        born = {m.member_id: m.born_generation for m in members}
        assert all(generation - born[item.removed_id] >= minimum_age for item in plan)
        assert len(plan) < size or size == 0
        members = settle(members, plan, generation)
    assert len(members) == size


def test_the_plan_is_that_of_the_pure_function() -> None:
    members, evolution = founders(), Evolution(RULES)
    tell(evolution, 2, members)
    fitness = {m.member_id: float(m.slot) for m in members}
    eligible = dict.fromkeys(fitness, True)
    expected = plan_evolution(2, members, fitness, eligible, RULES, np.random.default_rng(3))
    assert evolution.ask(np.random.default_rng(3)) == expected != []


def test_asking_before_telling_is_refused() -> None:
    with pytest.raises(PopulationError, match=r"ask\(\) cannot follow nothing"):
        Evolution(RULES).ask(np.random.default_rng(0))


def test_asking_twice_is_refused() -> None:
    evolution = Evolution(RULES)
    tell(evolution, 1, founders())
    evolution.ask(np.random.default_rng(0))
    with pytest.raises(PopulationError, match=r"ask\(\) cannot follow ask\(\) for generation 1"):
        evolution.ask(np.random.default_rng(0))


def test_telling_twice_is_refused() -> None:
    evolution = Evolution(RULES)
    tell(evolution, 1, founders())
    with pytest.raises(PopulationError, match=r"tell\(generation 2\) cannot follow tell\(generation 1\)"):
        tell(evolution, 2, founders())


def test_telling_an_earlier_generation_is_refused() -> None:
    evolution = Evolution(RULES)
    tell(evolution, 3, founders())
    evolution.ask(np.random.default_rng(0))
    with pytest.raises(PopulationError, match="a generation after 3"):
        tell(evolution, 3, founders())


def test_a_child_that_did_not_take_its_slot_is_missed() -> None:
    evolution = Evolution(RULES)
    tell(evolution, 2, founders())
    evolution.ask(np.random.default_rng(0))
    with pytest.raises(PopulationError, match="in slot 0 a child born in generation 2") as caught:
        tell(evolution, 3, founders())
    assert "Came: teacher-00-g0000, born in 0" in str(caught.value)


def test_a_survivor_that_vanished_or_changed_is_missed() -> None:
    evolution, members = Evolution(RULES), founders()
    tell(evolution, 1, members)
    evolution.ask(np.random.default_rng(0))
    with pytest.raises(PopulationError, match="in slot 3 teacher-03-g0000"):
        tell(evolution, 2, members[:3])


def test_a_refused_call_changes_nothing() -> None:
    evolution, members = Evolution(RULES), founders()
    tell(evolution, 1, members)
    with pytest.raises(PopulationError):
        tell(evolution, 2, members)
    assert evolution.ask(np.random.default_rng(0)) == []


def test_a_member_without_fitness_is_refused_when_it_is_told() -> None:
    with pytest.raises(PopulationError, match="cannot be ranked"):
        Evolution(RULES).tell(1, founders(), {}, {})
