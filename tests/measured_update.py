"""The peak memory of one real update of a random model: a line of JSON in, a line of bytes out.

The bytes are those of the peak above what was there before the update: the base and the members' states. Each line is
answered by a fork, so that none starts with memory that another has left, and the libraries are loaded once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from bench.gpu import Step
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState


def status(key: str) -> int:
    """A figure of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def main(
    config: dict[str, Any], dtype: str, members: int, rank: int, tokens: int, checkpointing: bool
) -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.device("cpu"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=getattr(torch, dtype))
    model.requires_grad_(False).eval()
    layout = AdapterLayout.of(model, rank, 2.0 * rank)
    stacked = StackedAdapters(model, layout)
    rng = np.random.default_rng(0)
    states = {f"m{index}": MemberState.newborn(layout.init_row(rng)) for index in range(members)}

    def rows(length: int, count: int) -> list[TrainingRow]:
        def ids() -> tuple[int, ...]:
            return tuple(rng.integers(2, config["vocab_size"], length // 2).tolist())

        return [
            TrainingRow(f"m{index % members}", ids(), ids(), (-5.0,) * (length // 2), 1.0)
            for index in range(count)
        ]

    rules = UpdateRules(Step(tokens, 192, checkpointing))
    # What libraries allocate once is not the update's, and neither are the rows.
    update_members(stacked, states, rows(4, members), rules)
    two_full_micro_batches = rows(tokens // (2 * members), 4 * members)
    stacked.load({})
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    update_members(stacked, states, two_full_micro_batches, rules)
    return status("VmHWM") - before


if __name__ == "__main__":
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            print(main(**json.loads(line)), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(1)  # the child has said why
