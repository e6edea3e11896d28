"""The siege in small, and that it sees what it looks for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import siege
from siege import Figures
from siege_cases import Case

from populora_core.sandbox.backends import describe_backends
from populora_core.sandbox.jobs import JobResult
from populora_core.sandbox.status import Status

pytestmark = pytest.mark.sandbox

OK, SUM = Status.OK, Case("sum", "def f(x):\n    return x + 1", outputs=("4",))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the siege's files lie, and no one else's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path


@pytest.mark.thorough
@pytest.mark.usefixtures("folder")
def test_a_small_siege_ends_without_a_wrong_verdict_and_leaves_nothing() -> None:
    kinds = [
        found.name
        for found in describe_backends()
        if found.works and found.name in ("bubblewrap", "launcher")
    ]
    if not kinds:
        pytest.skip("neither bubblewrap nor launcher works here")
    figures, said = Figures(), list[str]()
    for _ in siege.lay(figures, kinds, 160, seed=3, say=said.append, in_round=80, kill_chance=0.05):
        pass
    assert len(said) == 2 and "160 of 160 programs" in said[-1]
    assert figures.wrong == []
    rows = {row.name: row for row in figures.rows()}
    assert rows["programs"].value == 160
    assert rows["hostile"].value >= 5 and rows["workers_killed"].value >= 1
    assert [name for name, row in rows.items() if row.meets_goal is False] == []


@pytest.mark.parametrize(
    ("case", "result", "allowed"),
    [
        (SUM, JobResult("", OK, ("4",)), True),
        (SUM, JobResult("", OK, ("5",)), False),
        (SUM, JobResult("", Status.TIMEOUT, (), "late"), False),
        (
            replace(SUM, statuses=frozenset({Status.OOM}), says="memory"),
            JobResult("", Status.OOM, (), "no memory"),
            True,
        ),
        (
            replace(SUM, statuses=frozenset({Status.OOM}), says="memory"),
            JobResult("", Status.OOM, (), "no room"),
            False,
        ),
    ],
    ids=["right", "wrong-output", "wrong-status", "refused-as-it-should", "refused-otherwise"],
)
def test_a_verdict_is_held_against_what_is_known(case: Case, result: JobResult, allowed: bool) -> None:
    assert case.allows(result) is allowed


def test_what_a_round_leaves_is_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siege, "GONE_SECONDS", 0.0)
    figures = Figures()
    with siege.nothing_left(figures, "launcher"):
        pass
    assert not figures.left
    with siege.nothing_left(figures, "launcher"):
        (folder / "left").write_text("x")
        reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    assert figures.left == {"files": 1, "descriptors": 2}
    missed = {row.name for row in figures.rows() if row.meets_goal is False}
    assert {"files_left", "descriptors_left"} <= missed
