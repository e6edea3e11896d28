"""Adapters on disk: PEFT folders for people and other tools, one members file for the next stage.

safetensors only, never pickle. Every file appears by rename, so it is whole or absent, and equal contents
give equal bytes: safetensors keeps metadata in a hash map, hence one metadata key at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from populora_core.model.layout import AdapterLayout, require_finite
from populora_core.model.state import MemberState
from populora_core.support.durable import fsync, fsync_tree, replacing, temporary_folder, writing
from populora_core.support.errors import AdapterError

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
LAYOUT_KEY = "populora_layout"
VECTORS = ("weights", "exp_avg", "exp_avg_sq")
STEPS = "steps"


def write_peft(folder: str | Path, layout: AdapterLayout, row: Tensor, base_name: str) -> None:
    """Write a folder that peft.PeftModel.from_pretrained and vLLM load; an existing one is replaced whole.

    Args:
        row: the adapter [D].
        base_name: written as base_model_name_or_path: a name that means something on other machines.

    Raises:
        ArtifactError: it could not be written.
    """
    folder = Path(folder)
    parent, name = folder.parent, folder.name
    tensors = {key: value.contiguous().cpu() for key, value in layout.to_peft(row).items()}
    with writing(folder):
        parent.mkdir(parents=True, exist_ok=True)
    with writing(folder), temporary_folder(parent, name) as new, temporary_folder(parent, name) as retired:
        (new / WEIGHTS).write_bytes(save(tensors, {"format": "pt"}))
        (new / CONFIG).write_text(_peft_config(layout, base_name) + "\n")
        fsync_tree(new)
        if folder.exists():
            folder.rename(retired / name)
        new.rename(folder)
        fsync(parent)


def read_peft(folder: str | Path, layout: AdapterLayout) -> Tensor:
    """The row [D] in float32 of a PEFT folder.

    Raises:
        AdapterError: files missing or corrupt, or an adapter of another base, rank or scale.
    """
    folder = Path(folder)
    try:
        config = json.loads((folder / CONFIG).read_text())
        found = (
            config["r"],
            config["lora_alpha"],
            bool(config.get("use_rslora")),
            bool(config.get("use_dora")),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(folder / CONFIG, error) from error
    if found != (layout.rank, layout.alpha, False, False):
        raise AdapterError(
            f"the adapter in {folder} is of another kind",
            expected=f"plain LoRA of rank {layout.rank}, alpha {layout.alpha:g}",
            came=f"rank {found[0]}, alpha {found[1]}, rsLoRA {found[2]}, DoRA {found[3]}",
            remedy="use the rank and alpha that the adapter was trained with",
        )
    return layout.from_peft(read_tensors(folder / WEIGHTS))


def write_members(path: str | Path, states: Mapping[str, MemberState], layout: AdapterLayout) -> None:
    """Write weights, Adam moments and step counts of all members into one safetensors file.

    Raises:
        ArtifactError: it could not be written.
    """
    path = Path(path)
    tensors: dict[str, Tensor] = {}
    for member_id, state in sorted(states.items()):
        for name in VECTORS:
            tensors[f"{member_id}.{name}"] = getattr(state, name).to(torch.float32).contiguous().cpu()
        tensors[f"{member_id}.{STEPS}"] = torch.tensor([state.steps], dtype=torch.int64)
    with replacing(path) as temporary:
        temporary.write_bytes(save(tensors, {LAYOUT_KEY: layout.to_json()}))


def read_members(path: str | Path, member_ids: Iterable[str] | None = None) -> dict[str, MemberState]:
    """The states of the named members, or of all, by member id.

    Raises:
        AdapterError: the file is missing or corrupt, lacks a member, or holds a number that is not finite.
    """
    path = Path(path)
    dimension = read_layout(path).dimension
    wanted = None if member_ids is None else set(member_ids)
    tensors = read_tensors(path, wanted)
    found = sorted({key.rpartition(".")[0] for key in tensors})
    absent = sorted((wanted or set()) - set(found))
    if absent:
        raise AdapterError(
            f"{path} does not hold every member asked for",
            came="without " + ", ".join(absent),
            remedy="list the members of that generation with `populora inspect`",
        )
    return {member_id: _member(path, tensors, member_id, dimension) for member_id in found}


def read_layout(path: str | Path) -> AdapterLayout:
    """The layout that a members file was written with, known without loading the base model.

    Raises:
        AdapterError: the file is missing or corrupt.
    """
    try:
        with safe_open(path, "pt") as file:
            return AdapterLayout.from_json(file.metadata()[LAYOUT_KEY])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from error


def _member(path: Path, tensors: Mapping[str, Tensor], member_id: str, dimension: int) -> MemberState:
    try:
        weights, exp_avg, exp_avg_sq = (tensors[f"{member_id}.{name}"] for name in VECTORS)
        steps = int(tensors[f"{member_id}.{STEPS}"].item())
    except (KeyError, RuntimeError) as error:
        raise _unreadable(path, error) from error
    for name, vector in zip(VECTORS, (weights, exp_avg, exp_avg_sq), strict=True):
        if vector.shape != (dimension,) or vector.dtype != torch.float32:
            raise AdapterError(
                f"{name} of {member_id} in {path} does not fit the file's own layout",
                expected=f"[{dimension}] torch.float32",
                came=f"{list(vector.shape)} {vector.dtype}",
                remedy="redo the stage that wrote it",
            )
        require_finite(vector, f"{name} of {member_id} in {path}")
    return MemberState(weights, exp_avg, exp_avg_sq, steps)


def read_tensors(path: Path, member_ids: set[str] | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, or only those that belong to the named members.

    Raises:
        AdapterError: the file is missing or corrupt.
    """
    try:
        with safe_open(path, "pt") as file:
            return {
                key: file.get_tensor(key)
                for key in file.keys()  # noqa: SIM118  # not a dict: it offers no iteration
                if member_ids is None or key.rpartition(".")[0] in member_ids
            }
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | Path, error: Exception) -> AdapterError:
    return AdapterError(
        f"{path} cannot be read",
        came="no such file" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}",
        remedy="redo the stage that wrote it, or restore the file from a copy of the run",
    )


def _peft_config(layout: AdapterLayout, base_name: str) -> str:
    config: dict[str, Any] = {
        "base_model_name_or_path": base_name,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": int(layout.alpha) if layout.alpha == int(layout.alpha) else layout.alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": layout.rank,
        "target_modules": sorted({slot.name.rpartition(".")[2] for slot in layout.modules}),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
    return json.dumps(config, indent=2)
