"""Generations of a 7B on 1 to 128 nodes of one GPU, by the capacity model: stated GPUs, measured driver and verifier.

    python -m bench.scale_capacity

prints the table of docs/scale-out.md from the driver's seconds in bench/results/scale.json. Every teacher proposes
60 problems in 512 tokens each, 70 % are valid, every problem is attempted 8 times in 512 tokens, and for 60 % of the
attempts a program runs. Members' mean lengths spread by a fifth. GPUs are those of `[compute]`'s defaults, one a node
with 16 cores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bench.harness import BenchRow, single
from populora_core.config.sections import ComputeSection
from populora_core.planning.capacity import Alone, Cluster, Expected, Load, Speeds, expected, whole
from populora_core.planning.duration import Rates
from populora_core.planning.memory import GB, ModelShape, Workload, estimate, shape_of
from populora_core.report.text import seconds

RESULTS = Path(__file__).resolve().parent / "results"
SEVEN_BILLION = {  # widths of Qwen2.5-7B, from its published config.json
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
RANK = 32
MEMBERS, NODES = (8, 64, 250, 1000), (1, 8, 32, 128)
CORES = 16
SHARD = 0.05  # seconds, the bound that a shard's cost is held to
JOINED = 1e9  # bytes a second of a disk through which one process joins all states
STORE_REQUESTS, STORE_BYTES = 1000.0, 5e9  # a second, of the store
DRIVER = {  # stage of the model -> parts that bench.scale times
    "match": ("match",),
    "grade": ("grade",),
    "update": ("store",),
    "evolve": ("selection", "catalogue"),
}


def driver_of(values: Mapping[str, float]) -> dict[str, Alone]:
    """What the driver does in each stage, as the line through the rows of the two sizes that bench.scale names."""
    lines = {}
    for stage, parts in DRIVER.items():
        low = sum(values[f"seconds.{part}.{MEMBERS[0]}_members"] for part in parts)
        high = sum(values[f"seconds.{part}"] for part in parts)
        slope = max(0.0, (high - low) / (MEMBERS[-1] - MEMBERS[0]))
        lines[stage] = Alone(max(0.0, low - MEMBERS[0] * slope), slope)
    return lines


def speeds(driver: Mapping[str, Alone], joined: bool) -> Speeds:
    """The stated cluster; `joined`: one process joins all members' states, instead of leaving them in shards."""
    gpu = ComputeSection()
    rates = Rates(gpu.gpu_tflops * 1e12, gpu.gpu_tb_per_s * 1e12)
    return Speeds(
        shape=seven_billion(),
        sampling=rates,
        learning=rates,
        programs=_programs(),
        shard=SHARD,
        alone=driver,
        state_bytes=JOINED if joined else 0.0,
        store_requests=STORE_REQUESTS,
        store_bytes=STORE_BYTES,
        checkpointing=True,
    )


def seven_billion() -> ModelShape:
    return shape_of(SEVEN_BILLION, RANK)


def load(members: int) -> Load:
    """A generation of so many members, half of them teachers."""
    return Load(
        teachers=members // 2,
        students=members // 2,
        proposals=60,
        valid=0.7,
        attempts=8,
        judged=0.6,
        proposal_tokens=512,
        answer_tokens=512,
    )


def simulate(members: int, nodes: int, driver: Mapping[str, Alone], joined: bool) -> dict[str, Expected]:
    """Stage -> expected seconds; equal members on every cluster."""
    cluster = Cluster(nodes, workers=1, cores=CORES)
    return expected(load(members), cluster, speeds(driver, joined), np.random.default_rng(0))


def fits(members: int, nodes: int) -> bool:
    """Whether the members of one of as many shards as nodes are resident on one GPU beside the base."""
    own = Workload(math.ceil(members / nodes), base_bytes=2, update_tokens=8192, checkpointing=True)
    return estimate(seven_billion(), own).shared <= ComputeSection().gpu_gb * GB


def rows(driver: Mapping[str, Alone]) -> list[BenchRow]:
    """The largest population on the smallest and the largest cluster, and what part of it waits for one process."""
    found = []
    for nodes in (NODES[0], NODES[-1]):
        for joined in (True, False):
            total = whole(simulate(MEMBERS[-1], nodes, driver, joined))
            name = f"{MEMBERS[-1]}_members.{nodes}_nodes{'.joined' if joined else ''}"
            found.append(single(f"simulated_seconds.{name}", total.seconds, "s"))
            found.append(single(f"simulated_alone.{name}", total.alone / total.seconds, "ratio"))
    return found


def table(driver: Mapping[str, Alone]) -> str:
    """Markdown: seconds a generation, and the share of it that workers wait.

    A star marks shards whose members do not fit their GPU at once.
    """
    head = "| members | states | " + " | ".join(f"{nodes} node{'s'[: nodes > 1]}" for nodes in NODES) + " |"
    lines = [head, "| --- " * (len(NODES) + 2) + "|"]
    for members in MEMBERS:
        for joined in (True, False):
            cells = {nodes: whole(simulate(members, nodes, driver, joined)) for nodes in NODES}
            shown = (
                f"{seconds(cell.seconds)} ({cell.alone / cell.seconds:.0%})"
                f"{'' if fits(members, nodes) else ' *'}"
                for nodes, cell in cells.items()
            )
            lines.append(f"| {members} | {'joined' if joined else 'left'} | {' | '.join(shown)} |")
    return "\n".join(lines)


def measured() -> dict[str, Alone]:
    """The driver's seconds in the results that are kept."""
    return driver_of(_values("scale"))


def _programs() -> float:
    return _values("verifier")["programs_per_cpu_second"]


def _values(bench: str) -> dict[str, float]:
    report = json.loads((RESULTS / f"{bench}.json").read_text())
    return {row["name"]: row["value"] for row in report["rows"]}


if __name__ == "__main__":
    print(table(measured()))
