"""Variation: laws of every operator, and what each one does to the update."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from triplets import decompose, update

from populora_core.population.variation import CROSSOVERS, MUTATIONS, make_child
from populora_core.population.variation.lowrank import Adapter, Factors
from populora_core.support.errors import PopulationError

OPERATORS = sorted(MUTATIONS | CROSSOVERS)
SHAPES = {"q": (12, 10), "down": (16, 9), "narrow": (7, 2)}  # module -> (in, out); narrow is below the rank
RANK, SCALE = 4, 2.0

operators = st.sampled_from(OPERATORS)
seeds = st.integers(0, 2**32)

pytestmark = pytest.mark.usefixtures("one_thread")


def orthonormal(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    return torch.linalg.qr(torch.randn(rows, columns, generator=generator, dtype=torch.float64))[0]


def adapter(seed: int, live: int = RANK, shapes: dict[str, tuple[int, int]] = SHAPES) -> dict[str, Factors]:
    """Updates of rank `live` with well separated singular values, in an arbitrary gauge."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, (fan_in, fan_out) in shapes.items():
        n = min(live, fan_in, fan_out)
        a, b = torch.zeros(RANK, fan_in).double(), torch.zeros(fan_out, RANK).double()
        s = torch.tensor([1.0, 0.7, 0.45, 0.25])[:n].double() * (
            1.0 + 0.1 * torch.rand(n, generator=generator)
        )
        a[:n] = orthonormal(generator, fan_in, n).mT
        b[:, :n] = orthonormal(generator, fan_out, n) * s
        made[name] = regauge((a, b), generator)
    return made


def regauge(factors: Factors, generator: torch.Generator) -> Factors:
    """The same update from other factors: B R and R^-1 A."""
    a, b = (factor.double() for factor in factors)
    r = orthonormal(generator, RANK, RANK) * torch.linspace(0.5, 2.0, RANK).double()
    return (torch.linalg.inv(r) @ a).float(), (b @ r).float()


def founder(seed: int) -> dict[str, Factors]:
    """A member at birth: A random, B zero."""
    return {name: (a, torch.zeros_like(b)) for name, (a, b) in adapter(seed).items()}


def parents_for(operator: str, *parents: Adapter) -> list[Adapter]:
    return list(parents[: 1 if operator in MUTATIONS else 2])


def breed(operator: str, *parents: Adapter, seed: int = 0, **parameters: Any) -> dict[str, Factors]:
    return breed_with_record(operator, *parents, seed=seed, **parameters)[0]


def breed_with_record(
    operator: str, *parents: Adapter, seed: int = 0, **parameters: Any
) -> tuple[dict[str, Factors], dict[str, Any]]:
    chosen = parents_for(operator, *parents)
    return make_child(operator, chosen, np.random.default_rng(seed), SCALE, parameters)


def norm(member: Adapter) -> float:
    return math.sqrt(sum(float(update(factors).square().sum()) for factors in member.values()))


def apart(x: Adapter, y: Adapter) -> float:
    """Largest difference of an entry of the updates."""
    return max(float((update(x[name]) - update(y[name])).abs().max()) for name in x)


def singular_values(factors: Factors) -> Tensor:
    return torch.linalg.svdvals(update(factors))


def all_directions_learn(member: Adapter) -> bool:
    """Whether every direction has a gradient in A or B for a random loss."""
    generator = torch.Generator().manual_seed(0)
    for a, b in member.values():
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        wanted = torch.randn(b.shape[0], a.shape[1], generator=generator)
        (b @ a * wanted).sum().backward()
        assert a.grad is not None
        assert b.grad is not None
        if not bool((a.grad.norm(dim=1) + b.grad.norm(dim=0) > 1e-3).all()):
            return False
    return True


# Laws of every operator


@given(operators, seeds, st.integers(0, RANK), st.integers(0, RANK))
def test_a_child_has_its_parents_shapes_type_and_only_finite_numbers(
    operator: str, seed: int, live1: int, live2: int
) -> None:
    parent = adapter(1, live1)
    child = breed(operator, parent, adapter(2, live2), seed=seed)
    assert list(child) == list(parent)
    for name, pair in child.items():
        for factor, like in zip(pair, parent[name], strict=True):
            assert (factor.shape, factor.dtype) == (like.shape, torch.float32)
            assert factor.is_contiguous()
            assert bool(torch.isfinite(factor).all())


@given(operators, seeds, st.integers(0, RANK), st.integers(0, RANK))
def test_every_direction_of_a_child_can_learn(operator: str, seed: int, live1: int, live2: int) -> None:
    assert all_directions_learn(breed(operator, adapter(1, live1), adapter(2, live2), seed=seed))


@given(operators, seeds, st.integers(0, RANK), st.integers(0, RANK))
def test_the_child_depends_on_the_updates_and_not_on_how_they_are_factored(
    operator: str, seed: int, live1: int, live2: int
) -> None:
    generator = torch.Generator().manual_seed(5)
    parents = [adapter(1, live1), adapter(2, live2)]
    rewritten = [{name: regauge(pair, generator) for name, pair in each.items()} for each in parents]
    child, other = breed(operator, *parents, seed=seed), breed(operator, *rewritten, seed=seed)
    assert apart(child, other) < 2e-5


@given(operators, seeds)
def test_the_same_seed_gives_the_same_child(operator: str, seed: int) -> None:
    one, other = (breed_with_record(operator, adapter(1), adapter(2), seed=seed) for _ in range(2))
    assert one[1] == other[1]
    for name in SHAPES:
        assert all(torch.equal(x, y) for x, y in zip(one[0][name], other[0][name], strict=True))


@pytest.mark.parametrize("operator", OPERATORS)
def test_newborn_founders_breed_children_that_equal_the_base_and_can_learn(operator: str) -> None:
    child, record = breed_with_record(operator, founder(1), founder(2))
    assert norm(child) == 0.0
    assert all_directions_learn(child)
    assert set(record["distances"]) == {None}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("newborn_first", [True, False])
def test_a_newborn_founder_breeds_with_a_trained_member(operator: str, newborn_first: bool) -> None:
    pair = [founder(1), adapter(2)] if newborn_first else [adapter(2), founder(1)]
    assert all_directions_learn(breed(operator, *pair))


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_child_shares_no_memory_with_its_parents_and_leaves_them_as_they_are(operator: str) -> None:
    parents = [adapter(1), adapter(2)]
    for a, b in breed(operator, *parents).values():
        a.zero_()
        b.zero_()
    for parent, fresh in zip(parents, (adapter(1), adapter(2)), strict=True):
        assert apart(parent, fresh) == 0.0


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_record_is_json_and_tells_the_distance_to_every_parent(operator: str) -> None:
    parents = parents_for(operator, adapter(1), adapter(2))
    child, record = breed_with_record(operator, *parents)
    assert json.loads(json.dumps(record)) == record
    assert record["update_norm"] == pytest.approx(SCALE * norm(child), rel=1e-5)
    assert 0.0 < record["energy_kept"] <= 1.0 + 1e-9
    for parent, distance in zip(parents, record["distances"], strict=True):
        gap = sum(float((update(child[n]) - update(parent[n])).square().sum()) for n in SHAPES)
        assert distance == pytest.approx(math.sqrt(gap) / norm(parent), abs=1e-5)


@pytest.mark.parametrize("operator", [name for name in OPERATORS if name != "copy_parent"])
def test_another_seed_gives_another_child_unless_nothing_is_drawn(operator: str) -> None:
    parents = adapter(1), adapter(2)
    children = [breed(operator, *parents, seed=seed) for seed in range(6)]
    varied = any(apart(children[0], other) > 1e-4 for other in children[1:])
    assert varied is (operator != "average")


# Identities

UNCHANGED: list[tuple[str, dict[str, Any]]] = [
    ("copy_parent", {}),
    ("svd_perturbation", {"strength": 0.0}),
    ("layer_gaussian", {"strength": 0.0}),
    ("full_gaussian", {"strength": 0.0}),
    ("component_masking", {"fraction": 0.0}),
    ("layer_choice", {}),
    ("svd_mix", {}),
    ("average", {}),
    ("extrapolation", {}),
    ("dare_triplets", {"drop": 0.0}),
    ("dare_factors", {"drop": 0.0}),
]


@pytest.mark.parametrize(("operator", "parameters"), UNCHANGED)
@pytest.mark.parametrize("live", [RANK, 2])
def test_identical_parents_and_no_strength_give_the_parent(
    operator: str, parameters: dict[str, Any], live: int
) -> None:
    parent = adapter(1, live)
    assert apart(breed(operator, parent, parent, **parameters), parent) < 1e-6


# Mutations


@given(seeds)
@settings(max_examples=25)
def test_svd_perturbation_rotates_truly_within_the_parents_span(seed: int) -> None:
    parent = adapter(1)
    child = breed("svd_perturbation", parent, seed=seed, strength=0.5)
    for name in SHAPES:
        old, new = decompose(parent[name]), decompose(child[name])
        for before, after in ((old.u, new.u), (old.v, new.v)):
            outside = after - before @ (before.mT @ after)
            assert float(outside.abs().max()) < 1e-5


@given(seeds)
@settings(max_examples=25)
def test_svd_perturbation_changes_singular_values_by_factors_near_one(seed: int) -> None:
    parent = adapter(1)
    child = breed("svd_perturbation", parent, seed=seed)
    for name in SHAPES:
        n = min(RANK, *SHAPES[name])
        factors = singular_values(child[name])[:n] / singular_values(parent[name])[:n]
        assert bool((factors > 0.5).all())
        assert bool((factors < 2.0).all())


def test_component_masking_zeroes_its_share_of_singular_values_and_keeps_the_others() -> None:
    parent = adapter(1)
    child, record = breed_with_record("component_masking", parent, fraction=0.3)
    for name in ("q", "down"):
        old, new = (decompose(each[name]).s for each in (parent, child))
        assert int((new > 0.0).sum()) == RANK - math.ceil(0.3 * RANK)
        assert all(float((old - value).abs().min()) < 1e-6 for value in new[new > 0.0])
    assert record["energy_kept"] == pytest.approx(norm(child) ** 2 / norm(parent) ** 2, rel=1e-5)


def test_layer_gaussian_changes_its_share_of_the_modules() -> None:
    shapes = {f"layers.{index}": (8, 8) for index in range(9)}
    parent = adapter(1, shapes=shapes)
    child, record = breed_with_record("layer_gaussian", parent, fraction=1.0 / 3.0)
    changed = [name for name in shapes if not torch.equal(child[name][0], parent[name][0])]
    assert len(changed) == record["n_modules"] == 3


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_gaussian_noise_is_relative_to_the_size_of_the_update(size: float) -> None:
    parent = {name: (a, size * b) for name, (a, b) in adapter(1).items()}
    (distance,) = breed_with_record("full_gaussian", parent)[1]["distances"]
    assert distance == pytest.approx(
        breed_with_record("full_gaussian", adapter(1))[1]["distances"][0], rel=1e-3
    )
    assert 0.05 < distance < 0.5


# Crossovers


def test_parents_that_cancel_out_leave_a_child_that_equals_the_base_and_can_learn() -> None:
    parent = adapter(1)
    opposite = {name: (a, -b) for name, (a, b) in parent.items()}
    child = breed("average", parent, opposite)
    assert norm(child) == 0.0
    assert all_directions_learn(child)


def test_layer_choice_takes_every_module_whole_from_one_parent() -> None:
    shapes = {f"layers.{index}": (8, 8) for index in range(20)}
    p1, p2 = adapter(1, shapes=shapes), adapter(2, shapes=shapes)
    child, record = breed_with_record("layer_choice", p1, p2)
    from_second = [torch.equal(child[name][0], p2[name][0]) for name in shapes]
    for name, second in zip(shapes, from_second, strict=True):
        source = (p2 if second else p1)[name]
        assert all(torch.equal(x, y) for x, y in zip(child[name], source, strict=True))
    assert 0 < sum(from_second) == record["from_second"] < 20


@given(seeds)
@settings(max_examples=25)
def test_svd_mix_keeps_the_strongest_triplets_of_the_first_parent(seed: int) -> None:
    p1 = adapter(1)
    child, record = breed_with_record("svd_mix", p1, adapter(2), seed=seed)
    k = record["k"]
    assert 1 <= k < RANK
    for name in SHAPES:
        top = decompose(p1[name]).part(0, k)
        torch.testing.assert_close(
            top.u.mT @ update(child[name]) @ top.v, torch.diag(top.s), atol=1e-6, rtol=0.0
        )


def test_svd_mix_adds_an_orthogonal_rest_of_the_second_parent() -> None:
    p1, p2 = adapter(1), adapter(2)
    child, record = breed_with_record("svd_mix", p1, p2)
    k = record["k"]
    for name in SHAPES:
        top, rest = decompose(p1[name]).part(0, k), decompose(p2[name]).part(k, RANK)
        left = torch.eye(len(top.u)).double() - top.u @ top.u.mT
        right = torch.eye(len(top.v)).double() - top.v @ top.v.mT
        expected = top.u * top.s @ top.v.mT + left @ (rest.u * rest.s @ rest.v.mT) @ right
        torch.testing.assert_close(update(child[name]), expected, atol=1e-6, rtol=0.0)


def test_dare_is_cut_to_the_rank_only_when_more_triplets_survive() -> None:
    p1, p2 = adapter(1), adapter(2)
    assert breed_with_record("dare_triplets", p1, p2, drop=0.0)[1]["energy_kept"] < 1.0
    assert breed_with_record("dare_triplets", adapter(1, 2), adapter(2, 2), drop=0.0)[1][
        "energy_kept"
    ] == pytest.approx(1.0)


def test_dare_gives_the_mean_of_the_parents_on_average() -> None:
    shapes, n = {"q": SHAPES["q"]}, 300
    p1, p2 = adapter(1, 2, shapes), adapter(2, 2, shapes)
    total = sum(update(breed("dare_triplets", p1, p2, seed=seed, drop=0.5)["q"]) for seed in range(n))
    mean = (update(p1["q"]) + update(p2["q"])) / 2.0
    assert float((total / n - mean).abs().max()) < 4.0 / math.sqrt(n) / 2.0


# The registries and refusals


def test_a_child_of_another_layout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(parents: list[Adapter], rng: np.random.Generator) -> Any:
        return {"q": parents[0]["q"]}, {}

    monkeypatch.setitem(MUTATIONS, "lose", lose)
    with pytest.raises(PopulationError, match="the child of lose"):
        breed("lose", adapter(1))


def test_a_child_that_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def normed(parents: list[Adapter], rng: np.random.Generator) -> Any:
        return {name: (a, b / b.norm()) for name, (a, b) in parents[0].items()}, {}

    monkeypatch.setitem(MUTATIONS, "normed", normed)
    newborn = {name: (a, torch.zeros_like(b)) for name, (a, b) in adapter(1).items()}
    with pytest.raises(PopulationError, match="the child of normed holds numbers that are not finite"):
        breed("normed", newborn)


def test_parents_of_different_layouts_are_refused() -> None:
    with pytest.raises(PopulationError, match="the parents of average"):
        breed("average", adapter(1), adapter(2, shapes=SHAPES | {"q": (5, 5)}))
