"""What people see of model-written text is shown, not obeyed; SQL of others reads the named runs alone."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE
from store_run import commit_stage, generation_tables, write_run

from populora_core.commands.answers import LONGEST, row_table
from populora_core.commands.console import console
from populora_core.config.load import load_config
from populora_core.runs.run import Run
from populora_core.store.catalogue import Catalogue
from populora_core.support.errors import PopuloraError

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = "def f(s):\n    return s[a:b:c]  # :boom: \x1b[2J\x07\u202e"


def seen(terminal: bool, *arguments: object) -> str:
    """What a command writes to a terminal, or into a pipe."""
    command = [sys.executable, "-m", "flows.cli", *map(str, arguments)]
    if not terminal:
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE
        ).stdout
    ours, its = pty.openpty()
    child = subprocess.Popen(command, cwd=ROOT, stdout=its, stderr=its, env={**os.environ, "NO_COLOR": "1"})
    os.close(its)
    text = b"".join(_until_end(ours)).decode()
    assert child.wait(PATIENCE) == 0, text
    return text


def _until_end(descriptor: int) -> Iterator[bytes]:
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while True:
            try:
                part = stream.read(4096)
            except OSError:  # Linux says so that the other side is closed
                return
            if not part:
                return
            yield part


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose one problem and its attempts hold text that a terminal would obey."""
    run = tmp_path_factory.mktemp("runs") / "hostile"
    Run.create(run, load_config(ROOT / "configs" / "quick.toml"), base_digest="0" * 64)
    write_run(run, generations=1)
    tables = generation_tables(1)
    for row in tables["verify"]["problems"]:
        row["program"] = HOSTILE
    for row in tables["solve"]["attempts"]:
        row["completion"] = row["prompt"] = HOSTILE
    for stage in ("verify", "solve"):
        commit_stage(run, 1, stage, tables[stage])
    return run


COMMANDS = {
    "inspect": ("inspect", "{run}", "--problem", "prob-g0001-t00-code_o-0000"),
    "table": ("query", "{run}", "SELECT program FROM problems"),
    "csv": ("query", "{run}", "SELECT program FROM problems", "--format", "csv"),
    "json": ("query", "{run}", "SELECT program FROM problems", "--format", "json"),
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_terminal_obeys_nothing_that_a_model_wrote(hostile_run: Path, arguments: tuple[str, ...]) -> None:
    shown = seen(True, *(argument.format(run=hostile_run) for argument in arguments))
    assert "[2J" in shown
    assert "\x1b[2J" not in shown
    assert not set("\x07\u202e") & set(shown)


def test_a_pipe_gets_every_character_as_it_is(hostile_run: Path) -> None:
    printed = seen(False, "query", hostile_run, "SELECT program FROM problems", "--format", "json")
    assert json.loads(printed) == {"program": HOSTILE}


def test_code_is_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    console.print(row_table([{"program": "s[a:b:c] :x: :boom:"}]))
    assert "s[a:b:c] :x: :boom:" in capsys.readouterr().out


def test_a_huge_cell_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    console.print(row_table([{"text": "x\n" * LONGEST}]))
    assert len(capsys.readouterr().out) < 100 * LONGEST


REFUSED = {
    "another file": "SELECT * FROM read_text('/etc/passwd')",
    "a file of the same folder's parent": "SELECT * FROM read_text('{run}/../secret.txt')",
    "writing outside": "COPY (SELECT 1) TO '{run}/../out.csv'",
    "writing into the run": "COPY (SELECT 1) TO '{run}/out.csv'",
    "writing under EXPLAIN": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{run}/out.csv'",
    "another database": "ATTACH '{run}/other.db'",
    "a setting": "SET enable_external_access = true",
    "an extension": "LOAD json",
    "two statements": "SELECT 1; SELECT 2",
    "a table": "CREATE TABLE t AS SELECT 1",
    "no statement": "",
}


@pytest.mark.parametrize("sql", REFUSED.values(), ids=REFUSED)
def test_locked_sql_reads_the_named_runs_alone(hostile_run: Path, sql: str) -> None:
    (hostile_run.parent / "secret.txt").write_text("secret")
    with (
        Catalogue(hostile_run, locked=True) as catalogue,
        pytest.raises(PopuloraError, match="could not be answered"),
    ):
        catalogue.query(sql.format(run=hostile_run)).df()
    assert sorted(path.name for path in hostile_run.parent.iterdir()) == ["hostile", "secret.txt"]
    assert not list(hostile_run.glob("o*"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM problems",
        "FROM attempts",
        "DESCRIBE problems",
        "SHOW TABLES",
        "WITH p AS (FROM problems) SELECT count(*) FROM p",
        "PIVOT attempts ON verdict USING count(*)",
    ],
)
def test_locked_sql_asks_what_it_likes_of_them(hostile_run: Path, sql: str) -> None:
    with Catalogue(hostile_run, locked=True) as catalogue:
        assert len(catalogue.query(sql).df()) > 0


def test_several_runs_are_read_as_one_under_lock(hostile_run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", generations=1)
    with Catalogue(hostile_run, other, locked=True) as catalogue:
        assert {row["run"] for row in catalogue.rows("SELECT DISTINCT run FROM problems")} == {
            "hostile",
            "other",
        }
