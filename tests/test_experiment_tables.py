"""Tables of the lab log, and counts of a study's page, that committed rows have."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from populora_core.support.shipped import REPOSITORY

RESULTS = "bench/results"
NEAR_MISSES = f"{RESULTS}/real-near-misses.jsonl"
TABLES = {
    ("experiments.near_misses", "--output", NEAR_MISSES): "2026-11-29-real-study-so-far",
    ("experiments.shown", "--output", f"{RESULTS}/real-shown.jsonl"): "2026-11-29-real-study-so-far",
    ("experiments.gates", f"{RESULTS}/gates.jsonl"): "2026-11-29-gates",
}
"""A command that prints a table -> its page."""


@pytest.mark.parametrize("command", TABLES, ids=lambda command: command[0])
def test_a_page_has_the_table_that_its_experiment_prints(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "|" in done.stdout
    assert done.stdout.strip() in (REPOSITORY / "docs" / "lab-log" / f"{TABLES[command]}.md").read_text(
        "utf-8"
    )


def test_the_page_of_the_real_study_counts_the_near_misses_that_its_rows_have() -> None:
    rows = [json.loads(line) for line in (REPOSITORY / NEAR_MISSES).read_text("utf-8").splitlines()]
    ((asked, left_out),) = {(len(row["right"]), row["left_out"]) for row in rows}
    page = (REPOSITORY / RESULTS / "study-real" / "study.md").read_text("utf-8")
    assert f"{asked} of {asked + left_out} problems have them, {left_out} are left out" in page
