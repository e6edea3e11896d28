"""A base kept in 8 or 4 bits: what rounding does to its weights, and that learner and sampler use the same ones."""

from __future__ import annotations

import weakref
from typing import Any, Literal

import pytest
import torch
from tiny_base import layout_of, random_rows, tiny_model, training_rows
from torch import nn

from populora_core.config.sections import UpdateSection
from populora_core.learner.rows import UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.base import load_base
from populora_core.model.probe import given_logprobs
from populora_core.model.quantised import QuantisedLinear, quantise
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.sampler.requests import Text
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support.shipped import shipped

Bits = Literal[8, 4]
EACH = pytest.mark.parametrize("bits", [8, 4])


@EACH
@pytest.mark.parametrize("inputs", [128, 96, 6])
def test_a_weight_is_rounded_to_the_nearest_step_of_its_group(bits: Bits, inputs: int) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(inputs, 5)
    rounded = QuantisedLinear(linear, bits)
    steps = rounded.scales.expand(-1, -1, inputs // rounded.scales.shape[1]).flatten(1)
    assert ((rounded.weight - linear.weight).abs() <= steps * 0.5001).all()
    assert rounded.weight.abs().amax() == pytest.approx(linear.weight.abs().amax().item(), rel=1e-6)
    assert rounded.codes.numel() == 5 * inputs * bits // 8
    x = torch.randn(3, inputs)
    assert torch.equal(rounded(x), nn.functional.linear(x, rounded.weight, linear.bias))


def test_no_layer_outlives_its_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device need not hold the whole base in 16 bits beside the rounded one."""
    model, moved = tiny_model(), nn.Linear.to
    left = weakref.WeakSet(each for each in model.modules() if isinstance(each, nn.Linear))
    left.discard(model.get_output_embeddings())
    counts: list[int] = []

    def counted(layer: nn.Linear, device: str) -> Any:
        counts.append(len(left))
        return moved(layer, device)

    monkeypatch.setattr(nn.Linear, "to", counted)
    quantise(model, 4, "cpu")
    assert counts == list(range(len(counts), 0, -1)) and not left


@EACH
def test_members_learn_over_it_as_over_a_base_of_those_weights(bits: Bits) -> None:
    rounded, same = tiny_model(), tiny_model()
    quantise(rounded, bits, "cpu")
    for name, module in rounded.named_modules():
        if isinstance(module, QuantisedLinear):
            same.get_submodule(name).weight.data.copy_(module.weight)
    rows, rules = training_rows({"a": 2, "b": 1}), UpdateRules(UpdateSection(learning_rate=1e-2))
    found = []
    for model in (rounded, same):
        stacked = StackedAdapters(model, layout_of(model))
        states = {m: MemberState.newborn(row) for m, row in random_rows(stacked.layout, "a", "b").items()}
        found.append(update_members(stacked, states, rows, rules)[0])
    for member in ("a", "b"):
        assert torch.equal(found[0][member].weights, found[1][member].weights)


@EACH
def test_a_base_loads_rounded_and_sampler_and_learner_agree_on_it(bits: Bits) -> None:
    base, whole = (load_base(shipped("base_model", "tiny"), bits=each) for each in (bits, 16))
    size, full = (sum(t.nbytes for t in model.state_dict().values()) for model in (base.model, whole.model))
    assert size < full
    assert not any(type(each) is nn.Linear for each in base.model.model.modules())
    stacked = StackedAdapters(base.model, layout_of(base.model))
    stacked.load(random_rows(stacked.layout, "a"))
    text = Text("a", (5, 6, 7), (8, 9, 10, 11))
    (scored,) = TorchSampler(stacked, base.stop_ids).score([text])
    assert scored == pytest.approx(
        given_logprobs(stacked, "a", text.prompt_ids, text.completion_ids), abs=1e-4
    )
    layout = layout_of(whole.model)
    plain = StackedAdapters(whole.model, layout)
    plain.load(random_rows(layout, "a"))
    unrounded = given_logprobs(plain, "a", text.prompt_ids, text.completion_ids)
    assert max(abs(a - b) for a, b in zip(scored, unrounded, strict=True)) > 1e-4, "it is another policy"
