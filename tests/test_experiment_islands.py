"""Students of runs that never met: their average, their vote, and the best of them by validation."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from experiments.islands import AVERAGE, BEST, VOTE, best, measured, table, vote
from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Suite, load_suite
from populora_core.runs.run import Run
from populora_core.support.errors import StudyError
from populora_core.support.shipped import REPOSITORY


def few() -> Suite:
    return load_suite(REPOSITORY / "configs" / "suites" / "tiny.toml").sampled(8)


@pytest.mark.sandbox
def test_copies_of_one_student_average_and_vote_as_it_answers(finished_solo: Path, tmp_path: Path) -> None:
    runs = [Run.open(shutil.copytree(finished_solo, tmp_path / name)) for name in ("one", "another")]
    row = measured(runs, few())
    assert list(row["right"]) == [BASE, "one", "another", AVERAGE, VOTE]
    assert row["right"]["one"] == row["right"]["another"] == row["right"][VOTE]
    assert row["right"]["one"].keys() == row["right"][BASE].keys()
    differing = [item for item, right in row["right"][AVERAGE].items() if right != row["right"]["one"][item]]
    assert len(differing) <= 1, "the mean of equal updates is theirs, but for what rounding turns"
    assert row["energy_kept"] == 1.0


def test_a_run_of_several_students_is_no_island(finished: Path) -> None:
    with pytest.raises(StudyError, match="one student each on one base"):
        measured([Run.open(finished)], few())


def test_a_vote_counts_answers_and_the_first_of_equally_frequent_ones() -> None:
    def given(*answers: tuple[str | None, bool]) -> dict[str, dict[str, object]]:
        return {
            f"problem {at}": {"answer": answer, "correct": right}
            for at, (answer, right) in enumerate(answers)
        }

    students = [
        given(("1", False), ("7", True), (None, False)),
        given(("2", True), ("8", False), (None, False)),
        given(("2", True), ("9", False), (None, False)),
    ]
    assert vote(students) == {"problem 0": True, "problem 1": True, "problem 2": False}


def test_the_best_is_chosen_on_the_half_that_it_is_not_scored_on() -> None:
    right = {"at even places": np.array([1.0, 0, 1, 0]), "at odd places": np.array([0.0, 1, 0, 1])}
    assert best(right).tolist() == [0, 0, 0, 0]


def test_gains_are_told_over_the_mean_student() -> None:
    scores = {BASE: 0, "a": 1, "b": 0, AVERAGE: 1, VOTE: 1}
    row = {"right": {player: {"p": bool(right), "q": bool(right)} for player, right in scores.items()}}
    lines = table(row).splitlines()
    assert "| mean student | 0.500 |  |" in lines
    assert "| average | 1.000 | +0.500 (+0.500 to +0.500) |" in lines
    assert any(line.startswith(f"| {BEST} | 1.000") for line in lines)
