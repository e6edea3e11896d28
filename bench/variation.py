"""Every variation operator, and averages, at Qwen2.5-7B shapes: seconds per child, ratio to a copy, peak memory.

    populora bench variation [--json]

Rank 32 on the seven linear maps of 28 layers, float32, one core, process CPU seconds. Every round times a copy
and every operator once, so that a slow moment of the machine meets both sides of the ratio. A copy is a new
adapter with the same bytes, as a child is a new adapter; copying into memory that exists already costs less
(no pages are made) and has a row of its own. Memory is what a child takes while it is bred, the child
included; the parents, which are there before, are not. An average is of four members with their moments: all become
it, or each moves half of the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from bench.adapters import QWEN_7B
from bench.harness import MIN_SAMPLES, BenchRow, cpu_seconds, median, ratio, single, status_kib
from populora_core.model.layout import AdapterLayout
from populora_core.population.variation import CROSSOVERS, MUTATIONS, make_child
from populora_core.population.variation.averaging import averaged
from populora_core.population.variation.moments import Moments
from populora_core.support.aliases import Say

LAYERS = QWEN_7B["num_hidden_layers"]
RANK, ALPHA = 32, 64.0
SECONDS_GOAL, RATIO_GOAL, MEMORY_GOAL = "<= 2", "<= 8", "<= 3"
AVERAGED, AVERAGE_GOAL = 4, "<= 60"
SHARES = {"average_of_4": 1.0, "average_of_4_by_half": 0.5}


def run(samples: int = MIN_SAMPLES, say: Say = print, layers: int = LAYERS) -> list[BenchRow]:
    """Seconds of each operator, the ratio of their median to a copy, and memory.

    Args:
        samples: rounds of one copy and one child of every operator.
        say: is told the progress.
        layers: of the model; fewer for a quick look, which says nothing about the goals.
    """
    layout = qwen_layout(layers)
    parents = [_parent(layout, seed) for seed in (1, 2)]
    operators = sorted(MUTATIONS | CROSSOVERS)
    room = torch.empty_like(parents[0])
    seconds: dict[str, list[float]] = {name: [] for name in ("copy", "copy_in_place", *operators)}
    with _one_thread():
        memory = {name: _peak_adapters(layout, parents, name) for name in operators}
        for sample in range(samples):
            say(f"round {sample + 1} of {samples}")
            seconds["copy"].append(cpu_seconds(parents[0].clone))
            seconds["copy_in_place"].append(cpu_seconds(partial(room.copy_, parents[0])))
            for name in operators:
                seconds[name].append(cpu_seconds(partial(_breed, layout, parents, name, sample)))
        members = [_parent(layout, seed) for seed in range(1, AVERAGED + 1)]
        averages: dict[str, list[float]] = {name: [] for name in SHARES}
        for sample in range(samples):
            say(f"averages, round {sample + 1} of {samples}")
            for name, share in SHARES.items():
                averages[name].append(cpu_seconds(partial(_average, layout, members, share)))

    typical = np.median([seconds[name] for name in operators], axis=0).tolist()
    return [
        *(median(f"seconds.{name}", seconds[name], "s", SECONDS_GOAL) for name in operators),
        *(median(f"seconds.{name}", values, "s", AVERAGE_GOAL) for name, values in averages.items()),
        median("seconds.copy", seconds["copy"], "s"),
        ratio("median_over_copy", typical, seconds["copy"], RATIO_GOAL),
        ratio("median_over_copy_in_place", typical, seconds["copy_in_place"]),
        single("peak_memory_adapters", max(memory.values()), "adapters", MEMORY_GOAL),
    ]


def qwen_layout(layers: int = LAYERS) -> AdapterLayout:
    """The layout of adapters over Qwen2.5-7B, or over so many of its layers."""
    config = AutoConfig.for_model(**(QWEN_7B | {"num_hidden_layers": layers}))
    with torch.device("meta"):
        return AdapterLayout.of(AutoModelForCausalLM.from_config(config), RANK, ALPHA)


def _parent(layout: AdapterLayout, seed: int) -> Tensor:
    """An adapter [D] whose B has singular values from 1 to 1/100 of the largest, as training leaves them."""
    generator = torch.Generator().manual_seed(seed)
    row = torch.empty(layout.dimension)
    decay = torch.logspace(0, -2, layout.rank)
    for a, b in layout.views(row).values():
        a.normal_(std=a.shape[1] ** -0.5, generator=generator)
        b.normal_(std=1e-2, generator=generator).mul_(decay)
    return row


def _breed(layout: AdapterLayout, parents: list[Tensor], operator: str, seed: int) -> None:
    chosen = [layout.views(row) for row in parents[: 1 if operator in MUTATIONS else 2]]
    make_child(operator, chosen, np.random.Generator(np.random.Philox(key=seed)), layout.scale)


def _average(layout: AdapterLayout, members: list[Tensor], share: float) -> None:
    views = [layout.views(row) for row in members]
    averaged(views, [Moments(each, each) for each in views], share, np.random.default_rng(0))


def _peak_adapters(layout: AdapterLayout, parents: list[Tensor], operator: str) -> float:
    """Most memory that breeding took at once, in adapters."""
    Path("/proc/self/clear_refs").write_text("5")  # the kernel's mark of most memory starts again
    before = status_kib("VmRSS")
    _breed(layout, parents, operator, 0)
    return (status_kib("VmHWM") - before) * 1024 / (4 * layout.dimension)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
