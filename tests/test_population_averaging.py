"""Averaging: laws of the map from members to what they become, and of the moments that go with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from triplets import best, update

from populora_core.population.variation.averaging import Averaged, averaged, weights_of
from populora_core.population.variation.lowrank import Factors
from populora_core.population.variation.moments import Moments, inherited
from populora_core.support.errors import PopulationError

OUT, IN, RANK = 14, 18, 3

counts = st.integers(2, 5)
shares = st.just(1.0) | st.floats(0.05, 1.0)  # at 1 all become one
seeds = st.integers(0, 10_000)


def adapter(seed: int, rank: int = RANK) -> dict[str, Factors]:
    draw = torch.Generator().manual_seed(seed)
    return {
        name: (torch.randn(rank, IN, generator=draw), torch.randn(OUT, rank, generator=draw))
        for name in ("q", "v")
    }


def optimiser(seed: int) -> Moments:
    square = {name: (a.square() + 0.1, b.square() + 0.1) for name, (a, b) in adapter(seed + 1).items()}
    return Moments(adapter(seed), square)


def average(members: list[dict[str, Factors]], share: float = 1.0) -> list[Averaged]:
    moments = [optimiser(100 + place) for place in range(len(members))]
    return averaged(members, moments, share, np.random.default_rng(0))


@given(counts, shares, seeds)
@settings(max_examples=25)
def test_an_average_of_copies_is_the_member_itself(count: int, share: float, seed: int) -> None:
    member = adapter(seed)
    for found in average([member] * count, share):
        assert found.energy_kept == pytest.approx(1.0)
        for name, factors in member.items():
            torch.testing.assert_close(update(found.factors[name]), update(factors), rtol=1e-4, atol=1e-4)


@given(counts, shares, seeds)
@settings(max_examples=25)
def test_a_share_leads_that_far_from_each_members_own_update_to_the_mean(
    count: int, share: float, seed: int
) -> None:
    members = [adapter(seed + place) for place in range(count)]
    for member, found in zip(members, average(members, share), strict=True):
        for name, factors in member.items():
            mean = torch.stack([update(each[name]) for each in members]).mean(dim=0)
            aimed = (1.0 - share) * update(factors) + share * mean
            torch.testing.assert_close(update(found.factors[name]), best(aimed, RANK), rtol=1e-3, atol=1e-3)


def test_distance_and_energy_say_what_the_average_did() -> None:
    members = [adapter(seed) for seed in range(3)]
    for member, found in zip(members, average(members, 0.5), strict=True):
        before, after, aimed = [], [], []
        for name, factors in member.items():
            mean = torch.stack([update(each[name]) for each in members]).mean(dim=0)
            before.append(update(factors))
            after.append(update(found.factors[name]))
            aimed.append(0.5 * update(factors) + 0.5 * mean)
        whole, kept, wanted = map(torch.stack, (before, after, aimed))
        assert found.distance == pytest.approx(float((kept - whole).norm() / whole.norm()), rel=1e-4)
        assert found.energy_kept == pytest.approx(float((kept.norm() / wanted.norm()) ** 2), rel=1e-4)


def test_what_all_become_is_one_adapter_with_one_optimiser() -> None:
    first, *others = average([adapter(seed) for seed in range(3)])
    for other in others:
        for name in first.factors:
            assert torch.equal(first.factors[name][0], other.factors[name][0])
            assert torch.equal(first.moments.mean[name][1], other.moments.mean[name][1])


def test_moments_of_an_average_are_those_of_a_child_of_all_members_alike() -> None:
    members = [adapter(seed) for seed in range(3)]
    moments = [optimiser(100 + place) for place in range(3)]
    (found, *_) = average(members)
    child = inherited(found.factors, members, moments)
    for name in child.mean:
        torch.testing.assert_close(found.moments.mean[name], child.mean[name])
        torch.testing.assert_close(found.moments.square[name], child.square[name])


def test_gradients_of_the_updates_weigh_in_the_moments_as_the_updates_do() -> None:
    """Members of one span: the mean gradient that follows is that of the gradients' own weighted mean."""
    a, b = adapter(0)["q"]
    turns = [torch.randn(RANK, RANK, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2, 3)]
    members = [{"q": (turn @ a, b)} for turn in turns]
    of_update = [torch.randn(OUT, IN, generator=torch.Generator().manual_seed(seed)) for seed in (4, 5, 6)]
    moments = []
    for member, gradient in zip(members, of_update, strict=True):
        own_a, own_b = member["q"]
        mean = {"q": (own_b.mT @ gradient, gradient @ own_a.mT)}
        moments.append(Moments(mean, {"q": (torch.ones_like(own_a), torch.ones_like(own_b))}))
    found = averaged(members, moments, 0.4, np.random.default_rng(0))
    for place, each in enumerate(found):
        weights = weights_of(place, 3, 0.4)
        gradient = sum(w * g for w, g in zip(weights, of_update, strict=True))
        made_a, _ = each.factors["q"]
        torch.testing.assert_close(each.moments.mean["q"][1], gradient @ made_a.mT, rtol=1e-2, atol=1e-2)


@given(counts, shares)
def test_weights_of_a_member_add_up_to_one(count: int, share: float) -> None:
    for place in range(count):
        weights = weights_of(place, count, share)
        assert sum(weights) == pytest.approx(1.0)
        assert max(weights) == weights[place]


def test_members_of_another_layout_are_refused() -> None:
    with pytest.raises(PopulationError, match="members to average"):
        average([adapter(0), adapter(1, rank=2)])
