from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import NoneType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_base import layout_of, random_rows, tiny_model
from tiny_requests import MEMBERS, tiny_stacked
from torch import nn

from populora_core.model.routes import FEW_PRODUCTS, Masked, RowBlock, Scattered, route_of, step_route
from populora_core.model.stacked import StackedAdapters, StackedLinear
from populora_core.support.errors import BaseModelError, PopulationError

MANY = 1000  # tokens, for which any part is long enough
IDS = torch.arange(2, 14).view(6, 2).repeat(1, 3) % 20


@pytest.fixture
def stacked() -> StackedAdapters:
    return tiny_stacked()


def logits(
    stacked: StackedAdapters, slots: list[int | None], ids: torch.Tensor, tokens: int = 1
) -> torch.Tensor:
    with torch.no_grad(), stacked.routed(slots, tokens):
        return stacked.model(input_ids=ids, use_cache=False).logits


def owners(block: RowBlock) -> list[int]:
    """The members of a block's parts."""
    if isinstance(block.members, slice):
        return list(range(block.members.start, block.members.stop))
    return block.members.tolist()


@given(st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=30), st.integers(1, 4))
def test_the_blocks_of_a_route_give_every_row_its_own_member(slots: list[int | None], shortest: int):
    route = route_of(slots, shortest)
    found: list[int | None] = [None] * len(slots)
    for block in route.blocks:
        members = owners(block)
        part = (block.stop - block.start) // block.count
        assert len(members) == block.count
        for row in range(block.start, block.stop):
            found[row] = members[(row - block.start) // part]
    assert (route.n_rows, found) == (len(slots), slots)


def test_equal_shares_make_one_block_and_any_shares_do_where_their_common_part_is_long_enough():
    assert [block.members for block in route_of([0, 0, 1, 1, 2, 2]).blocks] == [slice(0, 3)]
    assert [owners(block) for block in route_of([0, 0, 1, 2, 2]).blocks] == [[0, 0, 1, 2, 2]]
    assert [owners(block) for block in route_of([0, 0, 2, 2, 2, 2], 2).blocks] == [[0, 2, 2]]
    assert len(route_of([0, 0, 1, 2, 2], 2).blocks) == 3
    assert len(route_of([0, 0, None, 1, 1]).blocks) == 2


class Factors:
    """Those of one layer for five members."""

    def __init__(self, random: torch.Generator) -> None:
        self.a, self.b = (torch.randn(*shape, generator=random) for shape in ((5, 2, 3), (5, 4, 2)))

    def side_by_side(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.a.flatten(0, 1).T, self.b.mT.flatten(0, 1)


@pytest.mark.parametrize("make", [Scattered.of, partial(Masked.of, members=5, rank=2)])
@given(
    slots=st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=1, max_size=30).filter(
        lambda slots: {*slots} != {None}
    )
)
def test_rows_in_any_order_get_the_product_of_their_own_member(
    make: Callable[[list[int | None]], Scattered | Masked], slots: list[int | None]
):
    random = torch.Generator().manual_seed(len(slots))
    factors, x = Factors(random), torch.randn(len(slots), 1, 3, generator=random)
    y = torch.ones(len(slots), 1, 4)
    make(slots).add_to(y, x, factors, 0.5)
    for row, slot in enumerate(slots):
        own = torch.ones(4)
        if slot is not None:
            own += 0.5 * factors.b[slot] @ factors.a[slot] @ x[row, 0]
        torch.testing.assert_close(y[row, 0], own)


@pytest.mark.parametrize(
    ("rows", "members", "kind"),
    [
        ([0, 0, 1] * 8, 2, Masked),
        ([0, 1, 2, 0] * 64, 4, Masked),
        ([0, 1, 2, 0] * 64, 8, Scattered),
        ([0] * 32 + [None] * 8 + [1] * 32, 32, NoneType),
        ([3] * 10 + [None], 4, NoneType),
        ([None] * 3, 4, NoneType),
    ],
)
def test_a_step_goes_masked_gathered_or_in_blocks_by_its_rows_and_members(
    rows: list[int | None], members: int, kind: type
):
    assert isinstance(step_route(rows, members, rank=8).mixed, kind)


def test_a_row_sees_nothing_of_another_whose_numbers_are_not_finite():
    factors, x = Factors(torch.Generator().manual_seed(0)), torch.ones(2, 1, 3)
    x[1] = torch.inf
    found = torch.zeros(2, 1, 4)
    Masked.of([0, 1], 5, 2).add_to(found, x, factors, 1.0)
    torch.testing.assert_close(found[0, 0], factors.b[0] @ factors.a[0] @ x[0, 0])


def load_others(stacked: StackedAdapters) -> None:
    stacked.load({name: 3.0 * row for name, row in random_rows(stacked.layout, *MEMBERS).items()})


def change_in_place(stacked: StackedAdapters) -> None:
    with torch.no_grad():
        stacked.weights.mul_(3.0)


@pytest.mark.parametrize("change", [load_others, change_in_place])
def test_a_step_after_the_weights_have_changed_sees_the_new_ones(
    stacked: StackedAdapters, change: Callable[[StackedAdapters], None]
):
    slots: list[int | None] = [2, 0, 0, 1, 2, 1]
    with torch.no_grad():
        assert isinstance(stacked.route_for(slots).mixed, Masked)
    before = logits(stacked, slots, IDS)
    change(stacked)
    after = logits(stacked, slots, IDS)
    assert (after - before).abs().max() > 0.1
    for row, slot in enumerate(slots):
        alone = logits(stacked, [slot], IDS[row : row + 1])[0]
        torch.testing.assert_close(after[row], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("few", [FEW_PRODUCTS["cpu"], 0], ids=["masked", "gathered"])
@pytest.mark.parametrize("tokens", [1, MANY])
@pytest.mark.parametrize(
    "slots", [[0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 2, 2], [None, 0, 0, None, 2, 1], [2, None, 0, 2, None, 0]]
)
def test_a_mixed_batch_gives_each_row_what_its_member_gives_alone(
    stacked: StackedAdapters, monkeypatch: pytest.MonkeyPatch, slots: list[int | None], tokens: int, few: int
):
    monkeypatch.setitem(FEW_PRODUCTS, "cpu", few)
    mixed = logits(stacked, slots, IDS, tokens)
    for row, slot in enumerate(slots):
        alone = logits(stacked, [slot], IDS[row : row + 1])[0]
        torch.testing.assert_close(mixed[row], alone, rtol=1e-5, atol=1e-5)


def test_the_adapters_change_the_logits_and_rows_of_no_member_do_not_see_them(stacked: StackedAdapters):
    base = tiny_model()(input_ids=IDS, use_cache=False).logits
    torch.testing.assert_close(logits(stacked, [None] * 6, IDS), base, rtol=1e-6, atol=1e-6)
    assert (logits(stacked, [0] * 6, IDS) - base).abs().max() > 0.1


@pytest.mark.parametrize("tokens", [1, MANY])
@pytest.mark.parametrize(
    "slots", [[0, 0, 1, 1, 2, 2], [2, 2, 0, 0, 1, 1], [None, 0, 1, 1, 2, 2], [2, 0, 0, 1, 1, 0], [1] * 6]
)
def test_gradients_in_a_mixed_batch_equal_autograd_through_explicit_factors(
    slots: list[int | None], tokens: int
):
    """One linear layer in float64 against x W' + scale x A' B' written out."""
    model = tiny_model(torch.float64)
    layout = layout_of(model)
    stacked = StackedAdapters(model, layout, torch.float64)
    stacked.load(random_rows(layout, *MEMBERS))
    name = "model.layers.1.mlp.up_proj"
    layer = model.get_submodule(name)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 5, 32, dtype=torch.float64, generator=generator, requires_grad=True)
    seen = torch.randn(6, 5, 48, dtype=torch.float64, generator=generator)
    with stacked.routed(slots, tokens):
        (layer(x) * seen).sum().backward()
    found_x, x.grad = x.grad, None

    leaf = stacked.weights.clone().requires_grad_()
    expected = nn.functional.linear(x, layer.base.weight)
    for row, slot in enumerate(slots):
        if slot is not None:
            a, b = layout.views(leaf[slot])[name]
            expected = expected.index_add(
                0, torch.tensor([row]), layout.scale * (x[row : row + 1] @ a.T @ b.T)
            )
    (expected * seen).sum().backward()
    torch.testing.assert_close(found_x, x.grad, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stacked.grad, leaf.grad, rtol=1e-12, atol=1e-12)


def test_a_batch_that_does_not_fit_its_route_is_refused(stacked: StackedAdapters):
    with pytest.raises(BaseModelError, match="route"):
        stacked.model(input_ids=IDS, use_cache=False)
    with pytest.raises(BaseModelError, match="route"):
        logits(stacked, [0, 1], IDS)


def test_a_member_that_is_not_resident_is_named(stacked: StackedAdapters):
    with pytest.raises(PopulationError, match="nobody"):
        stacked.slot("nobody")


def test_loading_replaces_the_residents(stacked: StackedAdapters):
    rows = random_rows(stacked.layout, "z", "y", seed=9)
    stacked.load(rows)
    assert stacked.members == ("y", "z")
    assert torch.equal(stacked.weights[1], rows["z"])
    stacked.load({})
    assert stacked.members == ()


def test_adapters_over_adapters_are_refused(stacked: StackedAdapters):
    with pytest.raises(BaseModelError, match="cannot take an adapter"):
        StackedAdapters(stacked.model, stacked.layout)


def test_in_bfloat16_the_masters_stay_in_float32():
    model = tiny_model(torch.bfloat16)
    layout = layout_of(model)
    stacked = StackedAdapters(model, layout)
    rows = random_rows(layout, *MEMBERS)
    stacked.load(rows)
    mixed = logits(stacked, [0, 1, 1, 2, 2, 2], IDS).float()
    exact = StackedAdapters(tiny_model(), layout)
    exact.load(rows)
    assert torch.equal(stacked.weights[1], rows["b"])
    assert (mixed - logits(exact, [0, 1, 1, 2, 2, 2], IDS)).abs().mean() < 0.1


def test_in_bfloat16_a_young_members_term_is_not_lost_in_the_rounding_of_the_base():
    """Added to the base's rounded product, a term of a tenth of its last place would leave most numbers as they are."""
    model = tiny_model(torch.bfloat16)
    layout = layout_of(model)
    stacked = StackedAdapters(model, layout)
    row = random_rows(layout, "a")["a"]
    for _, b in layout.views(row).values():
        b.mul_(1e-4 / b.abs().mean())
    stacked.load({"a": row})
    layer = next(module for module in model.modules() if isinstance(module, StackedLinear))
    x = torch.randn(4, 512, layer.base.in_features, generator=torch.Generator().manual_seed(0)).bfloat16()
    base = x.double() @ layer.base.weight.double().T + (
        0 if layer.base.bias is None else layer.base.bias.double()
    )
    term = layout.scale * (x.double() @ layer.a[0].double().T @ layer.b[0].double().T)

    def share(y):
        return float((y.double() - base).flatten() @ term.flatten() / term.square().sum())

    with torch.no_grad(), stacked.routed([0] * 4, 512):
        assert share(layer(x)) == pytest.approx(1.0, abs=0.15)
        with stacked.adding_to_base():
            assert share(layer(x)) < 0.5, "else this proves nothing"
