from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from tiny_base import layout_of, random_rows, tiny_model

from populora_core.model.adapter_files import (
    CONFIG,
    read_layout,
    read_state,
    read_weights,
    write_moments,
    write_peft,
)
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.store.adapters import MOMENTS, STATE_FILES, WEIGHTS
from populora_core.support.errors import AdapterError

BASE_NAME = "bundled:tiny"


@pytest.fixture(scope="module")
def layout() -> AdapterLayout:
    return layout_of(tiny_model())


def written(folder: Path, layout: AdapterLayout, state: MemberState | None = None) -> MemberState:
    """A member in a folder; one that has made three steps where none is given."""
    row = random_rows(layout, "m")["m"]
    state = state or MemberState(row, row * 0.5, row.square(), 3)
    write_peft(folder, layout, state.weights, BASE_NAME)
    write_moments(folder, layout, state)
    return state


def test_peft_loads_the_folder_and_computes_the_same_logits(tmp_path: Path, layout: AdapterLayout):
    row = random_rows(layout, "m")["m"]
    write_peft(tmp_path / "m", layout, row, BASE_NAME)
    ids = torch.arange(2, 14).view(2, 6)
    peft_model = PeftModel.from_pretrained(tiny_model(), tmp_path / "m")
    stacked = StackedAdapters(tiny_model(), layout)
    stacked.load({"m": row})
    with torch.no_grad(), stacked.routed([0, 0]):
        found = stacked.model(input_ids=ids, use_cache=False).logits
        expected = peft_model(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_rewriting_a_folder_replaces_it_and_leaves_nothing_else(tmp_path: Path, layout: AdapterLayout):
    rows = random_rows(layout, "old", "new")
    for row in rows.values():
        write_peft(tmp_path / "m", layout, row, BASE_NAME)
    assert torch.equal(read_weights(tmp_path / "m", layout), rows["new"])
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert {path.name for path in (tmp_path / "m").iterdir()} == {WEIGHTS, CONFIG}


def test_an_adapter_of_another_rank_is_refused(tmp_path: Path, layout: AdapterLayout):
    write_peft(tmp_path / "m", layout, random_rows(layout, "m")["m"], BASE_NAME)
    with pytest.raises(AdapterError, match="wrong shape"):
        read_weights(tmp_path / "m", layout_of(tiny_model(), rank=8))


@pytest.mark.parametrize("content", [None, b"", b"not what it should be"])
def test_damaged_weights_are_refused(tmp_path: Path, layout: AdapterLayout, content: bytes | None):
    write_peft(tmp_path / "m", layout, random_rows(layout, "m")["m"], BASE_NAME)
    (tmp_path / "m" / WEIGHTS).unlink()
    if content is not None:
        (tmp_path / "m" / WEIGHTS).write_bytes(content)
    with pytest.raises(AdapterError):
        read_weights(tmp_path / "m", layout)


def test_a_member_comes_back_as_it_went(tmp_path: Path, layout: AdapterLayout):
    state = written(tmp_path / "m", layout)
    found = read_state(tmp_path / "m")
    assert read_layout(tmp_path / "m") == layout
    assert json.loads((tmp_path / "m" / CONFIG).read_text())["base_model_name_or_path"] == BASE_NAME
    assert found.steps == state.steps
    for name in ("weights", "exp_avg", "exp_avg_sq"):
        assert torch.equal(getattr(found, name), getattr(state, name))


def test_a_fresh_optimiser_takes_no_room_and_comes_back_as_zeros(tmp_path: Path, layout: AdapterLayout):
    newborn = MemberState.newborn(random_rows(layout, "m")["m"])
    written(tmp_path / "m", layout, newborn)
    found = read_state(tmp_path / "m")
    assert torch.equal(found.weights, newborn.weights)
    assert (found.steps, found.exp_avg.any(), found.exp_avg_sq.any()) == (0, False, False)
    assert (tmp_path / "m" / MOMENTS).stat().st_size < (tmp_path / "m" / WEIGHTS).stat().st_size / 5


def test_equal_members_give_equal_bytes(tmp_path: Path, layout: AdapterLayout):
    for name in ("first", "second"):
        written(tmp_path / name, layout)
    for name in STATE_FILES:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


@pytest.mark.parametrize("damage", ["nan", "shape", "absent", "no layout", "cut", "no file"])
def test_unusable_moments_are_refused(tmp_path: Path, layout: AdapterLayout, damage: str):
    written(tmp_path / "m", layout)
    path = tmp_path / "m" / MOMENTS
    tensors, metadata = load_file(path), {"populora_layout": layout.to_json()}
    match damage:
        case "nan":
            tensors["exp_avg"][7] = float("nan")
        case "shape":
            tensors["exp_avg"] = tensors["exp_avg"][:-1].clone()
        case "absent":
            del tensors["exp_avg"]
        case "no layout":
            metadata = {"format": "pt"}
    save_file(tensors, path, metadata)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    if damage == "no file":
        path.unlink()
    with pytest.raises(AdapterError):
        read_state(tmp_path / "m")
