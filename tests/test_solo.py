"""The single agent: one adapter in both roles, through the same stages as a population."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from broken_off import resume
from conftest import GENERATIONS, PATIENCE, SOLO, ask, contents, small_config, start
from test_cli import populora

from populora_core.config.load import apply_overrides
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.lifecycle.export import export_member
from populora_core.lifecycle.loop import fork, rerun
from populora_core.model.adapter_files import read_layout, read_state
from populora_core.model.base import load_base
from populora_core.model.stacked import StackedAdapters
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_generation
from populora_core.stages.following import newest_following

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]

SOLO_ID = "solo-00-g0000"

# Trains, and dies by SIGKILL just before it commits a stage.
KILLED = """
import os, signal, sys
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.lifecycle.loop import train
from populora_core.store.artifacts import StageWriter

directory, generation, stage = sys.argv[1], int(sys.argv[2]), sys.argv[3]
commit = StageWriter.commit

def kill_or_commit(writer, manifest):
    if (manifest.generation, manifest.stage) == (generation, stage):
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(writer, manifest)

StageWriter.commit = kill_or_commit
with Session(Run.open(directory)) as session:
    train(session, session.run.config.run.generations)
"""


def solo(run: Path, generation: int) -> Path:
    """Its folder after a generation."""
    return Run.open(run).adapter_folder(SOLO_ID, generation)


def test_it_meets_itself_and_its_rating_stays(finished_solo: Path) -> None:
    matches = ask(finished_solo, "SELECT DISTINCT teacher_id, student_id, weight, outcome FROM matches")
    assert matches == [{"teacher_id": SOLO_ID, "student_id": SOLO_ID, "weight": 1.0, "outcome": "void"}]
    ratings = ask(finished_solo, "SELECT DISTINCT mu, sigma, role FROM ratings")
    assert ratings == [{"mu": 25.0, "sigma": pytest.approx(25 / 3), "role": "solo"}]


def test_it_is_never_replaced_although_evolution_is_on(finished_solo: Path) -> None:
    assert Run.open(finished_solo).config.evolve.every == 1
    assert ask(finished_solo, "FROM evolutions") == []
    assert [row["died_generation"] for row in ask(finished_solo, "FROM members")] == [None]


def test_it_learns_from_its_proposals_and_then_from_its_answers(finished_solo: Path) -> None:
    """The stored weights follow from the stored rows by two steps, in this order and not in the other."""
    run = Run.open(finished_solo)
    layout = read_layout(solo(finished_solo, 0))
    stacked = StackedAdapters(load_base(run.config.base.folder(), "float32", "cpu").model, layout)
    rules = UpdateRules(run.config.update)
    steps = [
        [
            TrainingRow(
                SOLO_ID,
                tuple(row["prompt_ids"]),
                tuple(row["completion_ids"]),
                tuple(row["logprobs"]),
                row["advantage"],
            )
            for row in ask(
                finished_solo,
                f"""SELECT t.*, v.advantage FROM tables.{view} t JOIN {view} v USING ({key})
                    WHERE t.generation = 1 AND v.advantage IS NOT NULL ORDER BY {key}""",
            )
        ]
        for view, key in (("proposals", "proposal_id"), ("attempts", "attempt_id"))
    ]

    def weights(ordered: list[list[TrainingRow]]) -> torch.Tensor:
        states = {SOLO_ID: read_state(solo(finished_solo, 0))}
        for rows in ordered:
            states, _ = update_members(stacked, states, rows, rules)
        return states[SOLO_ID].weights

    stored = read_state(solo(finished_solo, 1))
    assert stored.steps == 2
    right, wrong = ((weights(order) - stored.weights).abs().max() for order in (steps, steps[::-1]))
    assert right < 1e-6 < 100 * right + 1e-4 < wrong


def test_updates_and_tokens_have_a_row_for_each_role_that_it_plays(finished_solo: Path) -> None:
    for view in ("updates", "tokens"):
        rows = ask(finished_solo, f"SELECT generation, member_id, role FROM {view} ORDER BY ALL")
        assert [tuple(row.values()) for row in rows] == [
            (generation, SOLO_ID, role)
            for generation in range(1, GENERATIONS + 1)
            for role in ("student", "teacher")
        ]


def test_each_generation_follows_although_its_grades_pay_for_new_cells(finished_solo: Path) -> None:
    assert Run.open(finished_solo).config.grade.new_cell_bonus > 0
    assert newest_following(Run.open(finished_solo)) == GENERATIONS


def test_a_fork_that_pays_no_more_for_new_cells_keeps_its_past(finished_solo: Path, tmp_path: Path) -> None:
    source = Run.open(finished_solo)
    config = apply_overrides(source.config, ["grade.new_cell_bonus=0"])
    forked = fork(source, GENERATIONS, tmp_path / "fork", config)
    with Session(forked) as session:
        made = [each for number in range(1, GENERATIONS + 1) for each in run_generation(session, number)]
    assert made and all(each.reused for each in made)


@pytest.mark.thorough
def test_killed_between_its_steps_in_processes_it_finishes_equal_to_an_undisturbed_run_in_one(
    finished_solo: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "killed"
    start(directory, small_config(**SOLO, compute={"backend": "local"}))
    ended = subprocess.run([sys.executable, "-c", KILLED, str(directory), "2", "update"], timeout=PATIENCE)
    assert ended.returncode == -signal.SIGKILL
    resume(directory)
    assert contents(directory) == contents(finished_solo)


@pytest.mark.thorough
def test_its_update_is_redone_equal_and_a_fork_goes_on(finished_solo: Path, tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(finished_solo, directory)
    before = contents(directory)
    with Session(Run.open(directory)) as session:
        rerun(session, 1, "update")
    assert contents(directory) == before
    source = Run.open(directory)
    forked = fork(source, 2, tmp_path / "fork", apply_overrides(source.config, ["solve.extra_attempts=0"]))
    resume(forked.directory)
    assert ask(forked.directory, "SELECT DISTINCT n_attempts AS n FROM problems WHERE generation = 3") == [
        {"n": 2}
    ]


@pytest.mark.thorough
def test_it_is_inspected_and_exported_like_any_member(finished_solo: Path, tmp_path: Path) -> None:
    shown = populora("inspect", finished_solo)
    assert shown.returncode == 0, shown.stderr
    assert "tokens" in shown.stdout and SOLO_ID in shown.stdout
    one = populora("inspect", finished_solo, "--generation", 1).stdout
    assert one.count(SOLO_ID) == 2, "once for each role"
    done = populora("export", finished_solo, SOLO_ID, "--to", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert f"| updates | {2 * GENERATIONS}, over" in (tmp_path / "out" / "README.md").read_text()


def test_it_can_start_from_an_adapter(finished_solo: Path, tmp_path: Path) -> None:
    export_member(Run.open(finished_solo), SOLO_ID, tmp_path / "adapter")
    warm = small_config(
        **SOLO, adapters={"rank": 4, "alpha": 8.0, "start_from": {"solo": [str(tmp_path / "adapter")]}}
    )
    with Session(start(tmp_path / "warm", warm)) as session:
        run_generation(session, 0)
    exported = read_state(solo(finished_solo, GENERATIONS))
    founder = read_state(solo(tmp_path / "warm", 0))
    assert torch.equal(founder.weights, exported.weights)
