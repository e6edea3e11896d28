"""Killed, damaged, rerun and forked runs: what is done stays done, what is not is made, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import GENERATIONS, commits, contents, small_config, start

from populora_core.config import apply_overrides
from populora_core.errors import ArtifactError, BaseModelError, RunDirectoryError, SandboxUnavailable
from populora_core.run import Run
from populora_core.session import Session
from populora_core.stages.loop import fork, rerun, train
from populora_core.stages.table import LOOP, STAGE_NAMES
from populora_core.store.artifacts import Manifest, StageWriter, stage_dir
from populora_core.verifier.protocol import Job, JobResult, Sandbox
from populora_core.verifier.verdicts import Status
from populora_core.verifier.verify import verify_or_raise

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


class Died(BaseException):
    """Stands for a kill: nothing after it is done, no cleaning up either."""


def resume(directory: Path) -> None:
    with Session(Run.open(directory)) as session:
        train(session, GENERATIONS)


def test_given_up_just_before_each_commit_a_run_finishes_equal_to_an_undisturbed_one(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adapters are in place then, the stage is not. Kills at any moment: test_kill.py."""
    directory = tmp_path / "killed"
    commit = StageWriter.commit
    with Session(start(directory, small_config())) as session:
        for stage in STAGE_NAMES:

            def die_or_commit(writer: StageWriter, manifest: Manifest) -> Manifest:
                if (writer._generation, writer._stage) == (2, stage):  # noqa: B023  # called before the next
                    raise Died
                return commit(writer, manifest)

            with monkeypatch.context() as patch:
                patch.setattr(StageWriter, "commit", die_or_commit)
                patch.setattr(StageWriter, "__exit__", lambda *arguments: None)
                with pytest.raises(Died):
                    train(session, GENERATIONS)
            assert not stage_dir(directory, 2, stage).exists()
        train(session, GENERATIONS)
    assert contents(directory) == contents(finished)
    assert set(commits(directory).values()) == {1}, "no finished stage is done twice"


def test_processes_on_every_shard_give_what_one_process_gives(finished: Path, tmp_path: Path) -> None:
    directory = tmp_path / "processes"
    with Session(start(directory, small_config(compute={"backend": "local"}))) as session:
        train(session, 2)
    made = contents(directory)
    assert made
    assert made == {name: content for name, content in contents(finished).items() if name in made}


@pytest.mark.parametrize("harm", ["deleted", "flipped"])
def test_a_damaged_stage_is_redone_and_nothing_else(copy_of: Callable[[], Path], harm: str) -> None:
    directory = copy_of()
    before, counts = contents(directory), commits(directory)
    with Session(Run.open(directory)) as session:
        for stage in STAGE_NAMES:
            victim = sorted(stage_dir(directory, 2, stage).glob("*.parquet"))[0]
            if harm == "deleted":
                victim.unlink()
            else:
                data = bytearray(victim.read_bytes())
                data[len(data) // 2] ^= 1
                victim.write_bytes(data)
            train(session, GENERATIONS)
            assert contents(directory) == before, stage
            counts[f"0002/{stage}"] += 1
            assert commits(directory) == counts, stage


def test_a_damaged_adapter_is_written_again(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    adapter = sorted((directory / "members").glob("*/g0002/adapter_model.safetensors"))[0]
    whole = adapter.read_bytes()
    adapter.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    resume(directory)
    assert adapter.read_bytes() == whole


def test_an_early_update_can_be_redone_after_the_run_is_finished(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    before = contents(directory)
    with Session(Run.open(directory)) as session:
        results = rerun(session, 1, "update")
    assert [(r.stage, r.reused) for r in results] == [
        ("update", False),
        ("evaluate", True),
        ("evolve", True),
    ]
    assert contents(directory) == before


def test_a_redraw_under_later_generations_is_refused_and_changes_nothing(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    before, counts = contents(directory), commits(directory)
    with Session(Run.open(directory)) as session, pytest.raises(RunDirectoryError, match="--truncate"):
        rerun(session, 1, "solve", seed=99)
    assert (contents(directory), commits(directory)) == (before, counts)
    resume(directory)
    assert commits(directory) == counts


def test_a_truncating_redraw_sets_later_generations_aside_and_lasts(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    before = contents(directory)
    with Session(Run.open(directory)) as session:
        rerun(session, 1, "solve", seed=99, truncate=True)
    assert not (directory / "generations" / "0002").exists()
    assert list((directory / "superseded").glob("*/generations/0002"))
    redrawn = contents(directory)["0001/solve/attempts.parquet"]
    assert redrawn != before["0001/solve/attempts.parquet"]
    resume(directory)
    assert contents(directory)["0001/solve/attempts.parquet"] == redrawn
    assert contents(directory).keys() == before.keys()


def test_a_stage_that_was_never_made_cannot_be_rerun(copy_of: Callable[[], Path]) -> None:
    with Session(Run.open(copy_of())) as session:
        with pytest.raises(RunDirectoryError, match="never made"):
            rerun(session, 9, "solve")
        with pytest.raises(RunDirectoryError, match="one of match"):
            rerun(session, 1, "slove")


def test_a_fork_goes_its_own_way_from_an_inherited_past(finished: Path, tmp_path: Path) -> None:
    source = Run.open(finished)
    config = apply_overrides(source.config, ["update.learning_rate=0.0001"])
    forked = fork(source, 2, tmp_path / "fork", config)
    resume(forked.directory)
    old, new = contents(finished), contents(forked.directory)
    assert {name for name in old if old[name] != new[name]} == {
        name
        for name in old
        if name.startswith(("0003/update/", "0003/evolve/members", "0003/evolve/population"))
        and "advantages" not in name
    }


def test_a_fork_of_an_unfinished_generation_is_refused(finished: Path, tmp_path: Path) -> None:
    source = Run.open(finished)
    with pytest.raises(RunDirectoryError, match="no complete generation 4"):
        fork(source, 4, tmp_path / "fork", source.config)
    assert not (tmp_path / "fork").exists()


def test_a_base_model_that_changed_is_refused(tmp_path: Path) -> None:
    run = start(tmp_path / "run", small_config())
    record = json.loads((run.directory / "run.json").read_text())
    (run.directory / "run.json").write_text(json.dumps(record | {"base_digest": "0" * 64}))
    with Session(Run.open(run.directory)) as session, pytest.raises(BaseModelError, match="not the one"):
        train(session, 1)


def test_a_full_disk_loses_nothing(copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    directory = copy_of()
    before = contents(directory)

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with Session(Run.open(directory)) as session:
        with monkeypatch.context() as patch:
            patch.setattr("populora_core.store.artifacts.pq.write_table", full)
            with pytest.raises(ArtifactError, match="free space"):
                train(session, GENERATIONS + 1)
        assert contents(directory) == before
        assert not list((directory / "generations").rglob(".tmp-*"))
        train(session, GENERATIONS + 1)
    assert contents(directory).keys() > before.keys()


@pytest.mark.parametrize("stage", [s.name for s in LOOP])
def test_ctrl_c_in_any_stage_keeps_what_was_committed(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    directory = copy_of()
    before = contents(directory)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"populora_core.stages.{stage}.run", interrupt)
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
        self.outage = SandboxUnavailable("the daemon is gone", remedy="start it, then resume")
        return [JobResult(job.job_id, Status.INFRASTRUCTURE) for job in jobs]


@pytest.mark.parametrize("stage", ["verify", "grade"])
def test_a_sandbox_that_goes_down_commits_nothing_and_the_run_resumes(
    finished: Path, tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "outage"
    start(directory, small_config())
    with Session(Run.open(directory)) as session:
        train(session, 1)
    with Session(Run.open(directory)) as session:
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
    assert not stage_dir(directory, 2, stage).exists()
    monkeypatch.undo()
    resume(directory)
    assert contents(directory) == contents(finished)
