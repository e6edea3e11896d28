"""What a run takes of the disk: estimated from shapes, held against real files, asked for before each generation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import populora
from conftest import GENERATIONS, contents

from populora_core.config.load import apply_overrides
from populora_core.lifecycle.loop import train
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.runs.space import Disk, disk_needed
from populora_core.stages.redoable import redoable
from populora_core.store.adapters import MOMENTS, WEIGHTS
from populora_core.support.errors import ArtifactError

PER_GENERATION = Disk(adapters=10, states=20, completions=3)


def test_without_pruning_everything_of_every_generation_stays() -> None:
    assert PER_GENERATION.whole(100, None, None) == 101 * 30 + 100 * 3


def test_what_is_kept_does_not_grow_with_the_run() -> None:
    short, long = (PER_GENERATION.whole(generations, 2, 5) for generations in (50, 500))
    assert long - short == 450 * PER_GENERATION.completions


def test_the_estimate_is_what_members_take(finished: Path) -> None:
    needed = disk_needed(Run.open(finished).config)
    for name, estimated in ((WEIGHTS, needed.adapters), (MOMENTS, needed.states)):
        written = sum(path.stat().st_size for path in finished.glob(f"members/*-g0000/g0001/{name}"))
        assert written == pytest.approx(estimated, rel=0.2)


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_generation_that_would_not_fit_is_not_begun(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.open(copy_of())
    before = contents(run.directory)
    free = disk_needed(run.config).generation - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    with Session(run) as session:
        train(session, GENERATIONS)
        with pytest.raises(ArtifactError, match="no room for another generation") as raised:
            train(session, GENERATIONS + 1)
    assert "populora prune" in raised.value.fix
    assert contents(run.directory) == before


@pytest.mark.parametrize(
    ("kept", "fix"),
    [("all", "store.keep_states = 2, store.keep_adapters = 2, a lower rank"), (2, "need less: a lower rank")],
)
def test_a_plan_names_only_settings_that_would_need_less(
    kept: int | str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    value = repr(kept).replace("'", '"')
    config.write_text(f"[run]\ngenerations = 5\n[store]\nkeep_states = {value}\nkeep_adapters = {value}\n")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    said = populora(
        "run", "--dry-run", "--config", config, "--run-dir", tmp_path / "run", COLUMNS="200"
    ).stdout
    assert fix in said


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_run_that_keeps_few_states_prunes_itself_and_goes_on(copy_of: Callable[[], Path]) -> None:
    run = Run.open(copy_of())
    run = replace(run, config=apply_overrides(run.config, ["store.keep_states=1", "store.keep_adapters=2"]))
    last = GENERATIONS + 1
    with Session(run) as session:
        train(session, last)
    kept = {path.parent.name for path in run.directory.glob(f"members/*/*/{MOMENTS}")}
    assert kept == {f"g{last - 1:04d}", f"g{last:04d}"}
    assert [redoable(run, generation) for generation in range(last + 1)] == [False] * last + [True]
    before = contents(run.directory)
    with Session(run) as session:
        train(session, last)
    assert contents(run.directory) == before
