"""A stage that one machine makes again: others are told, pull it, and set aside evaluations that it outdates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest
from shared_run import MEMBER, STAGE, Written, begin, files, make
from store_run import evaluation_row

from populora_core.lifecycle.loop import rerun
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_stage
from populora_core.stages.table import file_name
from populora_core.store.artifacts import StageWriter
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import FileRecord, read_manifest, stage_dir
from populora_core.store.schema import to_table
from populora_core.support.errors import RunDirectoryError
from populora_plugins.cluster.pull import Pulled, pull


def test_a_redraw_elsewhere_is_told_and_pulled(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    run = begin(tmp_path / "run", url)
    other = pull(url, tmp_path / "other").run
    with Session(other) as behind:
        shared = run.shared()
        assert shared is not None
        shared.redraw({"0000/found": 7})
        run.save_redraws({"0000/found": 7})
        with pytest.raises(RunDirectoryError, match="different histories"):
            run_stage(behind, 0, STAGE)
        assert behind.shared is not None
        with pytest.raises(RunDirectoryError, match="populora pull"):
            behind.shared.redraw({"0000/found": 8})
    with pytest.raises(RunDirectoryError, match="different histories"):
        make(other.directory)
    assert pull(url, other.directory).run.redraws() == {"0000/found": 7}
    make(other.directory)


def test_what_a_guard_refuses_reaches_no_store_and_comes_from_none(tmp_path: Path) -> None:
    def refuse(files: Sequence[FileRecord]) -> NoReturn:
        raise RunDirectoryError("later generations would not follow")

    url = (tmp_path / "store").as_uri()
    run = begin(tmp_path / "run", url)
    other = pull(url, tmp_path / "other").run
    with Session(run) as session, pytest.raises(RunDirectoryError, match="would not follow"):
        run_stage(session, 0, STAGE, guard=refuse)
    assert pull(url, other.directory).brought == 0
    make(run.directory)
    with Session(other) as behind, pytest.raises(RunDirectoryError, match="would not follow"):
        run_stage(behind, 0, STAGE, guard=refuse)
    assert read_manifest(stage_dir(other.directory, 0, "found")) is None


class Redrawn(NamedTuple):
    """A stage that one machine made again, and another that has evaluated the old one and pulled the new one."""

    run: Path
    other: Path
    before: dict[str, bytes]
    evaluation: Path
    pulled: Pulled


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory: pytest.TempPathFactory) -> Redrawn:
    url, run, other = two_machines(tmp_path_factory.mktemp("redrawn"))
    before, evaluation = files(other), evaluate(other)
    redraw(run, b"second draw")
    return Redrawn(run.directory, other, before, evaluation, pull(url, other))


@pytest.mark.thorough
def test_a_rerun_with_a_seed_reaches_the_other_machines_by_pull(redrawn: Redrawn) -> None:
    assert files(redrawn.run) != redrawn.before
    assert (redrawn.pulled.brought, redrawn.pulled.run.redraws()) == (1, {"0000/found": 7})
    assert files(redrawn.other) == files(redrawn.run)


def two_machines(folder: Path) -> tuple[str, Run, Path]:
    """A store, a run that has made its stage, and the directory of another machine that has pulled it."""
    url = (folder / "store").as_uri()
    run = begin(folder / "run", url)
    make(run.directory, b"first draw")
    return url, run, pull(url, folder / "other").run.directory


def redraw(run: Run, weights: bytes) -> None:
    """Make the stage again with another seed."""
    Written.weights = weights
    with Session(run) as session:
        rerun(
            session,
            0,
            "found",
            seed=7,
            run_one=lambda held, number, stage, **how: run_stage(held, number, STAGE, **how),
        )


def evaluate(run: Path) -> Path:
    """Commit an evaluation of the members that the run directory has; returns its folder."""
    members = read_manifest(stage_dir(run, 0, "found"))
    assert members is not None
    with StageWriter(run, 0, "evaluate-tiny") as writer:
        writer.write_table("evaluations", to_table("evaluations", [evaluation_row(0, MEMBER)]))
        writer.commit(
            writer.draft(
                key="5" * 64,
                stage_version=1,
                seed=0,
                config={},
                inputs={name: members.contents[file_name(name)] for name in ("population",)},
                started=0.0,
                seconds=1.0,
                code_revision="abc",
            )
        )
    return stage_dir(run, 0, "evaluate-tiny")


@pytest.mark.thorough
def test_a_pull_sets_aside_evaluations_of_members_that_another_machine_redrew(redrawn: Redrawn) -> None:
    assert not redrawn.evaluation.exists()
    aside = redrawn.other / "superseded"
    assert list(aside.glob("*/generations/0000/evaluate-tiny/evaluations.parquet"))
    with Catalogue(redrawn.other) as catalogue:
        assert catalogue.rows("FROM evaluations") == []


@pytest.mark.thorough
def test_a_pull_that_follows_a_killed_one_sets_outdated_evaluations_aside_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, run, other = two_machines(tmp_path)
    evaluation = evaluate(other)
    redraw(run, b"second draw")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("populora_plugins.cluster.pull.supersede_outdated", _killed)
        pull(url, other)
    assert files(other) == files(run.directory) and evaluation.exists()
    assert pull(url, other).brought == 0
    assert not evaluation.exists()


def _killed(*arguments: object) -> NoReturn:
    raise KeyboardInterrupt


def test_a_pull_keeps_evaluations_of_members_that_come_back_as_they_were(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    run = begin(tmp_path / "run", url).directory
    make(run)
    evaluation = evaluate(run)
    (stage_dir(run, 0, "found") / "manifest.json").unlink()
    assert pull(url, run).brought == 1
    assert evaluation.exists()


def test_a_rerun_without_a_seed_keeps_what_the_machines_agreed_on(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", (tmp_path / "store").as_uri()).directory
    make(run, b"first")
    before = files(run)
    make(run, b"of other rounding", force=True)
    assert files(run) == before
