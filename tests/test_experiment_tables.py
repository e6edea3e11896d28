"""Tables of the lab log, and counts of a study's page, that committed rows have."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import groupby
from operator import itemgetter

import pytest

from populora_core.benchmarks.suite import load_suite
from populora_core.report.learnt import points, score_line
from populora_core.report.scored import of_items
from populora_core.report.text import NARROW, percent
from populora_core.support.shipped import REPOSITORY

RESULTS = "bench/results"
NEAR_MISSES = f"{RESULTS}/real-near-misses.jsonl"
TABLES = {
    ("experiments.near_misses", "--output", NEAR_MISSES): "2026-11-29-real-study-so-far",
    ("experiments.by_prompt", "--output", f"{RESULTS}/real-shown.jsonl"): "2026-11-29-real-study-so-far",
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


def test_the_page_of_make_real_has_the_score_lines_of_its_rows() -> None:
    lines = (REPOSITORY / RESULTS / "real-run.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    page = (REPOSITORY / "docs" / "lab-log" / "2026-11-30-make-real.md").read_text("utf-8")
    suite = load_suite(REPOSITORY / "configs" / "suites" / "cruxeval-held-out.toml")
    sample = suite.model_copy(update={"suite": rows[0]["suite"]})
    found = [
        of_items(generation, sample, [*own]) for generation, own in groupby(rows, itemgetter("generation"))
    ]
    assert len(found) == 3 and all(item is not None and score_line(item) in page for item in found)
    *_, last = filter(None, found)
    told = f"{percent(last.solvers.value)} of {last.problems} held-out problems, its base {percent(last.base.value)}"
    assert told.replace(NARROW, " ") in (REPOSITORY / "docs" / "real.md").read_text("utf-8")


def test_the_page_of_make_real_has_the_lines_of_humaneval() -> None:
    lines = (REPOSITORY / RESULTS / "real-humaneval.jsonl").read_text("utf-8").splitlines()
    cut = sum(json.loads(line)["finish_reason"] == "length" for line in lines)
    page = (REPOSITORY / "docs" / "lab-log" / "2026-11-30-make-real.md").read_text("utf-8")
    suite = load_suite("bundled:humaneval")
    found = [
        of_items(generation, suite, [*own])
        for (_, generation), own in groupby(map(json.loads, lines), itemgetter("run", "generation"))
    ]
    assert len(found) == 2 and all(item is not None and score_line(item) in page for item in found)
    assert f"Of the {len(lines)} answers {cut} ran to the limit" in page
    played, _ = filter(None, found)
    told = f"{percent(played.solvers.value)} of HumanEval,\nas its base ({points(played.gain).replace(' (', ', ')}"
    assert told.replace(NARROW, " ") in (REPOSITORY / "docs" / "real.md").read_text("utf-8")


def test_the_page_of_the_real_study_counts_the_near_misses_that_its_rows_have() -> None:
    rows = [json.loads(line) for line in (REPOSITORY / NEAR_MISSES).read_text("utf-8").splitlines()]
    ((asked, left_out),) = {(len(row["right"]), row["left_out"]) for row in rows}
    page = (REPOSITORY / RESULTS / "study-real" / "study.md").read_text("utf-8")
    assert f"{asked} of {asked + left_out} problems have them, {left_out} are left out" in page
