"""Whether two mathematical answers are equal, decided by math-verify in a process of ours that always ends.

math-verify keeps its time limits by a signal that only the main thread can have, and no Python handler runs while
C code multiplies. So the comparison runs in a process that a CPU timer of the kernel ends, from whatever thread it
is asked for; and what it costs is counted in CPU time, so that a busy machine does not change a verdict.
"""

from __future__ import annotations

import importlib.util
import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from populora_core.support.errors import BenchmarkError

WORKER = Path(__file__).with_name("math_worker.py")
CPU_SECONDS = 5.0
MEMORY_BYTES = 2 << 30
WALL_SECONDS = 300.0
"""After which a process that neither answers nor uses CPU time counts as lost."""
TRIES = 2
INSTALL = "pip install -e '.[evaluation]'"


class Judgement(StrEnum):
    """What came of one comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    TIMEOUT = "timeout"
    """The comparison took more than its CPU time."""
    OUT_OF_MEMORY = "out_of_memory"
    INFRASTRUCTURE = "infrastructure"
    """The process was lost again and again, through no fault of the answer that we can see."""


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
    """The outcome, and a text of the answer that alike answers share; empty where the comparison failed."""

    outcome: Judgement
    canonical: str = ""


class _Lost(Exception):
    """The process ended instead of answering."""


class MathJudge:
    """Compares answers in a child process, started on first use and anew after one that it lost.

    Use it as a context manager, or close it.

    Raises:
        BenchmarkError: math-verify is not installed.
    """

    def __init__(self, cpu_seconds: float = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise BenchmarkError(
                "mathematics is graded by math-verify, which is not installed",
                expected="the extra `evaluation`",
                remedy=INSTALL,
            )
        self._command = [sys.executable, "-P", str(WORKER), str(cpu_seconds), str(memory_bytes)]
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; returns when it is gone."""
        process, self._process, self._buffer = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def compare(self, comparisons: Sequence[Comparison]) -> list[Finding]:
        """The findings, in order; equal comparisons are made once.

        Raises:
            BenchmarkError: the process does not start.
        """
        known: dict[Comparison, Finding] = {}
        for comparison in comparisons:
            if comparison not in known:
                known[comparison] = self._compare(comparison)
        return [known[comparison] for comparison in comparisons]

    def _compare(self, comparison: Comparison) -> Finding:
        for _ in range(TRIES):
            try:
                self._start()
                answer = self._exchange(json.dumps(asdict(comparison)).encode() + b"\n")
                return Finding(Judgement(answer["outcome"]), answer["canonical"])
            except _Lost:
                if self._end() == -signal.SIGPROF:
                    return Finding(Judgement.TIMEOUT)
        return Finding(Judgement.INFRASTRUCTURE)

    def _start(self) -> None:
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            self._exchange(b"")
        except _Lost:
            raise BenchmarkError(
                "the process that compares mathematical answers does not start",
                came=f"exit status {self._end()} of {' '.join(self._command)}",
                remedy=f"run that command to see why; {INSTALL} installs what it needs",
            ) from None

    def _exchange(self, request: bytes) -> dict[str, str]:
        """Send a line, if any, and read one."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
        except OSError:
            raise _Lost from None
        deadline = time.monotonic() + WALL_SECONDS
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = process.stdout.read1(65536) if ready else b""  # type: ignore[attr-defined]
            if not chunk:
                raise _Lost
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _end(self) -> int:
        """End the process and say how it had ended, if it had."""
        assert self._process is not None
        process = self._process
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1.0)  # an end of the pipe comes a moment before the end of the process
        self.close()
        return process.returncode
