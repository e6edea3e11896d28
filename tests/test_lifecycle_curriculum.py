"""The problems of runs as a data set: what is in it, that it loads, and that its answers are right."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from populora_core.benchmarks.heldout import HeldOut
from populora_core.lifecycle.curriculum import Filters, write_curriculum
from populora_core.problems.dialects import dialect
from populora_core.problems.grading import judge_attempts
from populora_core.problems.model import Problem
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.verify import verify_or_raise
from populora_core.store.catalogue import Catalogue
from populora_core.support.errors import ArtifactError, RunDirectoryError
from populora_core.support.finish import FinishReason

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


def rows(folder: Path, name: str, cache: Path) -> list[dict]:
    from datasets import load_dataset  # a second to import

    return list(load_dataset(str(folder), name, cache_dir=str(cache))["train"])


@pytest.fixture(scope="module")
def written(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set of one run, with every problem; read it, never write to it."""
    folder = tmp_path_factory.mktemp("curriculum") / "set"
    write_curriculum([finished], folder)
    return folder


@pytest.fixture(scope="module")
def sets(written: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    """Configuration -> its rows, as the library of data sets loads them."""
    cache = tmp_path_factory.mktemp("cache")
    return {name: rows(written, name, cache) for name in ("problems", "supervised", "preferences")}


def test_every_judged_problem_is_in_it_once(sets: dict[str, list[dict]], finished: Path) -> None:
    with Catalogue(finished) as catalogue:
        judged = catalogue.rows("SELECT problem_id, solve_rate FROM problems WHERE n_attempts > 0")
    assert {row["problem_id"]: row["solve_rate"] for row in sets["problems"]} == {
        row["problem_id"]: row["solve_rate"] for row in judged
    }
    for row in sets["problems"]:
        assert sum(student["attempts"] for student in row["students"]) == row["n_attempts"]


def test_the_verifier_finds_every_supervised_answer_right(sets: dict[str, list[dict]]) -> None:
    problems = {
        row["problem_id"]: Problem(
            row["problem_id"],
            row["problem_type"],
            row["program"],
            tuple(row["inputs"]),
            tuple(row["outputs"]),
            row["message"],
        )
        for row in sets["problems"]
    }
    asked = [
        (problems[row["problem_id"]], {"completion": row["completion"], "finish_reason": FinishReason.STOP})
        for row in sets["supervised"]
    ]
    assert asked
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        judged = judge_attempts(
            dialect("compact"), lambda jobs: verify_or_raise(sandbox, jobs, determinism=False), asked
        )
    assert {one.verdict for one in judged} == {AttemptVerdict.CORRECT}


def test_a_pair_prefers_a_right_answer_to_a_wrong_one_of_the_same_problem(
    sets: dict[str, list[dict]], finished: Path
) -> None:
    with Catalogue(finished) as catalogue:
        told = catalogue.rows("SELECT problem_id, prompt, completion, verdict FROM attempts")
    verdicts = {(row["problem_id"], row["prompt"], row["completion"]): row["verdict"] for row in told}
    for row in sets["preferences"]:
        of = row["problem_id"], row["prompt"]
        assert (verdicts[(*of, row["chosen"])], verdicts[(*of, row["rejected"])]) == ("correct", "wrong")


def test_problems_of_two_runs_that_are_alike_are_taken_once(
    sets: dict[str, list[dict]], finished: Path, tmp_path: Path
) -> None:
    twin = Path(shutil.copytree(finished, tmp_path / "twin"))
    done = write_curriculum([finished, twin], tmp_path / "set")
    assert done.rows["problems"] == len(sets["problems"])


def test_filters_decide_what_is_taken(sets: dict[str, list[dict]], finished: Path, tmp_path: Path) -> None:
    done = write_curriculum([finished], tmp_path / "set", Filters(least=0.3, most=0.7))
    assert done.rows["problems"] == sum(0.3 <= row["solve_rate"] <= 0.7 for row in sets["problems"])
    with pytest.raises(RunDirectoryError, match="no problem is left"):
        write_curriculum([finished], tmp_path / "none", Filters(shortest=1000))
    assert not (tmp_path / "none").exists()


def test_problems_of_a_held_out_suite_are_left_out(
    sets: dict[str, list[dict]], finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = HeldOut([{**sets["problems"][0], "known_program": False}])
    monkeypatch.setattr("populora_core.lifecycle.curriculum.held_out", lambda: known)
    done = write_curriculum([finished], tmp_path / "set")
    assert done.held_out >= 1
    assert done.rows["problems"] == len(sets["problems"]) - done.held_out
    assert f"{done.held_out} problems were left out" in (tmp_path / "set" / "README.md").read_text()


def test_nothing_is_written_over(written: Path, finished: Path) -> None:
    with pytest.raises(ArtifactError, match="is not free"):
        write_curriculum([finished], written)
