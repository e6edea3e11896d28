"""A member on disk: a PEFT folder for people and other tools, with the optimiser's moments for the next update.

safetensors only, never pickle. Every file appears by rename, so it is whole or absent, and equal contents
give equal bytes: safetensors keeps metadata in a hash map, hence one metadata key at most.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from populora_core.model.layout import AdapterLayout, require_finite
from populora_core.model.state import MemberState
from populora_core.support.durable import replacing, write_atomically, writing
from populora_core.support.errors import AdapterError

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
MOMENTS = "moments.safetensors"
LAYOUT_KEY = "populora_layout"
VECTORS = ("exp_avg", "exp_avg_sq")
STEPS = "steps"


def write_peft(folder: str | Path, layout: AdapterLayout, row: Tensor, base_name: str) -> None:
    """Write what peft.PeftModel.from_pretrained and vLLM load into a folder, over what is there.

    Args:
        row: the adapter [D].
        base_name: written as base_model_name_or_path: a name that means something on other machines.

    Raises:
        ArtifactError: it could not be written.
    """
    folder = Path(folder)
    tensors = {key: value.contiguous().cpu() for key, value in layout.to_peft(row).items()}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / WEIGHTS) as temporary:
        temporary.write_bytes(save(tensors, {"format": "pt"}))
    write_atomically(folder / CONFIG, _peft_config(layout, base_name) + "\n")


def write_moments(folder: Path, layout: AdapterLayout, state: MemberState) -> None:
    """Write a member's optimiser beside its adapter: Adam's moments [D] and the count of steps.

    Before the first step both moments are zero, and left out.

    Raises:
        ArtifactError: it could not be written.
    """
    tensors = {STEPS: torch.tensor([state.steps], dtype=torch.int64)}
    if state.steps:
        tensors |= {name: getattr(state, name).contiguous().cpu() for name in VECTORS}
    with replacing(folder / MOMENTS) as temporary:
        temporary.write_bytes(save(tensors, {LAYOUT_KEY: layout.to_json()}))


def read_state(folder: Path) -> MemberState:
    """A member from its folder, without the base model.

    Raises:
        AdapterError: a file is missing or corrupt, or holds a number that is not finite.
    """
    layout, path = read_layout(folder), folder / MOMENTS
    weights, tensors = read_weights(folder, layout), read_tensors(path)
    try:
        steps = int(tensors.pop(STEPS).item())
        if not steps:
            return MemberState.newborn(weights)
        exp_avg, exp_avg_sq = (tensors[name] for name in VECTORS)
    except (KeyError, RuntimeError) as error:
        raise _unreadable(path, error) from error
    for name, vector in tensors.items():
        if vector.shape != weights.shape or vector.dtype != torch.float32:
            raise AdapterError(
                f"{name} in {path} does not fit the adapter",
                expected=f"{list(weights.shape)} torch.float32",
                got=f"{list(vector.shape)} {vector.dtype}",
                fix="redo the stage that wrote it",
            )
        require_finite(vector, f"{name} in {path}")
    return MemberState(weights, exp_avg, exp_avg_sq, steps)


def read_weights(folder: Path, layout: AdapterLayout) -> Tensor:
    """The row [D] in float32 of a member's folder.

    Raises:
        AdapterError: the file is missing or corrupt, or of another layout.
    """
    return layout.from_peft(read_tensors(folder / WEIGHTS))


def read_layout(folder: Path) -> AdapterLayout:
    """The layout that a member was written with, known without loading the base model.

    Raises:
        AdapterError: the file is missing or corrupt.
    """
    try:
        with safe_open(folder / MOMENTS, "pt") as file:
            return AdapterLayout.from_json(file.metadata()[LAYOUT_KEY])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(folder / MOMENTS, error) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name.

    Raises:
        AdapterError: the file is missing or corrupt.
    """
    try:
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # it offers no iteration
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | Path, error: Exception) -> AdapterError:
    return AdapterError(
        f"{path} cannot be read",
        got="no such file" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}",
        fix="redo the stage that wrote it, or restore the file from a copy of the run",
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
