"""Variation against dense linear algebra: optimality, rank, symmetry, scale, gauge and precision."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from triplets import best, decompose, update

from populora_core.model.layout import AdapterLayout, ModuleSlot
from populora_core.population.variation import CROSSOVERS, MUTATIONS, make_child
from populora_core.population.variation.lowrank import Adapter, Factors, measured
from populora_core.support import trust
from populora_core.support.errors import PopulationError

OPERATORS = sorted(MUTATIONS | CROSSOVERS)
SHAPES = {"q": (40, 30), "down": (50, 26), "narrow": (21, 3)}  # module -> (in, out)
RANK, SCALE = 5, 2.0

operators = st.sampled_from(OPERATORS)
seeds = st.integers(0, 2**32)
conditions = st.floats(0.0, 4.0).map(lambda exponent: 10.0**exponent)

pytestmark = pytest.mark.usefixtures("one_thread")


def matrix(rows: int, columns: int, condition: float, rng: np.random.Generator) -> Tensor:
    """A random matrix [rows, columns] with this ratio of its largest to its least singular value."""
    n = min(rows, columns)
    left, right = (np.linalg.qr(rng.standard_normal((size, n)))[0] for size in (rows, columns))
    return torch.from_numpy(left * np.logspace(0, -math.log10(condition), n) @ right.T)


def adapter(seed: int, condition: float = 10.0, dtype: torch.dtype = torch.float64) -> dict[str, Factors]:
    rng = np.random.default_rng(seed)
    return {
        name: (
            matrix(RANK, fan_in, condition, rng).to(dtype),
            matrix(fan_out, RANK, condition, rng).to(dtype),
        )
        for name, (fan_in, fan_out) in SHAPES.items()
    }


def breed(
    operator: str, *parents: Adapter, seed: int = 0, scale: float = SCALE, **options: Any
) -> tuple[dict[str, Factors], dict[str, Any]]:
    chosen = parents[: 1 if operator in MUTATIONS else 2]
    return make_child(operator, chosen, np.random.default_rng(seed), scale, **options)


def relative(child: Adapter, target: dict[str, Tensor]) -> float:
    """Largest relative Frobenius distance of a module's update to its target; an absolute one where that is 0."""
    return max(
        float((update(child[n]) - target[n]).norm() / (target[n].norm() if target[n].any() else 1.0))
        for n in target
    )


def regauge(parent: Adapter, condition: float, seed: int) -> dict[str, Factors]:
    rng = np.random.default_rng(seed)
    gauges = {name: matrix(RANK, RANK, condition, rng) for name in parent}
    return {
        name: (torch.linalg.solve(gauges[name], a.double()).to(a), (b.double() @ gauges[name]).to(b))
        for name, (a, b) in parent.items()
    }


# Optimality


@given(seeds, seeds, conditions, conditions)
@settings(max_examples=60)
def test_the_average_is_the_dense_optimum_to_ten_digits(
    seed: int, other: int, condition: float, other_condition: float
) -> None:
    p1, p2 = adapter(seed, condition), adapter(other, other_condition)
    child, _ = breed("average", p1, p2)
    assert relative(child, {n: best((update(p1[n]) + update(p2[n])) / 2.0, RANK) for n in SHAPES}) < 1e-10


@given(seeds, seeds, conditions, st.floats(-8.0, 0.0))
@settings(max_examples=60)
def test_the_extrapolation_is_the_dense_optimum_to_ten_digits_of_the_parents(
    seed: int, other: int, condition: float, closeness: float
) -> None:
    """Siblings, however close, included: the error is measured against the parents where they cancel."""
    p1, step = adapter(seed, condition), adapter(other, condition)
    p2 = {n: (a + 10.0**closeness * step[n][0], b + 10.0**closeness * step[n][1]) for n, (a, b) in p1.items()}
    child, record = breed("extrapolation", p1, p2)
    h = record["h"]
    assert 1.0 <= h <= 1.5, "from the first parent beyond the second"
    for name in SHAPES:
        d1, d2 = update(p1[name]), update(p2[name])
        target = best((1.0 - h) * d1 + h * d2, RANK)
        assert float((update(child[name]) - target).norm()) < 1e-10 * float(d1.norm() + d2.norm())


@given(seeds, seeds)
@settings(max_examples=25)
def test_float32_parents_breed_the_dense_optimum_to_float32(seed: int, other: int) -> None:
    p1, p2 = adapter(seed, dtype=torch.float32), adapter(other, dtype=torch.float32)
    child, _ = breed("average", p1, p2)
    assert relative(child, {n: best((update(p1[n]) + update(p2[n])) / 2.0, RANK) for n in SHAPES}) < 3e-6


@given(seeds, st.sampled_from(["average", "extrapolation", "component_masking"]))
@settings(max_examples=25)
def test_energy_kept_is_what_dense_algebra_says(seed: int, operator: str) -> None:
    p1, p2 = adapter(seed), adapter(seed + 1)
    child, record = breed(operator, p1, p2, seed=seed)
    kept = sum(float(update(child[n]).square().sum()) for n in SHAPES)
    weights = {
        "average": (0.5, 0.5),
        "extrapolation": (1.0 - record.get("h", 0.0), record.get("h", 0.0)),
        "component_masking": (1.0, 0.0),
    }[operator]
    aimed = sum(
        float((weights[0] * update(p1[n]) + weights[1] * update(p2[n])).square().sum()) for n in SHAPES
    )
    assert record["energy_kept"] == pytest.approx(kept / aimed, rel=1e-9)


# Rank and symmetry


@given(operators, seeds, seeds)
def test_the_rank_never_grows(operator: str, seed: int, other: int) -> None:
    child, _ = breed(operator, adapter(seed), adapter(other), seed=seed)
    for name, (a, b) in child.items():
        assert (len(a), b.shape[1]) == (RANK, RANK)
        values = torch.linalg.svdvals(update(child[name]))
        assert bool((values[RANK:] <= 1e-12 * values[0]).all())


@given(seeds, seeds)
@settings(max_examples=25)
def test_crossovers_that_treat_parents_alike_do_not_ask_for_their_order(seed: int, other: int) -> None:
    p1, p2 = adapter(seed), adapter(other)
    for operator, parameters in (
        ("average", {}),
        ("dare_triplets", {"drop": 0.0}),
        ("dare_factors", {"drop": 0.0}),
    ):
        one, _ = breed(operator, p1, p2, parameters=parameters)
        two, _ = breed(operator, p2, p1, parameters=parameters)
        assert relative(one, {n: update(two[n]) for n in SHAPES}) < 1e-9


# Scale


@given(operators, seeds, st.floats(0.01, 100.0))
def test_operators_commute_with_the_scale(operator: str, seed: int, factor: float) -> None:
    p1, p2 = adapter(1), adapter(2)
    child, record = breed(operator, p1, p2, seed=seed)
    scaled = [{n: (a, factor * b) for n, (a, b) in parent.items()} for parent in (p1, p2)]
    other, other_record = breed(operator, *scaled, seed=seed)
    assert relative(other, {n: factor * update(child[n]) for n in SHAPES}) < 1e-9
    assert other_record["distances"] == pytest.approx(record["distances"], abs=1e-7)
    assert other_record["update_norm"] == pytest.approx(factor * record["update_norm"])


# Gauge, clones, founders


@given(operators, seeds, conditions)
def test_ill_conditioned_factors_of_the_same_update_have_the_same_child(
    operator: str, seed: int, condition: float
) -> None:
    parents = [adapter(1), adapter(2)]
    rewritten = [regauge(parent, condition, seed + index) for index, parent in enumerate(parents)]
    child, _ = breed(operator, *parents, seed=seed)
    other, _ = breed(operator, *rewritten, seed=seed)
    assert relative(other, {n: update(child[n]) for n in SHAPES}) < 1e-7


@given(st.sampled_from(sorted(CROSSOVERS)), seeds)
@settings(max_examples=40)
def test_clones_breed_finite_children_within_their_span(operator: str, seed: int) -> None:
    parent = adapter(1)
    child, record = breed(operator, parent, regauge(parent, 100.0, 7), seed=seed)
    assert all(math.isfinite(value) for value in record["distances"])
    if operator == "dare_factors":  # dropping single entries leaves the span
        return
    for name in SHAPES:
        triplets, made = decompose(parent[name]), update(child[name])
        assert float((made - triplets.u @ (triplets.u.mT @ made)).norm()) < 1e-8


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_zero_singular_value_gets_a_fresh_row_of_a_and_a_zero_column_of_b(operator: str) -> None:
    parent = {n: (a.clone(), b.clone()) for n, (a, b) in adapter(1).items()}
    for a, b in parent.values():
        a[2:], b[:, 2:] = 0.0, 0.0
    child, _ = breed(operator, parent, parent)
    for a, b in child.values():
        dead = (b == 0.0).all(dim=0)
        assert bool((a.abs().sum(dim=1) > 0.0).all())
        if operator not in ("full_gaussian", "layer_gaussian"):  # noise gives every direction some size
            assert int(dead.sum()) >= RANK - 2
        if operator != "dare_factors":  # which may drop a whole column of a narrow B
            assert bool((a[dead].abs() <= 1.0 / math.sqrt(a.shape[1])).all())


# Records, precision and files


def test_a_faint_mutation_is_measured_without_cancellation() -> None:
    _, faint = breed("full_gaussian", adapter(1, dtype=torch.float32), parameters={"strength": 1e-6})
    _, strong = breed("full_gaussian", adapter(1, dtype=torch.float32), parameters={"strength": 1e-2})
    assert faint["distances"][0] == pytest.approx(1e-4 * strong["distances"][0], rel=0.05)


def test_factors_averaged_apart_have_cross_terms_and_say_so() -> None:
    p1, p2 = adapter(1), adapter(2)
    child, record = breed("dare_factors", p1, p2, parameters={"drop": 0.0})
    means = {n: (update(p1[n]) + update(p2[n])) / 2.0 for n in SHAPES}
    cross = sum(float((update(child[n]) - means[n]).square().sum()) for n in SHAPES)
    total = sum(float(mean.square().sum()) for mean in means.values())
    assert record["cross_terms"] == pytest.approx(math.sqrt(cross / total), rel=1e-6)
    assert record["cross_terms"] > 0.1
    assert breed("dare_factors", p1, p1)[1]["cross_terms"] < 1e-6


@pytest.mark.parametrize("drop", [0.3, 0.7])
def test_dare_drops_factor_entries_with_the_probability_asked_for(drop: float) -> None:
    rng = np.random.default_rng(0)
    wide = {
        "q": (
            torch.from_numpy(rng.standard_normal((8, 4000))),
            torch.from_numpy(rng.standard_normal((4000, 8))),
        )
    }
    ((a, b),) = breed("dare_factors", wide, wide, parameters={"drop": drop})[0].values()
    for factor in (a, b):
        assert float((factor == 0.0).double().mean()) == pytest.approx(drop**2, abs=0.02)


def test_dare_leaves_something_however_much_it_drops() -> None:
    wide = {"q": (torch.ones(8, 40_000, dtype=torch.float64), torch.ones(40_000, 8, dtype=torch.float64))}
    ((_, b),) = breed("dare_factors", wide, wide, parameters={"drop": 1.0 - 1e-9})[0].values()
    assert b.any()


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factors_that_are_not_finite_are_refused(operator: str, dtype: torch.dtype) -> None:
    spoilt = adapter(1, dtype=dtype)
    spoilt["q"][1][0, 0] = math.nan
    with pytest.raises(PopulationError, match="not finite"):
        breed(operator, spoilt, adapter(2, dtype=dtype))


@pytest.mark.parametrize("dtypes", [(torch.float64, torch.float32), (torch.bfloat16,) * 2], ids=str)
def test_parents_in_different_or_half_precision_are_refused(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    first, second = dtypes
    with pytest.raises(PopulationError, match=f"all in float32 or all in float64(.|\n)*{second}"):
        breed("average", adapter(1, dtype=first), adapter(2, dtype=second))


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_child_survives_saving_and_loading_as_a_peft_adapter(operator: str, tmp_path: Path) -> None:
    modules, offset = [], 0
    for name, (fan_in, fan_out) in SHAPES.items():
        modules.append(ModuleSlot(name, fan_in, fan_out, offset, offset + RANK * fan_in))
        offset += RANK * (fan_in + fan_out)
    layout = AdapterLayout(RANK, 2.0 * RANK, tuple(modules))
    child, _ = breed(operator, adapter(1, dtype=torch.float32), adapter(2, dtype=torch.float32))
    row = layout.row(child)
    save_file({key: value.contiguous() for key, value in layout.to_peft(row).items()}, tmp_path / "child")
    loaded = layout.views(layout.from_peft(load_file(tmp_path / "child")))
    for name, factors in child.items():
        assert all(torch.equal(x, y) for x, y in zip(factors, loaded[name], strict=True))


def halve(parents: list[Adapter], rng: np.random.Generator, *, by: float = 0.5) -> Any:
    return {name: (a, by * b) for name, (a, b) in parents[0].items()}, {}


def test_an_operator_named_by_its_place_breeds_and_is_measured() -> None:
    trust.remember([f"{__name__}:halve"])
    parent = adapter(1)
    child, record = make_child(f"{__name__}:halve", [parent], np.random.default_rng(0), SCALE, {"by": 0.25})
    assert relative(child, {n: 0.25 * update(parent[n]) for n in SHAPES}) < 1e-12
    assert record["distances"] == [pytest.approx(0.75)] and record["by"] == 0.25
    assert make_child(f"{__name__}:halve", [parent], np.random.default_rng(0), SCALE)[1]["by"] == 0.5


def test_the_distance_of_a_near_copy_has_digits_though_the_factors_are_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(*shape, generator=generator) for shape in ((4, 40), (30, 4)))
    child_b = b * (1 + 3e-5 * torch.randn(30, 4, generator=generator))
    _, (found,) = measured({"q": (a, child_b)}, [{"q": (a, b)}])
    gap = (child_b.double() - b.double()) @ a.double()
    expected = float(torch.linalg.matrix_norm(gap) / torch.linalg.matrix_norm(b.double() @ a.double()))
    assert found == pytest.approx(expected, rel=1e-4)
