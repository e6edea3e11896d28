from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_base import layout_of, random_rows, tiny_model

from populora_core.support.errors import AdapterError


def test_every_linear_layer_but_the_output_layer_has_a_slot():
    layout = layout_of(tiny_model())
    leaves = {slot.name.rpartition(".")[2] for slot in layout.modules}
    assert leaves == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert len(layout.modules) == 2 * len(leaves)


def test_the_factors_tile_the_row_without_gap_or_overlap():
    layout = layout_of(tiny_model())
    row = torch.zeros(layout.dimension)
    for a, b in layout.views(row).values():
        a += 1
        b += 1
    assert torch.equal(row, torch.ones(layout.dimension))


def test_the_layers_of_one_kind_of_module_lie_side_by_side():
    layout = layout_of(tiny_model())
    q = [slot for slot in layout.modules if slot.name.endswith("q_proj")]
    assert q[1].a_offset == q[0].a_offset + layout.rank * q[0].in_features
    assert q[1].b_offset == q[0].b_offset + layout.rank * q[0].out_features


def test_a_newborn_has_a_zero_b_and_a_bounded_a():
    layout = layout_of(tiny_model())
    row, again = (layout.init_row(np.random.default_rng(0)) for _ in range(2))
    assert torch.equal(row, again)
    for a, b in layout.views(row).values():
        assert not b.any()
        assert 0.5 * a.shape[1] ** -0.5 < a.abs().max() <= a.shape[1] ** -0.5


def test_peft_names_and_factors_give_the_row_back():
    layout = layout_of(tiny_model())
    row = random_rows(layout, "m")["m"]
    assert torch.equal(layout.from_peft(layout.to_peft(row)), row)
    assert torch.equal(layout.row(layout.views(row)), row)
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in layout.to_peft(row)


@pytest.mark.parametrize("damage", ["missing", "foreign", "shape", "nan"])
def test_a_state_dict_that_does_not_fit_is_refused(damage: str):
    layout = layout_of(tiny_model())
    state = layout.to_peft(random_rows(layout, "m")["m"])
    key = next(iter(state))
    match damage:
        case "missing":
            del state[key]
        case "foreign":
            state["base_model.model.lm_head.lora_A.weight"] = torch.zeros(4, 32)
        case "shape":
            state[key] = torch.zeros(8, 32)
        case "nan":
            state[key] = torch.full_like(state[key], float("nan"))
    with pytest.raises(AdapterError):
        layout.from_peft(state)
