"""Forks: they go their own way from a past that is another run's, and are made whole or not at all."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from broken_off import Died, after, first_two, forked, full, raising, resume
from conftest import contents

from populora_core.lifecycle import loop
from populora_core.lifecycle.loop import rerun, train
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import is_done, run_generation
from populora_core.store.artifacts import StageWriter, link_tree
from populora_core.store.manifest import stage_dir
from populora_core.support.durable import TEMPORARY_PREFIX
from populora_core.support.errors import ArtifactError, RunDirectoryError

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


@pytest.mark.thorough
def test_a_fork_goes_its_own_way_from_an_inherited_past(finished: Path, tmp_path: Path) -> None:
    run = forked(finished, 2, tmp_path, "update.learning_rate=0.0001")
    resume(run.directory)
    old, new = contents(finished), contents(run.directory)
    assert {name for name in old if old[name] != new[name]} == {
        name
        for name in old
        if name.startswith(("0003/update/", "0003/evolve/members", "0003/evolve/population"))
        and "advantages" not in name
    }


@pytest.mark.thorough
def test_what_follows_a_redrawn_stage_of_an_inherited_generation_is_made_anew(
    finished: Path, tmp_path: Path
) -> None:
    with Session(forked(finished, 1, tmp_path, "update.learning_rate=0.001")) as session:
        assert not any(result.reused for result in rerun(session, 1, "solve", seed=1))
        assert all(result.reused for result in run_generation(session, 1)), "now it follows"


@pytest.mark.thorough
def test_a_redraw_in_a_fork_that_died_before_its_commit_is_made_when_the_fork_goes_on(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = forked(finished, 2, tmp_path)
    with monkeypatch.context() as patch, Session(run) as session, pytest.raises(Died):
        patch.setattr(StageWriter, "commit", raising(Died()))
        rerun(session, 1, "solve", seed=99, truncate=True)
    assert run.generations() == [0, 1]
    resume(run.directory, 1)
    attempts = "0001/solve/attempts.parquet"
    assert contents(run.directory)[attempts] != contents(finished)[attempts]


def test_a_fork_records_what_auto_means_here(finished: Path, tmp_path: Path) -> None:
    """Else another machine would choose otherwise in mid-run."""
    asked = ("base.dtype=auto", "sampler.engine=auto", "sandbox.backend=auto")
    chosen = forked(finished, 1, tmp_path, *asked).config
    assert (chosen.base.dtype, chosen.sampler.engine) == ("float32", "torch")
    assert chosen.sandbox.backend != "auto"


def test_a_fork_of_a_damaged_generation_is_refused(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    """It would be made again by the fork's settings, although it is the past of both."""
    directory = copy_of()
    (stage_dir(directory, 1, "solve") / "attempts.parquet").unlink()
    with pytest.raises(RunDirectoryError, match="no complete generation 2") as caught:
        forked(directory, 2, tmp_path)
    assert caught.value.got == "a damaged solve of generation 1"


def test_a_damaged_past_is_not_made_again_by_a_forks_own_settings(finished: Path, tmp_path: Path) -> None:
    run = forked(finished, 1, tmp_path, "solve.temperature=0.5")
    lost = stage_dir(run.directory, 1, "solve") / "attempts.parquet"
    lost.unlink()
    with Session(run) as session, pytest.raises(ArtifactError, match="took it over") as caught:
        train(session, 1)
    assert "attempts.parquet is missing" in caught.value.got
    shutil.copy(stage_dir(finished, 1, "solve") / lost.name, lost)
    with Session(run) as session:
        assert is_done(session, 1)


def test_folders_that_somebody_put_beside_a_runs_own_are_passed_over(
    copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    run = Run.open(copy_of())
    member = next((run.directory / "members").glob("*/g0001"))
    for folder in (run.directory / "generations" / "0002", member):
        shutil.copytree(folder, folder.with_name(f"{folder.name}.bak"))
    assert run.generations() == [0, 1, 2, 3]
    assert forked(run.directory, 1, tmp_path).generations() == [0, 1]


def test_a_fork_of_an_unfinished_generation_is_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="no complete generation 4") as caught:
        forked(finished, 4, tmp_path)
    assert caught.value.expected == "one of its generations 0 to 3"
    assert not (tmp_path / "fork").exists()


def test_a_fork_that_is_broken_off_leaves_nothing_behind(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "populora_core.lifecycle.loop.link_tree",
        after(3, link_tree, full),
    )
    with pytest.raises(ArtifactError, match="free space"):
        forked(finished, 2, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_fork_that_is_killed_is_no_run_and_the_next_one_clears_up(finished: Path, tmp_path: Path) -> None:
    target = tmp_path / "fork"
    child = os.fork()
    if not child:
        loop.link_tree = after(3, link_tree, lambda: os.kill(os.getpid(), signal.SIGKILL))
        try:
            forked(finished, 2, tmp_path)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(TEMPORARY_PREFIX)
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        Run.open(target)
    forked(finished, 2, tmp_path)
    assert list(tmp_path.iterdir()) == [target]
    assert contents(target) == first_two(finished)
