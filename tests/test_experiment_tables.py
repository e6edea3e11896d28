"""Tables of the lab log that an experiment prints from committed rows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from populora_core.support.shipped import REPOSITORY

RESULTS = "bench/results"
TABLES = {
    "2026-11-29-real-study-so-far": (
        "experiments.near_misses",
        "--output",
        f"{RESULTS}/real-near-misses.jsonl",
    ),
    "2026-11-29-gates": ("experiments.gates", f"{RESULTS}/gates.jsonl"),
}
"""Page -> the command that prints its table."""


@pytest.mark.parametrize("page", TABLES)
def test_a_page_has_the_table_that_its_experiment_prints(page: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *TABLES[page]], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "|" in done.stdout
    assert done.stdout.strip() in (REPOSITORY / "docs" / "lab-log" / f"{page}.md").read_text("utf-8")
