"""populora prune: a long run gets small, and still resumes, reports and answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from broken_off import drawn_again
from conftest import GENERATIONS, ask, commits, contents
from test_cli import populora

from populora_core import open_run
from populora_core.config.load import apply_overrides
from populora_core.lifecycle import pruning
from populora_core.lifecycle.export import export_member
from populora_core.lifecycle.loop import fork, rerun, supersede_later, train
from populora_core.report.write import write_report
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_generation
from populora_core.stages.redoable import startable
from populora_core.store.artifacts import link_tree
from populora_core.store.blocks import compact, valid_blocks
from populora_core.store.manifest import pruned
from populora_core.support.errors import AdapterError, ArtifactError, RunDirectoryError

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


@pytest.fixture
def lean(copy_of: Callable[[], Path]) -> Run:
    """A finished run of which only the last generation can be redone."""
    run = Run.open(copy_of())
    pruning.prune(run, keep=1)
    return run


def weights(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*.safetensors")}


def test_a_dry_run_names_what_a_prune_removes_and_changes_nothing(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    before, size = weights(directory), sum(p.stat().st_size for p in directory.rglob("*.safetensors"))
    said = populora("prune", directory, "--keep", 1, "--dry-run")
    assert said.returncode == 0, said.stderr
    assert weights(directory) == before
    plan = pruning.prune(Run.open(directory), keep=1)
    assert plan.states and plan.adapters
    removed = before - weights(directory)
    assert removed == {path.relative_to(directory).as_posix() for path in (*plan.states, *plan.adapters)}
    assert all(name in said.stdout for name in removed)
    assert plan.freed == size - sum(p.stat().st_size for p in directory.rglob("*.safetensors")) > 0


def test_what_the_last_generation_needs_and_every_newest_adapter_stay(lean: Run) -> None:
    last = GENERATIONS
    for generation in range(last + 1):
        for folder in lean.directory.glob(f"members/*/g{generation:04d}"):
            assert pruned(folder / "moments.safetensors") is (generation < last - 1)
    for row in ask(lean.directory, "SELECT adapter_path FROM members"):
        assert (lean.directory / row["adapter_path"] / "adapter_model.safetensors").is_file()


@pytest.mark.thorough
def test_a_resume_finds_everything_done_and_goes_on_as_the_whole_run_does(
    lean: Run, finished: Path, tmp_path: Path
) -> None:
    before = commits(lean.directory)
    whole = Run.open(shutil.copytree(finished, tmp_path / "whole"))
    for run in (lean, whole):
        with Session(run) as session:
            train(session, GENERATIONS + 1)
    assert commits(lean.directory).items() > before.items()
    assert contents(lean.directory) == contents(whole.directory)


@pytest.mark.thorough
def test_a_rerun_of_a_kept_generation_gives_the_same(lean: Run) -> None:
    before = contents(lean.directory)
    with Session(lean) as session:
        for stage in ("solve", "update", "evolve"):
            rerun(session, GENERATIONS, stage)
    assert contents(lean.directory) == before


def test_questions_and_report_are_as_before(finished: Path, lean: Run, tmp_path: Path) -> None:
    for view in ("members", "attempts", "evolutions", "ratings"):
        sql = f"SELECT * EXCLUDE (run) FROM {view} ORDER BY ALL"
        with open_run(finished) as whole, open_run(lean.directory) as small:
            assert small.query(sql).arrow() == whole.query(sql).arrow()
    write_report([lean.directory], tmp_path / "report.html")


def test_what_became_impossible_is_refused_and_nothing_changes(lean: Run, tmp_path: Path) -> None:
    before = contents(lean.directory), weights(lean.directory)
    with Session(lean) as session, pytest.raises(ArtifactError, match="prune removed"):
        rerun(session, 1, "solve", seed=3, truncate=True)
    with pytest.raises(ArtifactError, match="prune removed"):
        fork(lean, 1, tmp_path / "fork", lean.config)
    shared = apply_overrides(lean.config, [f"store.url={(tmp_path / 'store').as_uri()}"])
    with pytest.raises(ArtifactError, match="cannot hold the whole run"):
        fork(lean, lean.config.run.generations, tmp_path / "fork", shared)
    assert not (tmp_path / "fork").exists()
    assert not (tmp_path / "store").exists(), "a store that was claimed could not be forked to again"
    adapters = ask(lean.directory, "SELECT member_id, generation, path FROM adapters ORDER BY ALL")
    gone = (row for row in adapters if pruned(lean.directory / row["path"] / "adapter_model.safetensors"))
    row = next(gone)
    with pytest.raises(AdapterError, match="prune"):
        export_member(lean, row["member_id"], tmp_path / "out", generation=row["generation"])
    assert (contents(lean.directory), weights(lean.directory)) == before


@pytest.mark.thorough
def test_a_fork_starts_from_a_generation_that_was_kept_for_it(
    copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    run = Run.open(copy_of())
    pruning.prune(run, keep=1, every=1)
    assert startable(run, 1)
    forked = fork(run, 1, tmp_path / "fork", run.config)
    with Session(forked) as session:
        train(session, 2)


@pytest.mark.parametrize("linked", ["generations", "members"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda run: pruning.prune(run, keep=1), "prune removed its weights"),
        (lambda run: supersede_later(run, 0), "the fork has no complete generation 1"),
    ],
    ids=["pruned", "truncated"],
)
def test_a_fork_of_a_run_that_changes_meanwhile_is_refused(
    copy_of: Callable[[], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    linked: str,
    change: Callable[[Run], object],
    says: str,
) -> None:
    run, waiting = Run.open(copy_of()), [change]

    def after_a_change(source: Path, target: Path) -> None:
        if waiting and source.is_relative_to(run.directory / linked):
            waiting.pop()(run)
        link_tree(source, target)

    monkeypatch.setattr("populora_core.lifecycle.loop.link_tree", after_a_change)
    with pytest.raises(RunDirectoryError, match="changed while it was forked") as refused:
        fork(run, 1, tmp_path / "forks" / "fork", run.config)
    assert says in refused.value.got and "same command again" in refused.value.fix
    assert list((tmp_path / "forks").iterdir()) == []


@pytest.mark.parametrize("changes", [True, False])
def test_a_link_that_fails_is_blamed_on_the_source_only_if_that_changed(
    copy_of: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    run = Run.open(copy_of())

    def fails(source: Path, target: Path) -> None:
        if changes:
            supersede_later(run, 0)
        raise ArtifactError("the disk is full")

    monkeypatch.setattr("populora_core.lifecycle.loop.link_tree", fails)
    refused = RunDirectoryError if changes else ArtifactError
    with pytest.raises(refused, match="changed while it was forked" if changes else "the disk is full"):
        fork(run, 1, tmp_path / "fork", run.config)
    assert not (tmp_path / "fork").exists()


@pytest.mark.thorough
def test_a_run_goes_on_from_a_kept_generation_that_was_made_again(copy_of: Callable[[], Path]) -> None:
    """What was pruned of later generations belongs to a history that is set aside."""
    run = Run.open(copy_of())
    pruning.prune(run, keep=1, every=2)
    assert startable(run, 0) and not startable(run, 1)
    with Session(run) as session:
        rerun(session, 0, "found", seed=3, truncate=True)
        train(session, 2)
    assert run.generations() == [0, 1, 2]


@pytest.mark.thorough
def test_generations_that_an_earlier_one_no_longer_leads_to_are_not_gone_on_from(
    copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    """A resume that made generation 1 again was broken off in it, or behind it."""
    run = drawn_again(copy_of())
    assert pruning.plan(run, keep=1).oldest == 0
    with pytest.raises(RunDirectoryError, match=r"generation 1 .* does not follow"):
        fork(run, GENERATIONS, tmp_path / "fork", run.config)
    with Session(run) as session:
        run_generation(session, 1)
    with pytest.raises(RunDirectoryError, match=r"generation 2 .* does not follow"):
        fork(run, GENERATIONS, tmp_path / "fork", run.config)
    assert pruning.prune(run, keep=1).oldest == 1
    with Session(run) as session:
        run_generation(session, 2)


@pytest.mark.thorough
def test_inspect_says_what_can_still_be_redone(lean: Run) -> None:
    assert f"can still be redone: {GENERATIONS}\n" in populora("inspect", lean.directory).stdout
    assert "pruned" in populora("inspect", lean.directory, "--generation", 1).stdout


def test_blocks_stay_valid_and_those_of_no_use_go(copy_of: Callable[[], Path]) -> None:
    run = Run.open(copy_of())
    (block,) = compact(run.directory, generations=3)
    old = block.folder.with_name("0000-0001-" + "0" * 16)
    shutil.copytree(block.folder, old)
    pruning.prune(run, keep=1)
    assert not old.exists()
    assert [found.folder for found in valid_blocks(run.directory)] == [block.folder]


def test_a_second_prune_finds_nothing(lean: Run) -> None:
    assert pruning.prune(lean, keep=1).freed == 0


def test_a_run_that_another_process_writes_to_is_left_alone(copy_of: Callable[[], Path]) -> None:
    run = Run.open(copy_of())
    with Session(run), pytest.raises(RunDirectoryError, match="writing"):
        pruning.prune(run, keep=1)
