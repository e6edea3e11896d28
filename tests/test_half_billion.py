"""Two generations on a base of half a billion parameters in bfloat16.

Its proposals are noise, so the loop has to cope: nothing is valid, nothing is solved, and every reward is the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ask
from half_billion import write_base, write_config

from populora_core.planning.memory import GB, Workload, estimate, read_shape
from populora_core.stages.table import LOOP
from populora_core.support.shipped import REPOSITORY

NEEDED = 4 * GB  # of memory that is free now, for a copy of the base and room to work
MARGIN = 1 * GB  # the interpreter with its libraries, and what glibc keeps

# Runs the command and waits for its orphans too: the server that forks its workers ends a moment after it.
ADOPTED = """
import ctypes, os, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
code = subprocess.run([sys.executable, "-m", "populora_core.commands", *sys.argv[1:]]).returncode
try:
    while True:
        os.wait()
except ChildProcessError:
    sys.exit(code)
"""

pytestmark = [pytest.mark.thorough, pytest.mark.sandbox]


def free_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if free_memory() < NEEDED:
        pytest.skip(f"needs {NEEDED / GB:.0f} GB of free memory; there are {free_memory() / GB:.1f}")
    folder = tmp_path_factory.mktemp("half-billion")
    write_base(folder)
    return folder


def test_two_generations_go_through_every_stage_within_memory(base: Path, tmp_path: Path):
    write_config(tmp_path / "run.toml", base)
    run = tmp_path / "run"
    arguments = ["run", "--plain", "--config", tmp_path / "run.toml", "--run-dir", run]
    with open(tmp_path / "said", "w") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", ADOPTED, *arguments],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            cwd=REPOSITORY,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)  # with the peak of this run's processes alone
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (tmp_path / "said").read_text()

    stages = ask(run, "SELECT generation, count(*) AS n FROM stages WHERE generation > 0 GROUP BY ALL")
    verdicts = ask(run, "SELECT verdict, reward, count(*) AS n FROM proposals GROUP BY ALL")
    updates = ask(run, "SELECT grad_norm FROM updates")
    children = ask(run, "SELECT role, operator FROM evolutions")
    assert [row["n"] for row in stages] == [len(LOOP)] * 2
    assert sum(row["n"] for row in verdicts) == 2 * 2 * 3 * 2
    assert {row["verdict"] for row in verdicts} <= {"format_error", "syntax_error"}
    assert {row["reward"] for row in verdicts} == {-1.0}
    assert len(children) == 2 * 2
    assert not any(row["grad_norm"] for row in updates)  # equal rewards are nothing to learn from

    peak = usage.ru_maxrss * 1024  # of the largest process
    needed = estimate(
        read_shape(base, rank=8),
        Workload(
            members=4, base_bytes=2, update_tokens=128, sampler_rows=12, sampler_tokens=12 * 64, on_cpu=True
        ),
    )
    assert peak < needed.shared + needed.states + MARGIN
