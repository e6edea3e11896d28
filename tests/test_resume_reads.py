"""A resume looks at each generation once, however many there are: counted, not timed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import small_config, start

from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import is_done
from populora_core.stages.plan import Past, plan_stage
from populora_core.stages.table import Stage, stages_of
from populora_core.store import manifest as manifests
from populora_core.store.artifacts import StageWriter
from populora_core.store.manifest import MANIFEST, read_manifest, stage_dir
from populora_core.store.schema import to_table

LONGEST = 600  # generations
LENGTHS = (50, 200, LONGEST)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A run of many generations whose stages all follow from one another; every table is empty."""
    run = start(tmp_path_factory.mktemp("long") / "run", small_config())
    with Session(run) as opened:
        opened.__dict__["sandbox"] = SimpleNamespace(identity="none")
        past = Past(run)
        for generation in range(LONGEST + 1):
            for stage in stages_of(generation):
                _lay(opened, generation, stage, past)
        yield opened


def _lay(session: Session, generation: int, stage: Stage, past: Past) -> None:
    """Commit a stage: written once, and for later generations a copy under the key that it would have."""
    plan, run = plan_stage(session, generation, stage, past=past), session.run
    if generation <= 1:
        _write(run, generation, stage, plan.key, dict(plan.inputs))
        return
    first, folder = (stage_dir(run.directory, number, stage.name) for number in (1, generation))
    made = read_manifest(first)
    assert made is not None
    folder.mkdir(parents=True)
    for file in made.files:
        os.link(first / file.name, folder / file.name)
    copy = replace(made, generation=generation, key=plan.key, inputs=dict(plan.inputs))
    (folder / MANIFEST).write_text(copy.to_json())


def _write(run: Run, generation: int, stage: Stage, key: str, inputs: dict[str, str]) -> None:
    with StageWriter(run.directory, generation, stage.name) as writer:
        for name in stage.gives:
            writer.write_table(name, to_table(name, []))
        writer.commit(
            writer.draft(
                key=key,
                stage_version=stage.version,
                seed=0,
                config={},
                inputs=inputs,
                started=0.0,
                seconds=0.0,
                code_revision="",
            )
        )


def resumed(session: Session, generations: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many manifests a resume of so many generations reads, and how many files it asks the disk about."""
    for manifest in session.run.directory.rglob(MANIFEST):
        os.utime(manifest)  # nothing is known of it any more
    asked, stat, own, read = 0, os.stat, threading.get_ident(), []
    validated = manifests.validated

    def count(*arguments: object, **named: object) -> os.stat_result:
        nonlocal asked
        asked += threading.get_ident() == own  # the heartbeat asks, too
        return stat(*arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", count)
        patch.setattr(manifests, "validated", lambda *given: read.append(given) or validated(*given))
        past = Past(session.run)
        assert all(is_done(session, generation, past=past) for generation in range(generations + 1))
    return len(read), asked


@pytest.mark.thorough
def test_a_resume_reads_every_manifest_once_and_asks_the_disk_as_often_of_each_generation(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = {generations: resumed(session, generations, monkeypatch) for generations in LENGTHS}
    for generations, (read, _) in counted.items():
        assert read == len(stages_of(0)) + generations * len(stages_of(1))
    few, more, most = (asked for _, asked in counted.values())
    per_generation = (more - few) / (LENGTHS[1] - LENGTHS[0])
    assert (most - more) / (LENGTHS[2] - LENGTHS[1]) == per_generation


def test_a_generation_of_a_long_run_parses_no_manifest_of_its_past_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning asks for all earlier evolve, verify and grade again and again."""
    run = start(tmp_path / "run", small_config())
    names, generations = ("evolve", "verify", "grade"), range(1, 1501)
    _write(run, 1, stages_of(1)[0], "5" * 64, {})
    made = read_manifest(stage_dir(run.directory, 1, stages_of(1)[0].name))
    assert made is not None
    folders = [stage_dir(run.directory, generation, name) for name in names for generation in generations]
    for folder in folders:
        folder.mkdir(parents=True)
        copy = replace(made, stage=folder.name, generation=int(folder.parent.name))
        (folder / MANIFEST).write_text(copy.to_json())
    assert all(read_manifest(folder) for folder in folders)
    again: list[object] = []
    validated = manifests.validated
    monkeypatch.setattr(manifests, "validated", lambda *given: again.append(given) or validated(*given))
    assert all(read_manifest(folder) for folder in folders)
    assert not again


def test_a_manifest_that_changed_is_read_again(tmp_path: Path) -> None:
    run = start(tmp_path / "run", small_config())
    (match,) = (stage for stage in stages_of(1) if stage.name == "match")
    _write(run, 1, match, "5" * 64, {})
    folder = stage_dir(run.directory, 1, "match")
    before = read_manifest(folder)
    assert before is not None
    assert before is read_manifest(folder)
    (folder / MANIFEST).write_text(replace(before, key="6" * 64).to_json())
    after = read_manifest(folder)
    assert after is not None
    assert after.key == "6" * 64
    (folder / MANIFEST).unlink()
    assert read_manifest(folder) is None
