"""Inheritance of the optimiser: the moments that a child takes from its parents."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from populora_core.population.variation import CROSSOVERS, MUTATIONS, make_child
from populora_core.population.variation.lowrank import Factors
from populora_core.population.variation.moments import Moments, inherited

OUT, IN, RANK = 24, 32, 4


def adapter(seed: int, out: int = OUT) -> dict[str, Factors]:
    draw = torch.Generator().manual_seed(seed)
    return {
        name: (torch.randn(RANK, IN, generator=draw), torch.randn(out, RANK, generator=draw))
        for name in ("q", "v")
    }


def gradients(parent: dict[str, Factors], of_update: Tensor) -> dict[str, Factors]:
    """What a gradient [out, in] of the update is for its factors."""
    return {name: (b.mT @ of_update, of_update @ a.mT) for name, (a, b) in parent.items()}


def squares(parent: dict[str, Factors]) -> dict[str, Factors]:
    return {name: (a.square() + 0.1, b.square() + 0.1) for name, (a, b) in parent.items()}


def child_of(operator: str, *parents: dict[str, Factors]) -> dict[str, Factors]:
    return make_child(operator, parents, np.random.default_rng(3), 1.0)[0]


@pytest.mark.parametrize("out", [OUT, RANK - 1], ids=["usual", "fewer-outputs-than-rank"])
def test_a_copy_goes_on_with_its_parents_moments(out: int) -> None:
    parent = adapter(0, out)
    own = Moments(adapter(1, out), squares(adapter(2, out)))
    heir = inherited(child_of("copy_parent", parent), [parent], [own])
    for name in parent:
        for side in range(2):
            torch.testing.assert_close(heir.mean[name][side], own.mean[name][side], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(heir.square[name][side], own.square[name][side], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("operator", "parents"), [("average", 2), ("svd_perturbation", 1)])
def test_the_mean_gradient_is_that_of_the_childs_own_factors(operator: str, parents: int) -> None:
    """A parent's average with itself, or a turn within its span, has new factors; the update's gradient stays."""
    parent = adapter(0)
    of_update = torch.randn(OUT, IN, generator=torch.Generator().manual_seed(9))
    child = child_of(operator, *[parent] * parents)
    own = Moments(gradients(parent, of_update), squares(parent))
    heir = inherited(child, [parent] * parents, [own] * parents)
    for name, wanted in gradients(child, of_update).items():
        for side in range(2):
            torch.testing.assert_close(heir.mean[name][side], wanted[side], rtol=1e-3, atol=1e-3)


def test_each_module_of_a_choice_takes_the_moments_of_the_parent_it_comes_from() -> None:
    parents = [adapter(0), adapter(1)]
    moments = [Moments(adapter(seed), squares(adapter(seed))) for seed in (2, 3)]
    child = child_of("layer_choice", *parents)
    heir = inherited(child, parents, moments)
    for name, (a, _) in child.items():
        chosen = [torch.equal(a, parent[name][0]) for parent in parents].index(True)
        gaps = [float((heir.mean[name][1] - each.mean[name][1]).norm()) for each in moments]
        assert gaps[chosen] < 0.5 * gaps[1 - chosen]


def test_a_direction_that_no_parent_has_takes_their_usual_square() -> None:
    parent = adapter(0)
    a, b = parent["q"]
    basis = torch.linalg.qr(torch.cat([a, torch.randn(1, IN)]).mT).Q.mT
    new = {"q": (torch.cat([a[1:], basis[-1:]]), b)}
    own = Moments({"q": adapter(1)["q"]}, {"q": squares(adapter(2))["q"]})
    heir = inherited(new, [{"q": parent["q"]}], [own])
    torch.testing.assert_close(heir.square["q"][1][:, -1], own.square["q"][1].mean(dim=1))
    assert float(heir.mean["q"][1][:, -1].abs().max()) < 1e-4


@pytest.mark.parametrize("operator", sorted({*MUTATIONS, *CROSSOVERS}))
def test_every_operators_child_has_moments_with_which_adam_can_step(operator: str) -> None:
    parents = [adapter(0), adapter(1)][: 2 if operator in CROSSOVERS else 1]
    moments = [Moments(adapter(seed), squares(adapter(seed))) for seed in range(2, 2 + len(parents))]
    heir = inherited(child_of(operator, *parents), parents, moments)
    for factors in heir.square.values():
        assert all(bool((side >= 0.0).all()) and bool(side.isfinite().all()) for side in factors)
    for factors in heir.mean.values():
        assert all(bool(side.isfinite().all()) for side in factors)
