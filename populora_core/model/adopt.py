"""An adapter from elsewhere becomes a row of this run, with the same policy, or is refused with the reason.

Stricter than PEFT where PEFT would compute something else than scale * B A on the untouched base, and more
lenient in one point: another scale is folded into B.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torch import Tensor

from populora_core.model.adapter_files import CONFIG, WEIGHTS, read_tensors
from populora_core.model.layout import AdapterLayout
from populora_core.support.errors import AdapterError
from populora_core.support.received import read_json

# Settings of PEFT's LoRA that add something to scale * B A, or put it elsewhere.
BEYOND_PLAIN_LORA = (
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "megatron_config",
    "modules_to_save",
    "monteclora_config",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
)
# Other initialisations (PiSSA, OLoRA, CorDA, LoftQ) change the base model that the adapter is laid over.
BASE_UNTOUCHED = (True, False, "gaussian", "eva", "orthogonal")


def adopt(folder: Path, layout: AdapterLayout) -> Tensor:
    """The row [D] in float32 that has the policy of the PEFT adapter in `folder`.

    Raises:
        AdapterError: files missing or corrupt, another rank or other modules, or no plain LoRA.
    """
    config = plain_config(folder)
    rank = config["r"]
    if rank != layout.rank:
        raise AdapterError(
            f"{folder / CONFIG} is of another rank than this run",
            expected=f"rank {layout.rank}, from adapters.rank",
            got=f"rank {rank}",
            fix=f"set adapters.rank to {rank}, or start from another adapter",
        )
    try:
        row = layout.from_peft(read_tensors(folder / WEIGHTS))
    except AdapterError as error:
        raise AdapterError(
            f"{folder / WEIGHTS} cannot be started from: {error.problem}",
            expected=error.expected,
            got=error.got,
            fix="start from a LoRA of every linear layer of this base model; "
            "without one, leave it out of adapters.start_from",
        ) from error
    factor = _scale(config) / layout.scale
    if factor != 1.0:
        for _, b in layout.views(row).values():
            b.mul_(factor)
    return row


def _scale(config: dict[str, Any]) -> float:
    rank = config["r"]
    return config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)


def plain_config(folder: Path) -> dict[str, Any]:
    """The adapter's configuration, with `r` and `lora_alpha` known to be numbers."""
    path = folder / CONFIG
    try:
        config = read_json(path)
        config["r"], config["lora_alpha"] = int(config["r"]), float(config["lora_alpha"])
        if config["r"] < 1 or not math.isfinite(config["lora_alpha"]):
            raise ValueError(f"r = {config['r']}, lora_alpha = {config['lora_alpha']}")
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise AdapterError(
            f"{path} cannot be read",
            expected="the configuration of a PEFT LoRA, with r and lora_alpha",
            got=f"{type(error).__name__}: {error}",
            fix="give a folder that populora export or PEFT's save_pretrained wrote",
        ) from error
    odd = {name: config[name] for name in BEYOND_PLAIN_LORA if config.get(name)}
    if config.get("peft_type", "LORA") != "LORA":
        odd["peft_type"] = config["peft_type"]
    if config.get("bias", "none") != "none":
        odd["bias"] = config["bias"]
    if config.get("init_lora_weights", True) not in BASE_UNTOUCHED:
        odd["init_lora_weights"] = config["init_lora_weights"]
    if odd:
        raise AdapterError(
            f"{path} is no plain LoRA",
            expected="the base model unchanged, plus scale * B A for each linear layer",
            got=", ".join(f"{name} = {json.dumps(value)}" for name, value in odd.items()),
            fix="start from a plain LoRA; PEFT can convert some kinds, see its documentation",
        )
    return config
