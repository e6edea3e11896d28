"""What people see of model-written text is shown, not obeyed; SQL of others reads the named runs alone."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command import populora
from conftest import PATIENCE
from store_run import commit_stage, generation_tables, write_run

from populora_core.commands.answers import LONGEST, format_of, print_answer, row_table, save_answer
from populora_core.config.load import load_config
from populora_core.runs.heartbeat import HEARTBEAT, Beat
from populora_core.runs.run import Run, RunLeftOut, open_runs
from populora_core.store.catalogue import Catalogue
from populora_core.store.views import VIEWS
from populora_core.support.errors import EXIT_ERROR, ConfigError, PopuloraError, RunDirectoryError
from populora_core.terminal.screen import console
from populora_core.terminal.trusting import settle

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = "def f(s):\n    return s[a:b:c]  # :boom: \x1b[2J\x07\u202e"


def seen(terminal: bool, *arguments: object) -> str:
    """What a command writes to a terminal, or into a pipe."""
    if not terminal:
        done = populora(*arguments, COLUMNS="80")
        assert done.returncode == 0, done.stderr
        return done.stdout
    command = [sys.executable, "-m", "populora_core.commands", *map(str, arguments)]
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


NAMED_BY_PROGRAM = "PIVOT (SELECT program FROM problems) ON program USING count(*)"
"""A question whose columns are named by what a model wrote."""
COMMANDS = {
    "inspect": ("inspect", "{run}", "--problem", "prob-g0001-t00-code_o-0000"),
    "table": ("query", "{run}", "SELECT program FROM problems"),
    "csv": ("query", "{run}", "SELECT program FROM problems", "--format", "csv"),
    "json": ("query", "{run}", "SELECT program FROM problems", "--format", "json"),
    "markdown": ("query", "{run}", "SELECT program FROM problems", "--format", "markdown"),
    "one under another": ("query", "{run}", "FROM problems"),
    "csv header": ("query", "{run}", NAMED_BY_PROGRAM, "--format", "csv"),
    "markdown header": ("query", "{run}", NAMED_BY_PROGRAM, "--format", "markdown"),
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_terminal_obeys_nothing_that_a_model_wrote(hostile_run: Path, arguments: tuple[str, ...]) -> None:
    shown = seen(True, *(argument.format(run=hostile_run) for argument in arguments))
    assert "[2J" in shown
    assert "\x1b[2J" not in shown
    assert not set("\x07\u202e") & set(shown)


NAMED = "x[/b]\x1b]0;mine\x07\x1b[31m\u202e"
"""What a file of a run may call things: markup without a beginning, a title and a colour for the terminal."""


def record(**values: Any) -> Callable[[Path], Path]:
    """A change of run.json; values of a section are joined to it."""

    def change(run: Path) -> Path:
        document = json.loads((run / "run.json").read_text())
        for key, value in values.items():
            document[key] = document[key] | value if key == "config" else value
        (run / "run.json").write_text(json.dumps(document))
        return run

    return change


def killed(run: Path) -> Path:
    """A heartbeat that another machine left."""
    beat = Beat(1, NAMED, "1:1:1:1", 1, "solve", "2026-01-01T00:00:00+00:00", ended=False)
    (run / HEARTBEAT).write_text(json.dumps(asdict(beat)))
    return run


def renamed(run: Path) -> Path:
    place = run.parent / NAMED
    place.parent.mkdir()
    return run.rename(place)


TELLS: dict[str, tuple[Callable[[Path], Path], int]] = {
    "revision": (record(code_revision=NAMED), 0),
    "origin": (record(forked_from={"run": NAMED, "generation": 0}), 0),
    "host": (killed, 0),
    "folder": (renamed, 0),
    "unknown setting": (record(config={NAMED: {}}), EXIT_ERROR),
}


@pytest.mark.parametrize("what", TELLS)
def test_nothing_that_a_run_tells_of_itself_is_obeyed(hostile_run: Path, tmp_path: Path, what: str) -> None:
    change, code = TELLS[what]
    done = populora("inspect", change(Path(shutil.copytree(hostile_run, tmp_path / "run"))))
    shown = done.stdout + done.stderr
    assert done.returncode == code
    assert "[/b]" in shown and "␛[31m⟨U+202E⟩" in shown
    assert not set("\x1b\x07\u202e") & set(shown)


def test_a_question_about_a_place_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, its = pty.openpty()
    os.write(ours, b"n\n")
    with os.fdopen(its) as answers, os.fdopen(os.dup(its), "w") as questions:
        monkeypatch.setattr(sys, "stdin", answers)
        monkeypatch.setattr(sys, "stderr", questions)
        with pytest.raises(ConfigError, match="not named yourself"):
            settle("run", [f"file:///{NAMED}\nUse mine?"], ())
    shown = b"".join(_until_end(ours)).decode()
    assert "[/b]" in shown and "␊Use mine?" in shown
    assert not set("\x1b\x07\u202e") & set(shown)


def test_every_command_prints_by_the_screen_that_obeys_no_text() -> None:
    makers = [
        str(file.relative_to(ROOT))
        for room in ("populora_core", "populora_plugins", "flows", "tasks")
        for file in (ROOT / room).rglob("*.py")
        if re.search(r"\bConsole\(", file.read_text())
    ]
    assert makers == [], "each has a Screen"


def test_a_pipe_gets_every_character_as_it_is(hostile_run: Path) -> None:
    printed = seen(False, "query", hostile_run, "SELECT program FROM problems", "--format", "json")
    assert json.loads(printed) == {"program": HOSTILE}


def test_code_is_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    console.print(row_table([{"program": "s[a:b:c] :x: :boom:"}]))
    assert "s[a:b:c] :x: :boom:" in capsys.readouterr().out


def test_no_id_and_no_header_is_cut_however_narrow_the_terminal(hostile_run: Path) -> None:
    with Catalogue(hostile_run) as catalogue:
        (problem,) = catalogue.rows("FROM problems")
    some = "problem_id, proposal_id, teacher_id, cyclomatic_complexity, n_attempts, program_key"
    for columns, names in (("*", list(problem)), (some, some.split(", "))):
        for terminal in (True, False):
            shown = seen(terminal, "query", hostile_run, f"SELECT {columns} FROM problems")
            assert "…" not in shown
            assert all(
                problem[name] in shown for name in ("problem_id", "proposal_id", "teacher_id", "program_key")
            )
            assert all(name in shown for name in names)


def test_names_of_columns_fold_where_their_cells_are_narrower(capsys: pytest.CaptureFixture[str]) -> None:
    console.print(row_table([{"most_wins_of_all": 3, "id": "student-00-g0000"}], folded=True))
    lines = [line.replace("┃", " ").split() for line in capsys.readouterr().out.splitlines()]
    assert ["most_"] in lines and ["wins_"] in lines and ["of_"] in lines


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.md", "rows.parquet", "rows.txt"])
def test_rows_are_written_to_a_file_as_its_name_says(hostile_run: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / name
    with Catalogue(hostile_run, locked=True) as catalogue:
        answer = catalogue.query("SELECT attempt_id, completion, reward FROM attempts ORDER BY attempt_id")
        save_answer(answer, format_of(None, output), output)
        rows = answer.arrow().to_pylist()
    if name == "rows.parquet":
        assert pq.read_table(output).to_pylist() == rows
    else:
        text = output.read_text()
        assert all(row["attempt_id"] in text for row in rows)
        assert text.startswith({"rows.csv": "attempt_id,", "rows.md": "| attempt_id |"}.get(name, ("{", "┏")))


TOOK = "1 months 2 days 93.447668 seconds"


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.md", "rows.parquet", "rows.txt"])
def test_an_interval_is_written_in_words_that_sql_reads_again(
    hostile_run: Path, tmp_path: Path, name: str
) -> None:
    output = tmp_path / name
    sql = f"SELECT INTERVAL '{TOOK}' AS took, INTERVAL 0 DAY AS at_once, NULL::INTERVAL AS never"
    with Catalogue(hostile_run, locked=True) as catalogue:
        save_answer(catalogue.query(sql), format_of(None, output), output)
        assert catalogue.rows(f"SELECT '{TOOK}'::INTERVAL = INTERVAL '{TOOK}' AS same") == [{"same": True}]
        save_answer(catalogue.query(f"{sql} WHERE false"), format_of(None, output), tmp_path / "empty")
    if name == "rows.parquet":
        told = {"took": TOOK, "at_once": "0 seconds", "never": None}
        assert pq.read_table(output).to_pylist() == [told]
        assert pq.read_table(tmp_path / "empty").num_rows == 0
    else:
        assert TOOK in output.read_text() and "0 seconds" in output.read_text()


def test_a_column_that_parquet_has_no_type_for_is_named_with_a_way_out(
    hostile_run: Path, tmp_path: Path
) -> None:
    with Catalogue(hostile_run) as catalogue:
        answer = catalogue.query(f"SELECT [INTERVAL '{TOOK}'] AS took")
        save_answer(answer, "json", tmp_path / "rows.jsonl")
        with pytest.raises(ConfigError, match="Parquet has no type") as refused:
            save_answer(answer, "parquet", tmp_path / "rows.parquet")
    assert "CAST(" in refused.value.fix and not (tmp_path / "rows.parquet").exists()
    assert json.loads((tmp_path / "rows.jsonl").read_text()) == {"took": [TOOK]}


def test_a_text_with_any_line_end_is_one_cell_of_csv(hostile_run: Path, tmp_path: Path) -> None:
    sql = (
        "SELECT 'a' || chr(13) || 'b' AS text, 1 AS number UNION ALL SELECT 'c' || chr(10), 2 ORDER BY number"
    )
    with Catalogue(hostile_run) as catalogue:
        save_answer(catalogue.query(sql), "csv", tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert [*csv.reader(file)] == [["text", "number"], ["a\rb", "1"], ["c\n", "2"]]


def test_a_run_of_newer_code_is_not_called_damaged(hostile_run: Path, tmp_path: Path) -> None:
    newer = Path(shutil.copytree(hostile_run, tmp_path / "newer"))
    record = json.loads((newer / "run.json").read_text())
    record["config"]["update"]["roles_of_tomorrow"] = "all"
    (newer / "run.json").write_text(json.dumps(record))
    with pytest.raises(RunDirectoryError, match="settings that this code does not take") as refused:
        Run.open(newer)
    assert "roles_of_tomorrow" in str(refused.value) and record["code_revision"] in refused.value.fix


def test_parquet_is_no_text_to_print(hostile_run: Path) -> None:
    with Catalogue(hostile_run) as catalogue, pytest.raises(ConfigError, match="no text to print"):
        print_answer(catalogue.query("FROM members"), "parquet")


def test_a_folder_and_a_pattern_name_all_runs_in_them(hostile_run: Path, tmp_path: Path) -> None:
    for name in ("seed-0", "seed-1"):
        shutil.copytree(hostile_run, tmp_path / name)
    (tmp_path / "notes").mkdir()
    for places in (
        [tmp_path],
        [tmp_path / "seed-*"],
        [tmp_path / "*"],
        [tmp_path / "seed-0", tmp_path / "seed-1"],
    ):
        assert [run.directory.name for run in open_runs(places)] == ["seed-0", "seed-1"]
    with pytest.raises(RunDirectoryError, match="notes is not a run directory"):
        open_runs([tmp_path / "seed-0", tmp_path / "notes"])


def test_of_a_folder_or_a_pattern_a_run_that_cannot_be_opened_is_left_out(
    hostile_run: Path, tmp_path: Path
) -> None:
    for name in ("seed-0", "seed-1"):
        shutil.copytree(hostile_run, tmp_path / name)
    record = tmp_path / "seed-1" / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"format": 2}))
    for place in (tmp_path, tmp_path / "seed-*"):
        with pytest.warns(RunLeftOut, match=r"seed-1 is left out: .*another version; populora inspect "):
            assert [run.directory.name for run in open_runs([place])] == ["seed-0"]
    with pytest.raises(RunDirectoryError, match="another version"):
        open_runs([tmp_path / "seed-0", tmp_path / "seed-1"])
    shutil.rmtree(tmp_path / "seed-0")
    with pytest.raises(RunDirectoryError, match="another version"):
        open_runs([tmp_path])


def test_a_run_that_is_there_is_asked_before_those_that_its_name_would_match(
    finished: Path, tmp_path: Path
) -> None:
    for name in ("seed=7", "seed=[7]", "seed-all*", "seed-all-2"):
        shutil.copytree(finished, tmp_path / name)
    for name in ("seed=[7]", "seed-all*"):
        assert [run.directory.name for run in open_runs([tmp_path / name])] == [name]
    found = [run.directory.name for run in open_runs([tmp_path / "seed=[78]"])]
    assert found == ["seed=7"], "a name that no folder has is a pattern"


def test_any_client_of_duckdb_is_told_what_a_column_means(hostile_run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", generations=1)
    told = {(view.name, column.name): column.meaning for view in VIEWS.values() for column in view}
    for directories in ([hostile_run], [hostile_run, other]):
        with Catalogue(*directories) as catalogue:
            rows = catalogue.rows(
                "SELECT table_name, column_name, comment FROM duckdb_columns() "
                "WHERE database_name = current_database() AND schema_name = 'main' AND NOT internal"
            )
        assert {(row["table_name"], row["column_name"]): row["comment"] for row in rows} == told


def test_a_match_tells_its_solve_rate_where_solved_under_both_names(hostile_run: Path) -> None:
    with Catalogue(hostile_run) as catalogue:
        (match,) = catalogue.rows("SELECT solve_rate, solve_rate_where_solved FROM matches")
    assert match["solve_rate"] == match["solve_rate_where_solved"] is not None


def test_a_huge_cell_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    console.print(row_table([{"text": "x\n" * LONGEST}]))
    assert len(capsys.readouterr().out) < 100 * LONGEST


REFUSED = {
    "another file": "SELECT * FROM read_text('/etc/passwd')",
    "a file of the same folder's parent": "SELECT * FROM read_text('{run}/../secret.txt')",
    "writing outside": "COPY (SELECT 1) TO '{run}/../out.csv'",
    "writing into the run": "COPY (SELECT 1) TO '{run}/out.csv'",
    "writing what is pivoted": "COPY (PIVOT problems ON program USING count(*)) TO '{run}/out.csv'",
    "writing under EXPLAIN": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{run}/out.csv'",
    "another database": "ATTACH '{run}/other.db'",
    "a setting": "SET enable_external_access = true",
    "an extension": "LOAD json",
    "two statements": "SELECT 1; SELECT 2",
    "a table": "CREATE TABLE t AS SELECT 1",
    "a table of what is pivoted": "CREATE TABLE memory.main.t AS PIVOT problems ON program USING count(*)",
    "no statement": "",
}


@pytest.mark.parametrize("sql", REFUSED.values(), ids=REFUSED)
def test_locked_sql_reads_the_named_runs_alone(hostile_run: Path, sql: str) -> None:
    (hostile_run.parent / "secret.txt").write_text("secret")
    with Catalogue(hostile_run, locked=True) as catalogue:
        with pytest.raises(PopuloraError, match="could not be answered"):
            catalogue.query(sql.format(run=hostile_run)).df()
        assert not catalogue.rows("SELECT * FROM duckdb_tables() WHERE database_name = 'memory'")
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
        "PIVOT attempts ON verdict USING count(*); -- é;",
        "FROM (PIVOT attempts ON verdict USING count(*)); ",
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
