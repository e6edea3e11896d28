"""Rows have the type of their table: the module of types says what is declared, and mypy finds a wrong column."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import ran
from row_types import render

from made_runs.filled import filled
from populora_core.store.schema import to_table
from populora_core.store.tables import TABLES
from populora_core.support.errors import SchemaError
from populora_core.support.shipped import REPOSITORY

SNIPPET = """
from populora_core.store.rows import RowReader

def right(ctx: RowReader) -> list[float]:
    graded = {row["proposal_id"]: row["reward"] or 0.0 for row in ctx.rows("proposal_grades")}
    return [graded[row["proposal_id"]] for row in ctx.rows("proposals", "proposal_id", newest=1)]

def wrong_column(ctx: RowReader) -> list[str]:
    return [row["proposal"] for row in ctx.rows("attempts")]

def column_of_another_table(ctx: RowReader) -> list[str]:
    return [row["problem_id"] for row in ctx.rows("proposals")]

def null_is_forgotten(ctx: RowReader) -> float:
    return sum(row["reward"] for row in ctx.rows("attempt_grades"))

def wrong_table(ctx: RowReader) -> int:
    return len(ctx.rows("attempt"))
"""


def test_the_types_are_those_of_the_declared_tables() -> None:
    assert (REPOSITORY / "populora_core/store/rows.py").read_text() == render(), "run: make docs"


def test_mypy_finds_each_wrong_name_and_a_forgotten_null(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(SNIPPET)
    words = ["--config-file", REPOSITORY / "pyproject.toml", "--cache-dir", tmp_path / "cache"]
    words += ["--follow-imports", "skip"]  # what else the types' module imports says nothing of rows
    found = ran(
        [sys.executable, "-m", "mypy", *words, tmp_path / "planted.py", "populora_core/store/rows.py"],
        cwd=REPOSITORY,
    ).stdout
    lines = SNIPPET.splitlines()
    errors = [line for line in found.splitlines() if "error:" in line]
    assert [lines[int(error.split(":")[1]) - 1].strip() for error in errors] == [
        'return [row["proposal"] for row in ctx.rows("attempts")]',
        'return [row["problem_id"] for row in ctx.rows("proposals")]',
        'return sum(row["reward"] for row in ctx.rows("attempt_grades"))',
        'return len(ctx.rows("attempt"))',
    ], found
    assert 'TypedDict "AttemptRow" has no key "proposal"' in found


@pytest.mark.parametrize("name", TABLES)
def test_a_filled_row_is_a_row_of_its_table(name: str) -> None:
    assert to_table(name, [filled(name)]).num_rows == 1


def test_a_filled_row_keeps_what_is_told_of_it_and_no_column_is_made_up() -> None:
    row = filled("problems", program="def f(): ...", generation=3)
    assert (row["program"], row["generation"], row["slack"], row["inputs"]) == ("def f(): ...", 3, None, [])
    with pytest.raises(SchemaError, match="unknown programme"):
        to_table("problems", [filled("problems", programme="def f(): ...")])
