"""A person at play with a run's members: who asks, who answers, what the verifier says, and what stays as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import contents, small_config, start
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.compute.arena import Arena
from populora_core.compute.work import Prompt
from populora_core.config.load import apply_overrides
from populora_core.problems.model import Problem
from populora_core.problems.parsing import FormatError
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.stages.engine import run_generation
from populora_core.store.rows import SampledRow
from populora_core.support.errors import BaseModelError, RunDirectoryError
from populora_core.support.user_cache import FOLDER_VARIABLE
from populora_plugins.harvest import play_table
from populora_plugins.harvest.play_table import Asked, PlayTable

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]
WRONG = {
    "code_o": "['no such output']",
    "code_i": "'too', 'many', 'arguments'",
    "code_f": "def f(x):\n return ...",
}


@pytest.fixture(scope="module")
def table(finished: Path) -> Iterator[PlayTable]:
    run = Run.open(finished)
    with open_sandbox(run.config.sandbox.backend, Limits(), workers=2) as sandbox:
        yield PlayTable(run, sandbox, "T0", None, seed=0)


@pytest.mark.parametrize("kind", ["code_o", "code_i", "code_f"])
def test_the_verifier_decides_about_what_a_person_types(table: PlayTable, kind: str) -> None:
    asked = table.ask(kind)
    assert asked is not None
    assert asked.teacher_id.startswith("teacher-00-")
    problem = asked.problem
    right = {"code_o": problem.outputs[0], "code_i": problem.inputs[0][1:-1], "code_f": problem.program}[kind]
    assert table.judge(problem, right) is AttemptVerdict.CORRECT
    assert table.judge(problem, WRONG[kind]) is not AttemptVerdict.CORRECT
    with pytest.raises(FormatError):
        table.judge(problem, "import os" if kind == "code_f" else "f(1")


def test_members_play_on_the_base_as_their_run_had_it(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.open(finished)
    half = apply_overrides(run.config, ["base.dtype=bfloat16"])
    arenas: list[Arena] = []
    monkeypatch.setattr(play_table, "Arena", lambda *a, **k: arenas.append(Arena(*a, **k)) or arenas[-1])
    with open_sandbox(run.config.sandbox.backend, Limits(), workers=1) as sandbox:
        PlayTable(replace(run, config=half), sandbox, None, None, seed=0)
    (arena,) = arenas
    assert arena.worker.spec.base.dtype == "bfloat16"


def test_members_play_over_the_base_that_their_run_began_with_or_not_at_all(finished: Path) -> None:
    run = Run.open(finished)
    other = replace(run, record={**run.record, "base_digest": "0" * 64})
    with (
        open_sandbox(run.config.sandbox.backend, Limits(), workers=1) as sandbox,
        pytest.raises(BaseModelError, match="is not the one"),
    ):
        PlayTable(other, sandbox, None, None, seed=0)


def test_members_whose_base_is_gone_say_how_to_get_it(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "empty"))
    run = Run.open(finished)
    gone = apply_overrides(run.config, [f"base.path=gguf:mine@{'0' * 64}"])
    with (
        open_sandbox(run.config.sandbox.backend, Limits(), workers=1) as sandbox,
        pytest.raises(BaseModelError, match="is not on this machine") as refused,
    ):
        PlayTable(replace(run, config=gone), sandbox, None, None, seed=0)
    assert "--base FILE.gguf makes it again" in refused.value.fix


KEYS = Problem("p", "code_i", "def f(d):\n return list(d)", ("({'b': 1, 'a': 2},)",), ("['b', 'a']",), "")


def test_a_dictionary_that_a_person_types_runs_in_the_order_of_its_keys(table: PlayTable) -> None:
    assert table.judge(KEYS, "{'b': 1, 'a': 2}") is AttemptVerdict.CORRECT
    assert table.judge(KEYS, "{'a': 2, 'b': 1}") is AttemptVerdict.WRONG


def test_a_person_sees_a_dictionary_in_the_order_that_was_written(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(KEYS, problem_type="code_o", outputs=("{'d': 3, 'c': 4}",))
    monkeypatch.setattr(PlayTable, "ask", lambda table, kind: Asked("T0", asked))
    shown = CliRunner().invoke(app, ["play", str(finished)], input="wrong\n[1]\nq\n").output
    assert "f({'b': 1, 'a': 2}) = ?" in shown and "{'d': 3, 'c': 4}" in shown


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "solution"),
    [
        ("code_o", "2\n3\n4", "2\n3\n5", r"2\s+3\s+4"),
        ("code_i", "1\n2\n3", "1\n2\n4", r"f\(1\)\s+f\(2\)\s+f\(3\)"),
    ],
)
def test_a_person_answers_each_input_on_a_line_of_its_own(
    finished: Path, monkeypatch: pytest.MonkeyPatch, kind: str, right: str, wrong: str, solution: str
) -> None:
    asked = Problem("p", kind, "def f(x):\n return x+1", ("(1,)", "(2,)", "(3,)"), ("2", "3", "4"), "")
    monkeypatch.setattr(PlayTable, "ask", lambda table, kind: Asked("T0", asked))
    said = CliRunner().invoke(app, ["play", str(finished)], input=f"{right}\n{wrong}\nq\n").output
    assert "3 lines, in order" in said and "you: 1 of 2 right" in said
    assert re.search(solution, said)


def test_a_student_answers_for_the_person(table: PlayTable) -> None:
    asked = table.ask("code_o")
    assert asked is not None
    student, written, verdict = table.answer(asked.problem)
    assert student.startswith("student-") and written
    assert verdict in AttemptVerdict


def test_members_that_inherit_a_temperature_play_at_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Prompt] = []

    class Watched(Arena):
        def complete(self, prompts: Sequence[Prompt]) -> list[SampledRow]:
            asked.extend(prompts)
            return super().complete(prompts)

    monkeypatch.setattr(play_table, "Arena", Watched)
    run = start(tmp_path / "run", small_config(pbt={"temperature": [0.5, 0.5]}))
    with Session(run) as session:
        run_generation(session, 0)
    with open_sandbox(run.config.sandbox.backend, Limits(), workers=2) as sandbox:
        members = PlayTable(run, sandbox, None, None, seed=0)
        members.ask("code_o")
        members.answer(replace(KEYS, problem_type="code_o", outputs=("['b', 'a']",)))
    assert len({prompt.member_id for prompt in asked}) == 2
    assert {prompt.temperature for prompt in asked} == {0.5}


def test_only_who_lives_plays(finished: Path) -> None:
    run = Run.open(finished)
    with (
        open_sandbox(run.config.sandbox.backend, Limits(), workers=2) as sandbox,
        pytest.raises(RunDirectoryError, match="no member is called S7"),
    ):
        PlayTable(run, sandbox, None, "S7", seed=0)


def test_the_command_asks_until_the_person_leaves_and_changes_nothing(finished: Path) -> None:
    before = contents(finished)
    said = CliRunner().invoke(app, ["play", str(finished), "--type", "code_o"], input="(\n\nq\n")
    assert said.exit_code == 0, said.output
    assert "teacher-" in said.output and "What does it return?" in said.output
    assert "that cannot be read" in said.output, "and the person is asked again"
    assert "student-" in said.output and "of 1 right" in said.output
    assert contents(finished) == before


def test_a_student_that_is_asked_for_must_be_there(finished: Path) -> None:
    said = CliRunner().invoke(app, ["play", str(finished), "--student", "S9"], input="q\n")
    assert isinstance(said.exception, RunDirectoryError) and "S9" in str(said.exception), said.output
