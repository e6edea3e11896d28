"""The member taken home from an arm leaves its study: its run is made again, and says the same as before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command import populora
from peft import PeftModel
from small_study import nobody

from populora_core.model.base import load_base
from populora_core.support.errors import ArtifactError, StudyError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.conduct import conduct, plan
from populora_plugins.study.outcomes import taken_home
from populora_plugins.study.release import plan_release, release
from populora_plugins.study.summary import Summary, Value, read_summary, write_summary


def make_pair(study: Path) -> Path:
    """Make the runs of one arm; its summary."""
    planned = plan(study)
    (run,) = [run for run in planned.left if run.origin.arm == "pair"]
    conduct(replace(planned, left=(run,)), nobody)
    return run.summary


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_the_best_member_of_an_arm_leaves_its_study_with_proof_that_it_is_the_one_measured(
    small: Path,
) -> None:
    to = small.parent / "released"
    command = ["study", "release", "--config", str(small), "--to", str(to)]
    with pytest.raises(StudyError, match="no finished run of small"):
        plan_release(small, to)
    make_pair(small)
    with pytest.raises(StudyError, match=r"no finished run of solo .*\nExpected: arms of pair\n"):
        plan_release(small, to, ["solo"])

    done = populora(*command, "--base-name", "somebody/tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    (member,) = [path.name for path in to.iterdir() if path.is_dir()]
    assert member == "pair"
    row = (to / "README.md").read_text().splitlines()[-1]
    assert row.startswith("| pair | 3 | `student-") and row.endswith("| yes |")
    model = PeftModel.from_pretrained(load_base(REPOSITORY / "base_model/tiny").model, to / "pair")
    assert model.peft_config["default"].base_model_name_or_path == "somebody/tiny"
    assert "slot 0 of the run `pair-seed-0003`" in " ".join((to / "pair/README.md").read_text().split())
    again = populora(*command)
    assert again.returncode == 2 and "is not free" in again.stderr


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_release_that_failed_goes_on_and_says_where_a_run_came_out_otherwise(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, path = small.parent / "released", make_pair(small)
    summary = read_summary(path)
    other = [replace_value(value) if value.measure == "solve_rate" else value for value in summary.values]
    write_summary(path, summary.origin, other)
    with monkeypatch.context() as patch:
        patch.setattr("populora_core.lifecycle.export.export_member", full)
        with pytest.raises(ArtifactError, match="the disk is full"):
            release(plan_release(small, to), None, nobody)
    assert plan_release(small, to).planned.left == (), "the run is not made a third time"
    table = release(plan_release(small, to), None, nobody)
    assert table.read_text().splitlines()[-1].endswith("| no: solve_rate of all in generation 1 |")
    assert sorted(path.name for path in to.iterdir()) == ["README.md", "pair"]


def replace_value(value: Value) -> Value:
    generation, measure, part, found = value
    return Value(generation, measure, part, found + 1.0)


def full(*arguments: object, **options: object) -> None:
    """An export that meets a full disk."""
    raise ArtifactError("the disk is full")


def test_a_folder_that_is_not_a_release_is_left_alone(small: Path) -> None:
    other = small.parent / "mine"
    (other / "runs").mkdir(parents=True)
    with pytest.raises(ArtifactError, match="is not free"):
        plan_release(small, other)


def test_a_member_is_not_released_by_code_that_would_make_another(small: Path) -> None:
    run = plan(small).left[0]
    older = run.origin.stage_versions | {"match": 0}
    made = replace(run.origin, stage_versions=older, code_revisions=("abc123",))
    write_summary(run.summary, made, [Value(2, "held_out", "solo-00", 0.3)])
    with pytest.raises(StudyError, match=r"version of match 0 → 1(.*\n)*.*revision abc123"):
        plan_release(small, small.parent / "released")


def test_what_a_user_takes_home_is_the_member_chosen_on_the_validation_half(small: Path) -> None:
    origin = plan(small).left[0].origin
    ends = [(2, "held_out.levels_2_5", "student-00", 0.5), (2, "held_out.levels_2_5", "teacher-00", 0.9)]
    before = [(1, "held_out.levels_2_5", "student-00", 0.7)]
    assert taken_home(Summary(origin, tuple(Value(*row) for row in ends + before))) == 0.5
    chosen = Value(2, "take_home.levels_2_5", "all", 0.4)
    vote = Value(2, "vote.levels_2_5", "all", 0.6)
    assert taken_home(Summary(origin, (*(Value(*row) for row in ends), chosen, vote))) == 0.4
    earlier = Value(1, "take_home.levels_2_5", "all", 0.4)
    assert taken_home(Summary(origin, (*(Value(*row) for row in ends), earlier, vote))) == 0.5
    nothing = Value(2, "held_out.levels_2_5", "student-00", 0.0)
    assert taken_home(Summary(origin, (nothing, Value(2, "held_out", "student-00", 0.3)))) == 0.0
