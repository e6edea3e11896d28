"""A stage that is made again says what moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import GENERATIONS, small_config, start

from populora_core.lifecycle.loop import rerun, train
from populora_core.runs.observer import Observer
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.drift import ASKED, UNRECORDED, drift, moved
from populora_core.stages.plan import plan_stage
from populora_core.stages.table import FOUND
from populora_core.store.artifacts import StageWriter
from populora_core.store.manifest import Manifest, read_manifest, stage_dir

OLD, NEW = "1" * 64, "2" * 64
DECIDES: dict[str, Any] = {
    "stage": "solve",
    "version": 8,
    "seed": 5,
    "config": {
        "solve": {"attempts": 8, "temperature": 1.0},
        "grade": {"niche": 0.0},
        "evaluate": {"suite": OLD},
    },
    "inputs": {"matches": OLD, "problems": OLD},
    "base": [OLD, "float32", "cpu"],
    "dialect": OLD,
    "sandbox": "bwrap-runner-3.11.9",
    "sampler": "torch",
}
"""What a stage was made with."""


def committed(**extra: object) -> Manifest:
    made_with = {name: DECIDES[name] for name in ("base", "dialect", "sandbox", "sampler")}
    return Manifest(
        stage="solve",
        generation=3,
        key=OLD,
        stage_version=DECIDES["version"],
        seed=DECIDES["seed"],
        config=DECIDES["config"],
        inputs=DECIDES["inputs"],
        files=(),
        attempt=1,
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        code_revision="",
        extra={"made_with": made_with} | extra,
    )


def settings(**sections: dict[str, Any]) -> dict[str, Any]:
    """The deciding settings with some replaced."""
    return {"config": {name: own | sections.get(name, {}) for name, own in DECIDES["config"].items()}}


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (settings(solve={"attempts": 4}), ["solve.attempts 8 → 4"]),
        (settings(grade={"cut_answers": "judge"}), ["grade.cut_answers refuse → judge"]),
        (settings(solve={"top_k": 5}), ["solve.top_k none → 5"]),
        (settings(evaluate={"suite": NEW}), ["evaluate.suite 11111111 → 22222222"]),
        ({"config": DECIDES["config"] | {"sandbox": {"workers": 2}}}, ["[sandbox] decides"]),
        (
            {"config": {"solve": DECIDES["config"]["solve"]}},
            ["[evaluate] no longer decides", "[grade] no longer decides"],
        ),
        ({"version": 9}, ["version 8 → 9"]),
        ({"seed": 6}, ["seed 5 → 6"]),
        ({"inputs": {"matches": OLD, "problems": NEW}}, ["other content of problems"]),
        ({"inputs": DECIDES["inputs"] | {"attempts": NEW}}, ["it reads attempts"]),
        ({"inputs": {"matches": OLD}}, ["it no longer reads problems"]),
        (
            {"base": [NEW, "float32", "cpu"]},
            ['base ["11111111", "float32", "cpu"] → ["22222222", "float32", "cpu"]'],
        ),
        ({"dialect": NEW}, ["dialect 11111111 → 22222222"]),
        ({"sandbox": "bwrap-runner-3.13.5"}, ["sandbox bwrap-runner-3.11.9 → bwrap-runner-3.13.5"]),
        ({"sampler": "vllm"}, ["sampler torch → vllm"]),
        ({"version": 9, "seed": 6}, ["version 8 → 9", "seed 5 → 6"]),
        ({}, []),
    ],
)
def test_each_part_of_a_key_that_moves_is_named(now: dict[str, Any], told: list[str]) -> None:
    assert list(moved(committed(), DECIDES | now)) == told


def test_a_manifest_from_before_the_drift_was_told_is_silent_on_what_it_does_not_record() -> None:
    old = replace(committed(), extra={})
    assert list(moved(old, DECIDES | {"sampler": "vllm"})) == []


def laid(run: Run, session: Session, **changed: object) -> Path:
    """The founding stage as committed, with parts of its manifest replaced; its tables are no one's."""
    plan = plan_stage(session, 0, FOUND)
    with StageWriter(run.directory, 0, FOUND.name) as writer:
        writer.path("note.txt").write_text("whole")
        draft = writer.draft(
            key=plan.key,
            stage_version=FOUND.version,
            seed=plan.seed,
            config=plan.settings,
            inputs=plan.inputs,
            started=0.0,
            seconds=0.0,
            code_revision="",
            extra={"made_with": plan.made_with},
        )
        writer.commit(replace(draft, **changed))  # type: ignore[arg-type]
    return stage_dir(run.directory, 0, FOUND.name)


def test_a_setting_a_lost_file_and_a_key_of_unknown_parts_are_told_of_what_lies_on_disk(
    tmp_path: Path,
) -> None:
    run = start(tmp_path / "run", small_config())
    with Session(run) as session:
        plan = plan_stage(session, 0, FOUND)
        assert drift(run, plan) is None, "nothing was made before"
        folder = laid(run, session)
        assert drift(run, plan) == [ASKED]
        (folder / "note.txt").write_text("other")
        assert drift(run, plan) == ["note.txt is missing or damaged"]
        laid(run, session, key=NEW)
        assert drift(run, plan) == [UNRECORDED]
        ranked = {**plan.settings, "adapters": {**plan.settings["adapters"], "rank": 8}}
        laid(run, session, key=NEW, config=ranked, extra={"adapters": {"members/student-00-g0000/g0000": {}}})
        assert drift(run, plan) == [
            "adapters.rank 8 → 4",
            "members/student-00-g0000/g0000 is missing or damaged",
        ]


class Listening(Observer):
    def __init__(self) -> None:
        self.told: list[tuple[int, str, list[str]]] = []

    def stage_again(self, generation: int, stage: str, moved: object) -> None:
        self.told.append((generation, stage, list(moved)))  # type: ignore[call-overload]


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_redraw_is_told_and_kept_and_so_is_what_follows_from_it(copy_of: Callable[[], Path]) -> None:
    directory, listening = copy_of(), Listening()
    with Session(Run.open(directory), listening) as session:
        rerun(session, GENERATIONS, "solve", seed=99)
        train(session, GENERATIONS)
    assert [stage for _, stage, _ in listening.told][:3] == ["solve", "grade", "update"]
    told = {stage: reasons for _, stage, reasons in listening.told}
    assert told["solve"][0].startswith("seed ")
    assert told["grade"] == ["other content of attempts"]
    manifest = read_manifest(stage_dir(directory, GENERATIONS, "grade"))
    assert manifest is not None
    assert manifest.extra["again"] == told["grade"]
