"""Members are named as people name them; commands and runs by their beginnings."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import small_config
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.lifecycle.naming import member_named
from populora_core.runs.run import Run
from populora_core.support.errors import RunDirectoryError
from populora_core.terminal.options import run_folder_named

MEMBERS = ["student-00-g0000", "student-00-g0008", "student-01-g0000", "teacher-00-g0012"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("student-00-g0000", "student-00-g0000"),
        ("S0·g0", "student-00-g0000"),
        ("s0g8", "student-00-g0008"),
        ("s0.g8", "student-00-g0008"),
        ("S0", "student-00-g0008"),
        ("student-00", "student-00-g0008"),
        ("student-01-g", "student-01-g0000"),
        ("t", "teacher-00-g0012"),
    ],
)
def test_a_member_is_found_by_what_it_is_called(given: str, meant: str) -> None:
    assert member_named(given, MEMBERS) == meant


@pytest.mark.parametrize(
    ("given", "said"), [("student", "several members"), ("S7", "no member is called S7")]
)
def test_a_name_of_several_members_or_none_lists_what_there_is(given: str, said: str) -> None:
    with pytest.raises(RunDirectoryError, match=said) as caught:
        member_named(given, MEMBERS)
    assert "student-01-g0000" in caught.value.expected


def test_a_run_is_found_by_the_beginning_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "demon", "first", "first-2"):
        Run.create(tmp_path / "runs" / name, small_config(), base_digest="0" * 64)
    assert run_folder_named("demo") == Path("runs/demo"), "though another begins so"
    assert run_folder_named("runs/demon") == Path("runs/demon")
    assert run_folder_named("demon") == Path("runs/demon")
    assert run_folder_named("runs/first") == Path("runs/first"), "it is there"
    assert run_folder_named("first-") == Path("runs/first-2")
    assert run_folder_named("runs/f") == Path("runs/f"), "several begin so"
    listed = CliRunner().invoke(app, ["insp", "runs"])
    assert listed.exit_code == 0, listed.output
    assert "stopped" in listed.output and "first-2" in listed.output


def test_the_beginning_of_several_commands_names_them() -> None:
    refused = CliRunner().invoke(app, ["re", "runs/demo"])
    assert refused.exit_code != 0
    assert "resume, rerun, reap, report" in refused.output
