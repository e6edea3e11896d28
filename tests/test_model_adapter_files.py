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
    WEIGHTS,
    read_layout,
    read_members,
    read_peft,
    write_members,
    write_peft,
)
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.support.errors import AdapterError

BASE_NAME = "bundled:tiny"


@pytest.fixture(scope="module")
def layout() -> AdapterLayout:
    return layout_of(tiny_model())


def states_of(layout: AdapterLayout) -> dict[str, MemberState]:
    rows = random_rows(layout, "teacher-00-g0000", "student-00-g0000")
    return {
        member: MemberState(row, row * 0.5, row.square(), steps)
        for steps, (member, row) in enumerate(rows.items(), start=3)
    }


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


def test_a_peft_folder_gives_the_row_back(tmp_path: Path, layout: AdapterLayout):
    row = random_rows(layout, "m")["m"]
    write_peft(tmp_path / "m", layout, row, BASE_NAME)
    assert torch.equal(read_peft(tmp_path / "m", layout), row)


def test_the_base_is_named_as_the_caller_names_it(tmp_path: Path, layout: AdapterLayout):
    write_peft(tmp_path / "m", layout, random_rows(layout, "m")["m"], BASE_NAME)
    assert json.loads((tmp_path / "m" / CONFIG).read_text())["base_model_name_or_path"] == BASE_NAME


def test_rewriting_a_folder_replaces_it_and_leaves_nothing_else(tmp_path: Path, layout: AdapterLayout):
    rows = random_rows(layout, "old", "new")
    for row in rows.values():
        write_peft(tmp_path / "m", layout, row, BASE_NAME)
    assert torch.equal(read_peft(tmp_path / "m", layout), rows["new"])
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert {path.name for path in (tmp_path / "m").iterdir()} == {WEIGHTS, CONFIG}


def test_an_adapter_of_another_rank_is_refused(tmp_path: Path, layout: AdapterLayout):
    write_peft(tmp_path / "m", layout, random_rows(layout, "m")["m"], BASE_NAME)
    with pytest.raises(AdapterError, match="another kind"):
        read_peft(tmp_path / "m", layout_of(tiny_model(), rank=8))


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
@pytest.mark.parametrize("content", [None, b"", b"not what it should be"])
def test_a_damaged_peft_folder_is_refused(
    tmp_path: Path, layout: AdapterLayout, name: str, content: bytes | None
):
    write_peft(tmp_path / "m", layout, random_rows(layout, "m")["m"], BASE_NAME)
    (tmp_path / "m" / name).unlink()
    if content is not None:
        (tmp_path / "m" / name).write_bytes(content)
    with pytest.raises(AdapterError):
        read_peft(tmp_path / "m", layout)


def test_a_members_file_gives_states_and_layout_back(tmp_path: Path, layout: AdapterLayout):
    states, path = states_of(layout), tmp_path / "members.safetensors"
    write_members(path, states, layout)
    found = read_members(path)
    assert read_layout(path) == layout
    assert found.keys() == states.keys()
    for member, state in states.items():
        assert found[member].steps == state.steps
        for name in ("weights", "exp_avg", "exp_avg_sq"):
            assert torch.equal(getattr(found[member], name), getattr(state, name))


def test_only_the_members_asked_for_are_read(tmp_path: Path, layout: AdapterLayout):
    write_members(tmp_path / "f", states_of(layout), layout)
    assert list(read_members(tmp_path / "f", ["student-00-g0000"])) == ["student-00-g0000"]
    assert read_members(tmp_path / "f", []) == {}


def test_equal_members_give_equal_bytes_whatever_their_order(tmp_path: Path, layout: AdapterLayout):
    states = states_of(layout)
    write_members(tmp_path / "first", states, layout)
    write_members(tmp_path / "second", dict(reversed(states.items())), layout)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_missing_member_is_named(tmp_path: Path, layout: AdapterLayout):
    write_members(tmp_path / "f", states_of(layout), layout)
    with pytest.raises(AdapterError, match="student-07-g0000"):
        read_members(tmp_path / "f", ["student-07-g0000"])


def test_a_truncated_members_file_is_refused(tmp_path: Path, layout: AdapterLayout):
    path = tmp_path / "f"
    write_members(path, states_of(layout), layout)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(AdapterError):
        read_members(path)


@pytest.mark.parametrize("damage", ["nan", "shape", "absent", "no layout"])
def test_a_members_file_with_unusable_contents_is_refused(tmp_path: Path, layout: AdapterLayout, damage: str):
    path, key = tmp_path / "f", "student-00-g0000.exp_avg"
    write_members(path, states_of(layout), layout)
    tensors, metadata = load_file(path), {"populora_layout": layout.to_json()}
    match damage:
        case "nan":
            tensors[key][7] = float("nan")
        case "shape":
            tensors[key] = tensors[key][:-1].clone()
        case "absent":
            del tensors[key]
        case "no layout":
            metadata = {"format": "pt"}
    save_file(tensors, path, metadata)
    with pytest.raises(AdapterError):
        read_members(path)
