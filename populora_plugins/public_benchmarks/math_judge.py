"""Equality of two mathematical answers, decided by math-verify in a process of ours that always ends.

math-verify keeps its time limits by a signal that only the main thread can have, and no Python handler runs while
C code multiplies. So comparisons run in a process that a CPU timer of the kernel ends, from whatever thread they
are asked for; and what one costs is counted in CPU time, so that a busy machine does not change a verdict.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from populora_core.problems.verdicts import AttemptVerdict
from populora_core.support.errors import BenchmarkError
from populora_plugins.public_benchmarks.packages import version_of

WORKER = Path(__file__).with_name("math_worker.py")
CPU_SECONDS = 5.0
MEMORY_BYTES = 2 << 30
WALL_SECONDS = 300.0
"""Wall time beside ten times the CPU time: after that, a process that neither answers nor works counts as lost."""
TRIES = 2
PACKAGES, EXTRA = ("math-verify", "latex2sympy2-extended"), "evaluation"
"""The packages that decide, and the extra that brings them."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One answer to compare with what is expected, both LaTeX without delimiters.

    Attributes:
        tolerance: how far apart two numbers may be; None for math-verify's own precision of six decimals.
    """

    gold: str
    answer: str
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a comparison, and a text that equal answers share; empty if the comparison failed."""

    verdict: AttemptVerdict
    canonical: str = ""


def compare(
    comparisons: Sequence[Comparison], cpu_seconds: float = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES
) -> list[Finding]:
    """The findings, in order; equal comparisons are made once.

    One process makes them in turn. Where one ends it, another process goes on: with the next comparison if
    the time was over, else with the same one, which is `infrastructure` once it has ended `TRIES` processes.

    Raises:
        BenchmarkError: one of `PACKAGES` is not installed, or the process does not start.
    """
    for package in PACKAGES:
        version_of(package, EXTRA)
    command = [sys.executable, "-P", str(WORKER), str(cpu_seconds), str(memory_bytes)]
    found: dict[Comparison, Finding] = {}
    lost: Counter[Comparison] = Counter()
    while waiting := [each for each in dict.fromkeys(comparisons) if each not in found]:
        findings, status = _run(command, waiting, WALL_SECONDS + 10 * cpu_seconds * len(waiting))
        found |= zip(waiting, findings, strict=False)
        for each in waiting[len(findings) :][:1]:
            lost[each] += 1
            if status == -signal.SIGPROF:
                found[each] = Finding(AttemptVerdict.TIMEOUT)
            elif lost[each] == TRIES:
                found[each] = Finding(AttemptVerdict.INFRASTRUCTURE)
    return [found[each] for each in comparisons]


def _run(
    command: Sequence[str], comparisons: Sequence[Comparison], seconds: float
) -> tuple[list[Finding], int]:
    """The findings of one process, and how it ended."""
    lines = "".join(json.dumps(asdict(each)) + "\n" for each in comparisons)
    try:
        done = subprocess.run(
            command, input=lines.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds
        )
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = error.stdout or b"", -signal.SIGKILL
    if b"\n" not in output:
        raise BenchmarkError(
            "the process that compares mathematical answers does not start",
            got=f"exit status {status} of {' '.join(command)}",
            fix=f"run that command to see why; pip install -e '.[{EXTRA}]' installs what it needs",
        )
    _ready, *answers, _unfinished = output.split(b"\n")
    return [
        Finding(AttemptVerdict(answer["verdict"]), answer["canonical"]) for answer in map(json.loads, answers)
    ], status
