"""The guard: a role below the base at two evaluations in a row marks or stops a run, and chance does neither."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import small_config, start
from store_run import STUDENT, commit_stage, item_row, write_run

from populora_core.lifecycle.loop import fork, train
from populora_core.report.advice import STAYS
from populora_core.report.guard import Fall, Standing, falls, falls_of, standing, stop_if_fallen
from populora_core.report.write import REPORT
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.store.artifacts import read_table
from populora_core.store.manifest import stage_dir
from populora_core.support.errors import BelowBase
from populora_core.support.shipped import REPOSITORY

PROBLEMS = 60


def evaluated(directory: Path, *solved: int | None, of_base: int = 30) -> list[Fall]:
    """The falls of a run whose student solved so many problems at each evaluation; None: infrastructure failed."""
    write_run(directory, 1)
    for generation, right in enumerate(solved, start=1):
        commit_stage(
            directory,
            generation,
            "evaluate",
            {
                "evaluation_items": [
                    item_row(generation, member)
                    | {"item_id": f"p{n}", "correct": None if count is None else n < count}
                    for member, count in ((STUDENT, right), ("base", of_base))
                    for n in range(PROBLEMS)
                ]
            },
        )
    return falls(directory)


def test_a_fall_is_two_evaluations_in_a_row_below_the_base(tmp_path: Path) -> None:
    (fall,) = evaluated(tmp_path, 30, 10, 30, 12, 10, 29)
    assert (fall.before.generation, fall.now.generation) == (4, 5)
    assert fall.now.gap.value == pytest.approx(-20 / PROBLEMS)
    assert str(fall).startswith("the students are 33 points below the base after generation 5 (")
    assert not fall.newest, "they have risen since"


def test_only_evaluations_of_whole_roles_are_compared(tmp_path: Path) -> None:
    assert [fall.now.generation for fall in evaluated(tmp_path, 10, 10, 10)] == [2, 3]
    (fall,) = falls(tmp_path, generations={1, 3})
    assert (fall.before.generation, fall.now.generation) == (1, 3)
    assert falls(tmp_path, generations={2}) == []


def test_what_is_above_the_base_or_within_the_interval_is_no_fall(tmp_path: Path) -> None:
    assert evaluated(tmp_path, 45, 28, 28, 45) == []


def test_infrastructure_counts_for_no_one(tmp_path: Path) -> None:
    assert evaluated(tmp_path, 5, None, 30) == []


def test_the_half_that_is_reported_does_not_count_in_the_loop(tmp_path: Path) -> None:
    assert [fall.newest for fall in evaluated(tmp_path, 5, 5)] == [True]
    assert falls(tmp_path, "test") == []


def test_chance_alone_gives_no_alarm_in_20_runs() -> None:
    """Members of the base's own skill, answering apart from it at temperature 1: greedily they would be equal."""
    rng = np.random.default_rng(4)
    skill = rng.beta(0.5, 0.5, 120)

    def by_chance(generation: int) -> Standing:
        sides = (rng.random((2, len(skill))) < skill).astype(float)
        problems = [{"benchmark": "b", "score": own, "base": base} for own, base in sides.T.tolist()]
        return standing("student", generation, problems)

    runs = [[by_chance(generation) for generation in range(1, 21)] for _ in range(20)]
    assert any(each.gap.high < 0.0 or each.gap.low > 0.0 for run in runs for each in run), (
        "99 % is not certain"
    )
    assert [falls_of(run) for run in runs] == [[]] * 20


@pytest.mark.parametrize(
    ("inherited", "slower"),
    [
        ({}, "-slower --set update.learning_rate=0.001, or"),
        ({"learning_rate": (0.004, 0.04)}, f"-slower --set 'pbt.learning_rate=[0.001, 0.01]'{STAYS}, or"),
    ],
)
def test_what_the_guard_advises_reaches_the_members(tmp_path: Path, inherited: dict, slower: str) -> None:
    suite = str(REPOSITORY / "configs" / "suites" / "tiny.toml")
    config = small_config(
        update={"learning_rate": 0.004},
        evaluate={"every": 1, "suite": suite, "guard": "stop"},
        pbt=inherited,
    )
    run = Run.create(tmp_path / "run", config, "digest")
    assert evaluated(run.directory, 5, 5)
    with pytest.raises(BelowBase) as stopped:
        stop_if_fallen(run, 2)
    assert slower in str(stopped.value)


def guarded(directory: Path, **update: object) -> Run:
    """One teacher and one student, evaluated after each generation on 45 problems, whom the guard stops."""
    directory.mkdir()
    suite = (REPOSITORY / "configs" / "suites" / "tiny.toml").read_text()
    (directory / "suite.toml").write_text(suite.replace("validation = 0.5", "validation = 0.06"))
    config = small_config(
        run={"generations": 3},
        population={"teachers": 1, "students": 1},
        propose={"types": ("code_o",), "per_type": 12},
        solve={"attempts": 6},
        update=update,
        evolve={"every": 0},
        evaluate={"every": 1, "suite": str(directory / "suite.toml"), "guard": "stop"},
    )
    return start(directory / "run", config)


@pytest.mark.loop
@pytest.mark.sandbox
@pytest.mark.thorough
def test_a_student_that_is_damaged_stops_its_run_which_goes_on_once_the_guard_only_marks(
    tmp_path: Path,
) -> None:
    run = guarded(tmp_path / "damaged", learning_rate=1.0, roles="students")
    for _ in range(2):  # a resume stops at the same place
        with (
            Session(run) as session,
            pytest.raises(BelowBase, match=r"(?s)the students are \d+ points.*fork"),
        ):
            train(session, 3)
    assert max(run.generations()) == 2
    assert "Guard: the students are" in (run.directory / REPORT).read_text()
    marked = run.config.model_copy(
        update={"evaluate": run.config.evaluate.model_copy(update={"guard": "mark"})}
    )
    forked = fork(run, 2, tmp_path / "marked", marked)
    with Session(forked) as session:
        train(session, 3)
    assert [fall.now.generation for fall in falls(forked.directory)] == [2, 3]


@pytest.mark.loop
@pytest.mark.sandbox
@pytest.mark.thorough
def test_a_student_that_does_not_move_answers_as_the_base_and_stops_nothing(tmp_path: Path) -> None:
    run = guarded(tmp_path / "still", roles="teachers")
    with Session(run) as session:
        train(session, 2)
    for generation in (1, 2):
        rows = read_table(stage_dir(run.directory, generation, "evaluate"), "evaluations").to_pylist()
        assert {row["delta"] for row in rows if row["member_id"] != "base"} == {0.0}
    assert falls(run.directory) == []
