"""Common parts of every benchmark: rows with intervals, ratios of interleaved pairs, the machine, the report."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from populora_core.support.aliases import Say
from populora_core.support.revision import code_revision

MIN_SAMPLES = 15
RESAMPLES = 2000
CLOSE = 4  # times the samples, for ratios near one: a shared machine's seconds scatter by some 5 %
Timed = Callable[[], object]


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One figure of a benchmark.

    Attributes:
        low, high: 95 % interval; equal to the value where there is one sample.
        goal: what the figure should be, such as `>= 0.2`; empty where it is only reported.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    goal: str
    samples: int

    @property
    def meets_goal(self) -> bool | None:
        """True if the whole interval meets the goal; None without one."""
        if not self.goal:
            return None
        sign, bound = self.goal.split()
        return self.high <= float(bound) if sign == "<=" else self.low >= float(bound)


def ratio(name: str, over: Sequence[float], under: Sequence[float], goal: str = "") -> BenchRow:
    """The median over pairs of `over / under`, with a bootstrap interval over the pairs."""
    quotients = np.asarray(over, float) / np.asarray(under, float)
    return median(name, quotients.tolist(), "ratio", goal)


def median(name: str, values: Sequence[float], unit: str, goal: str = "") -> BenchRow:
    """The median of repeated measurements with a 95 % bootstrap interval."""
    sample = np.asarray(values, float)
    picks = np.random.default_rng(0).integers(0, len(sample), (RESAMPLES, len(sample)))
    low, high = np.quantile(np.median(sample[picks], axis=1), (0.025, 0.975))
    return BenchRow(name, float(np.median(sample)), float(low), float(high), unit, goal, len(sample))


def single(name: str, value: float, unit: str, goal: str = "") -> BenchRow:
    """A figure that was measured once."""
    return BenchRow(name, value, value, value, unit, goal, 1)


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds of one call: of this process on all cores, and of the wall, for what waits more than it computes."""

    cpu: float
    wall: float


def timed(work: Timed) -> Taken:
    """CPU and wall seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Taken(cpu=time.process_time() - cpu, wall=time.perf_counter() - wall)


def cpu_seconds(work: Timed) -> float:
    """CPU seconds of one call, on all cores."""
    return timed(work).cpu


def wall_seconds(work: Timed) -> float:
    """Wall-clock seconds of one call."""
    return timed(work).wall


def interleaved(variants: Mapping[str, Timed], samples: int, say: Say) -> dict[str, list[float]]:
    """CPU seconds of every variant, taken in `rounds`."""
    taken = rounds(variants, samples, say)
    return {name: [each.cpu for each in own] for name, own in taken.items()}


def rounds(variants: Mapping[str, Timed], samples: int, say: Say) -> dict[str, list[Taken]]:
    """Seconds of every variant, one of each a round, so that a slow moment meets all; one round unmeasured.

    Every other round goes backwards: what the one before leaves in caches favours no one.
    """
    taken: dict[str, list[Taken]] = {name: [] for name in variants}
    for work in variants.values():
        work()
    for sample in range(samples):
        say(f"round {sample + 1} of {samples}")
        for name, work in list(variants.items())[:: -1 if sample % 2 else 1]:
            taken[name].append(timed(work))
    return taken


def status_kib(field: str) -> int:
    """A figure of this process from the kernel, such as VmHWM, its peak of memory.

    `ru_maxrss` is no such peak: a process inherits it from the one that started it.
    """
    match = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match, field
    return int(match[1])


def machine() -> dict[str, Any]:
    """The machine and code that the figures were measured with."""
    info = Path("/proc/cpuinfo")
    models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "code_revision": code_revision(),
    }


def as_json(bench: str, rows: Sequence[BenchRow]) -> str:
    """The report for programs, one JSON object."""
    return json.dumps({"bench": bench, "machine": machine(), "rows": [asdict(row) for row in rows]}, indent=1)


def print_table(bench: str, rows: Sequence[BenchRow]) -> None:
    """The report for people; whether a goal is met counts for the whole interval."""
    table = Table(title=f"bench {bench}", title_justify="left")
    for column in ("figure", "value", "95 % interval", "unit", "goal", "samples"):
        table.add_column(column, justify="left" if column in ("figure", "unit", "goal") else "right")
    marks = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}
    for row in rows:
        interval = f"{row.low:.3g} to {row.high:.3g}" if row.samples > 1 else ""
        goal = f"{row.goal} {marks[row.meets_goal]}"
        table.add_row(row.name, f"{row.value:.3g}", interval, row.unit, goal, str(row.samples))
    Console(emoji=False).print(table)
