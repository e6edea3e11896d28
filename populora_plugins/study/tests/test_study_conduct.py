"""The conductor of a study sets aside what no longer counts, only where asked, and leaves others' work alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command import populora
from conftest import wait_for
from small_study import nobody

from populora_core.runs.heartbeat import Beat, Heartbeat
from populora_core.support.errors import StudyError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.conduct import conduct, plan
from populora_plugins.study.play import play
from populora_plugins.study.summary import read_summary, write_summary


def test_void_summaries_are_set_aside(small: Path) -> None:
    planned = plan(small)
    run = planned.left[0]
    write_summary(run.summary, replace(run.origin, base_digest="other"), [])
    found = plan(small)
    assert found.void == {run.name: "the base model is another"}
    conduct(replace(found, left=()), nobody)
    assert not run.summary.exists()
    assert (run.summary.parent / "void" / run.summary.name).exists()
    write_summary(run.summary, replace(run.origin, base_digest="a third"), [])
    conduct(replace(plan(small), left=()), nobody)
    assert len(list((run.summary.parent / "void").iterdir())) == 2, "what was set aside before is kept"


def test_what_was_set_aside_is_never_replaced(small: Path) -> None:
    run = plan(small).left[0]
    aside = run.summary.parent / "void"
    for digest in ("one", "two", "three"):
        if digest == "three":  # a person removed the first
            (aside / run.summary.name).unlink()
        write_summary(run.summary, replace(run.origin, base_digest=digest), [])
        conduct(replace(plan(small), left=()), nobody)
    assert {read_summary(path).origin.base_digest for path in aside.iterdir()} == {"two", "three"}


def test_finished_runs_that_do_not_count_are_left_alone_without_a_word_for_it(small: Path) -> None:
    for run in plan(small).left:
        write_summary(run.summary, run.origin, [])
    other = replace(run.origin, seed=77)
    path = run.summary.with_name(f"{other.name}.parquet")
    write_summary(path, other, [])
    refused = populora("study", "--config", small)
    assert refused.returncode == 2
    assert "Got: the study has no such arm or seed" in refused.stderr and "--again" in refused.stderr
    assert path.exists()
    done = populora("study", "--config", small, "--again")
    assert done.returncode == 0, done.stderr
    assert (path.parent / "void" / path.name).exists()


def test_a_study_does_not_begin_again_in_another_folder(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other = small.parent, small.parent / "other"
    text = small.read_text()
    for name in ("runs", "results"):
        text = text.replace(f'"{folder}/{name}"', f'"{name}"')
    small.write_text(text)
    other.mkdir()
    monkeypatch.chdir(other)
    assert len(plan(small).left) == 2, "nothing is there yet"
    monkeypatch.chdir(folder)
    conduct(replace(plan(small), left=()), nobody)
    assert len(plan(small).left) == 2
    monkeypatch.chdir(other)
    refused = populora("study", "--config", "../study.toml", "--dry-run")
    assert refused.returncode == 2 and not refused.stdout
    assert "has results in another folder, and would begin again here" in refused.stderr
    assert f"Expected: {folder} as the working folder, where results lies\nGot: {other}" in refused.stderr
    (other / "results").mkdir()
    assert len(plan(small).left) == 2, "who makes the folder wants it here"


def test_a_committed_record_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyError, match="would begin again here") as refused:
        plan(REPOSITORY / "configs/study-frontier.toml")
    assert f"cd {REPOSITORY}" in refused.value.fix


def test_a_run_is_not_made_by_other_code_than_it_was_planned_by(small: Path) -> None:
    run = plan(small).left[0]
    before = replace(run.origin, stage_versions=run.origin.stage_versions | {"match": 99})
    with pytest.raises(StudyError, match=f"the code changed since {run.name} was planned"):
        play(replace(run, origin=before), nobody)


def test_a_run_that_another_conductor_finished_is_not_made_again(small: Path) -> None:
    run = plan(small).left[0]
    write_summary(run.summary, run.origin, [])
    play(run, nobody)
    assert not run.directory.exists()


def test_a_directory_that_another_conductor_works_in_stays(small: Path) -> None:
    small.write_text(f"keep_runs = false\n{small.read_text()}")
    run = plan(small).left[0]
    write_summary(run.summary, run.origin, [])
    run.directory.mkdir(parents=True)
    with Heartbeat(run.directory, list):
        wait_for(lambda: Beat.read(run.directory) is not None)
        conduct(replace(plan(small), left=()), nobody)
        assert run.directory.exists()
    conduct(replace(plan(small), left=()), nobody)
    assert not run.directory.exists()


@pytest.mark.parametrize("keep", [True, False])
def test_a_run_directory_goes_with_its_summary_also_if_a_kill_came_between(small: Path, keep: bool) -> None:
    small.write_text(f"keep_runs = {str(keep).lower()}\n{small.read_text()}")
    run = plan(small).left[0]
    write_summary(run.summary, run.origin, [])
    run.directory.mkdir(parents=True)
    (run.directory / "run.json").touch()
    conduct(replace(plan(small), left=()), nobody)
    assert run.directory.exists() is keep
    assert plan(small).done == (run.name,)


def test_a_summary_that_the_study_does_not_ask_for_any_more_is_set_aside(small: Path) -> None:
    run = plan(small).left[0]
    other = replace(run.origin, seed=77)
    path = run.summary.with_name(f"{other.name}.parquet")
    write_summary(path, other, [])
    found = plan(small)
    assert found.void == {other.name: "the study has no such arm or seed"}
    conduct(replace(found, left=()), nobody)
    assert not path.exists()
    assert (path.parent / "void" / path.name).exists()
