"""Killed, damaged and rerun runs: what is done stays done, what is not is made, and nothing else changes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from broken_off import Died, after, first_two, forked, full, raising, resume
from conftest import GENERATIONS, commits, contents, small_config, start

from populora_core.lifecycle.loop import rerun, supersede_later, train
from populora_core.report.write import outdated
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.runs.trackers import TRACKERS, GenerationFigures
from populora_core.sandbox.jobs import Job, JobResult, Sandbox
from populora_core.sandbox.status import Status
from populora_core.sandbox.verify import verify_or_raise
from populora_core.stages.table import LOOP, STAGES
from populora_core.store.artifacts import StageWriter
from populora_core.store.manifest import Manifest, generation_dir, stage_dir
from populora_core.support.errors import ArtifactError, BaseModelError, RunDirectoryError, SandboxUnavailable

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


def rewrite(record: Path, **fields: object) -> None:
    record.write_text(json.dumps(json.loads(record.read_text()) | fields))


def flip(path: Path, place: int) -> None:
    """Damage one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_given_up_just_before_each_commit_a_run_finishes_equal_to_an_undisturbed_one(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adapters are in place then, the stage is not. Kills at any moment: test_kill.py."""
    run = forked(finished, 1, tmp_path)
    directory, commit = run.directory, StageWriter.commit
    with Session(run) as session:
        for stage in [each.name for each in LOOP]:

            def die_or_commit(writer: StageWriter, manifest: Manifest) -> Manifest:
                if (manifest.generation, manifest.stage) == (2, stage):  # noqa: B023  # called before the next
                    raise Died
                return commit(writer, manifest)

            with monkeypatch.context() as patch, pytest.raises(Died):
                patch.setattr(StageWriter, "commit", die_or_commit)
                patch.setattr(StageWriter, "__exit__", lambda *arguments: None)
                train(session, 2)
            assert not stage_dir(directory, 2, stage).exists()
        train(session, 2)
    assert contents(directory) == first_two(finished)
    assert set(commits(directory).values()) == {1}, "no finished stage is done twice"


@pytest.mark.thorough
def test_a_run_killed_when_only_its_report_was_left_gets_it_at_resume(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copy_of()
    with monkeypatch.context() as patch:
        patch.setattr("populora_core.lifecycle.loop.refresh", raising(Died()))
        with Session(Run.open(directory)) as session, pytest.raises(Died):
            rerun(session, GENERATIONS, "match")
    assert outdated(directory)
    counts = commits(directory)
    resume(directory)
    assert not outdated(directory)
    assert commits(directory) == counts


@pytest.mark.thorough
def test_a_damaged_stage_is_redone_and_nothing_else(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    before, counts = contents(directory), commits(directory)
    with Session(Run.open(directory)) as session:
        for stage in [each.name for each in LOOP]:
            victim = sorted(stage_dir(directory, 2, stage).glob("*.parquet"))[0]
            flip(victim, victim.stat().st_size // 2)
            train(session, GENERATIONS)
            assert contents(directory) == before, stage
            counts[f"0002/{stage}"] += 1
            assert commits(directory) == counts, stage


@pytest.mark.thorough
def test_a_damaged_adapter_is_written_again(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    adapter = sorted((directory / "members").glob("*/g0002/adapter_model.safetensors"))[0]
    whole = adapter.read_bytes()
    flip(adapter, -1)
    resume(directory)
    assert adapter.read_bytes() == whole


@pytest.mark.thorough
def test_an_early_update_that_is_redone_and_comes_out_as_it_was_stays(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    before, counts = contents(directory), commits(directory)
    with Session(Run.open(directory)) as session:
        results = rerun(session, 1, "update")
    assert [(r.stage, r.reused) for r in results] == [("update", True), ("evaluate", True), ("evolve", True)]
    assert (contents(directory), commits(directory)) == (before, counts)


@pytest.mark.thorough
def test_a_redraw_under_later_generations_is_refused_and_changes_nothing(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    before, counts = contents(directory), commits(directory)
    with Session(Run.open(directory)) as session, pytest.raises(RunDirectoryError, match="--truncate"):
        rerun(session, 1, "solve", seed=99)
    assert (contents(directory), commits(directory)) == (before, counts)
    resume(directory)
    assert commits(directory) == counts


@pytest.mark.thorough
def test_an_empty_folder_is_no_later_generation(copy_of: Callable[[], Path]) -> None:
    run = Run.open(copy_of())
    generation_dir(run.directory, GENERATIONS + 1).mkdir()  # as a kill within its first stage leaves it
    with Session(run) as session:
        (result,) = rerun(session, GENERATIONS, "evolve", seed=3)
    assert not result.reused


@pytest.mark.thorough
def test_a_truncating_redraw_sets_later_generations_aside_and_lasts(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    before = contents(directory)
    with Session(Run.open(directory)) as session:
        rerun(session, 1, "solve", seed=99, truncate=True)
    assert not (directory / "generations" / "0002").exists()
    assert list((directory / "superseded").glob("*/generations/0002"))
    assert not list((directory / "members").glob("*/g0002")), "and what their members were"
    redrawn = contents(directory)["0001/solve/attempts.parquet"]
    assert redrawn != before["0001/solve/attempts.parquet"]
    resume(directory)
    assert contents(directory)["0001/solve/attempts.parquet"] == redrawn
    assert contents(directory).keys() == before.keys()


def raise_version(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Give a stage a higher version, as an upgrade does."""
    raised = replace(STAGES[name], version=STAGES[name].version + 1)
    monkeypatch.setitem(STAGES, name, raised)
    monkeypatch.setattr(
        "populora_core.stages.table.LOOP", tuple(raised if each.name == name else each for each in LOOP)
    )


@pytest.mark.parametrize("held", [True, False], ids=["held", "lost"])
def test_a_stage_after_the_one_that_is_made_again_comes_out_otherwise_under_no_later_generation(
    held: bool, copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copy_of()
    if not held:
        (stage_dir(directory, 1, "verify") / "manifest.json").unlink()
    before, counts = contents(directory), commits(directory)
    raise_version(monkeypatch, "verify")
    monkeypatch.setattr("populora_core.stages.verify.program_key", lambda program: "0" * 64)
    with Session(Run.open(directory)) as session:
        with pytest.raises(RunDirectoryError, match="follow from verify of generation 1") as refused:
            rerun(session, 1, "match")
        assert "--truncate" in refused.value.fix and "problems.parquet" in refused.value.got
        assert (contents(directory), commits(directory)) == (before, counts)
        rerun(session, 1, "match", truncate=True, up_to="solve")
    assert contents(directory)["0001/verify/problems.parquet"] != before.get("0001/verify/problems.parquet")
    assert list((directory / "superseded").glob("*/generations/0002"))


def later_files(place: Path) -> set[Path]:
    """What generations after the first hold, and their members' folders."""
    folders = [*place.glob("generations/000[23]"), *place.glob("members/*/g000[23]")]
    return {path.relative_to(place) for folder in folders for path in folder.rglob("*") if path.is_file()}


def test_a_truncation_makes_one_folder_and_a_second_one_finishes_what_a_kill_left(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.open(copy_of())
    later = later_files(run.directory)
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(os, "rename", after(2, os.rename, raising(Died())))
        supersede_later(run, 1)
    assert run.generations() == [0, 1, 2], "a whole prefix"
    aside = run.directory / "superseded"
    assert later_files(run.directory) | later_files(aside / "0001") == later
    supersede_later(run, 1)
    assert not later_files(run.directory)
    assert sorted(path.name for path in aside.iterdir()) == ["0001", "0002"], "one for each call"
    assert later_files(aside / "0001") | later_files(aside / "0002") == later
    supersede_later(run, 1)
    assert len([*aside.iterdir()]) == 2, "nothing is left to move"


class Noted:
    """A tracker that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []

    def follow(self, generations: Sequence[GenerationFigures]) -> None:
        self.told.append([each.digest for each in generations])

    def close(self) -> None:
        pass


@pytest.mark.thorough
def test_trackers_hear_of_no_generation_that_is_still_to_be_made_again(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Online a log takes no step back, and goes on as another one."""
    directory, noted = copy_of(), Noted()
    monkeypatch.setitem(TRACKERS.made, "noted", lambda run: noted)
    config = json.loads((directory / "run.json").read_text())["config"]
    config["trackers"]["use"] = ["noted"]
    rewrite(directory / "run.json", config=config)
    flip(stage_dir(directory, 2, "evolve") / "evolutions.parquet", 9)
    resume(directory)
    assert [len(told) for told in noted.told] == [GENERATIONS], "later ones still follow"
    noted.told.clear()
    raise_version(monkeypatch, "evolve")
    resume(directory)
    assert [len(told) for told in noted.told] == [1, 2, 3]
    assert all(told == noted.told[-1][: len(told)] for told in noted.told)


def test_a_stage_that_was_never_made_cannot_be_rerun(copy_of: Callable[[], Path]) -> None:
    with Session(Run.open(copy_of())) as session:
        with pytest.raises(RunDirectoryError, match="never made"):
            rerun(session, 9, "solve")
        with pytest.raises(RunDirectoryError, match="one of match"):
            rerun(session, 1, "slove")
        for seed in (-1, 1 << 63):
            with pytest.raises(RunDirectoryError, match="no seed"):
                rerun(session, GENERATIONS, "solve", seed=seed)


def test_a_base_model_that_changed_is_refused(tmp_path: Path) -> None:
    run = start(tmp_path / "run", small_config())
    rewrite(run.directory / "run.json", base_digest="0" * 64)
    with Session(Run.open(run.directory)) as session, pytest.raises(BaseModelError, match="not the one"):
        train(session, 1)


def test_a_full_disk_loses_nothing(copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    directory = copy_of()
    before, missing = contents(directory), stage_dir(directory, 2, "match") / "matches.parquet"
    missing.unlink()
    with Session(Run.open(directory)) as session:
        with monkeypatch.context() as patch, pytest.raises(ArtifactError, match="free space"):
            patch.setattr("populora_core.store.artifacts.pq.write_table", full)
            train(session, GENERATIONS)
        assert contents(directory) == before
        assert not list((directory / "generations").rglob(".tmp-*"))
        train(session, GENERATIONS)
    assert contents(directory) == before
    assert missing.is_file()


@pytest.mark.parametrize("stage", [s.name for s in LOOP])
def test_ctrl_c_in_any_stage_keeps_what_was_committed(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    directory = copy_of()
    before = contents(directory)
    monkeypatch.setattr(f"populora_core.stages.{stage}.run", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt), Session(Run.open(directory)) as session:
        rerun(session, 3, stage)
    assert contents(directory) == before
    assert not list((directory / "generations").rglob(".tmp-*"))


class DownFor:
    """A sandbox that loses its daemon in the middle of a batch."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.name, self.identity, self.limits = sandbox.name, sandbox.identity, sandbox.limits
        self.outage: SandboxUnavailable | None = None

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int], None] | None = None, *, repeat: bool = False
    ) -> list[JobResult]:
        self.outage = SandboxUnavailable("the daemon is gone", fix="start it, then resume")
        return [JobResult(job.job_id, Status.INFRASTRUCTURE) for job in jobs]


@pytest.mark.parametrize("stage", ["verify", pytest.param("grade", marks=pytest.mark.thorough)])
def test_a_sandbox_that_goes_down_commits_nothing_and_the_run_resumes(
    finished: Path, tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = forked(finished, 1, tmp_path)
    with Session(run) as session:
        sandbox = session.sandbox
        down = DownFor(sandbox)
        monkeypatch.setattr(
            "populora_core.stages.context.verify_or_raise",
            lambda _, jobs, **settings: verify_or_raise(
                down if settings["determinism"] == (stage == "verify") else sandbox, jobs, **settings
            ),
        )
        with pytest.raises(SandboxUnavailable, match="daemon is gone"):
            train(session, 2)
    assert not stage_dir(run.directory, 2, stage).exists()
    monkeypatch.undo()
    resume(run.directory, 2)
    assert contents(run.directory) == first_two(finished)


def test_a_run_of_an_older_format_is_refused_with_what_opens_it(copy_of: Callable[[], Path]) -> None:
    record = copy_of() / "run.json"
    rewrite(record, format=1, code_revision="0123456789ab")
    with pytest.raises(RunDirectoryError, match="another version") as refused:
        Run.open(record.parent)
    assert "0123456789ab" in refused.value.fix
    assert "--run-dir NEW" in refused.value.fix
