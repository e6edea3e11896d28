"""Questions: the cookbook on real runs, many runs as one, answers that stream, blocks of old generations."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from command import populora
from conftest import PATIENCE, ran
from store_run import commit_stage, generation_tables, write_run

from bench.analytics import questions
from populora_core import open_run
from populora_core.commands.answers import print_answer
from populora_core.store.answer import BATCH
from populora_core.store.blocks import BLOCKS, JOINED, MERGED, compact, stale_blocks, valid_blocks
from populora_core.store.catalogue import Catalogue, publish, run_labels, stale
from populora_core.store.manifest_tables import MANIFEST_TABLES
from populora_core.store.tables import TABLES
from populora_core.store.views import VIEWS

ROOT = Path(__file__).resolve().parent.parent
# What a run without evaluations and without an outage of the sandbox has no rows for.
MAY_BE_EMPTY = {
    "How do members do on held-out problems?",
    "Did problems get harder, or solvers better?",
    "Does the sandbox hold?",
}


def all_rows(run_dir: Path) -> dict[str, list[str]]:
    """Every row of every view and table, in any order."""
    names = [*VIEWS, *(f"tables.{name}" for name in (*TABLES, *MANIFEST_TABLES))]
    with Catalogue(run_dir) as catalogue:
        return {name: sorted(map(repr, catalogue.rows(f"FROM {name}"))) for name in names}


# The cookbook


def test_the_cookbook_has_at_least_fifteen_questions_each_under_its_own_heading():
    page = (ROOT / "docs" / "analytics.md").read_text()
    assert len(questions()) >= 15
    assert page.count("\n## ") == page.count("```sql") == len(questions())


@pytest.mark.parametrize("title", questions())
def test_a_question_is_answered_on_a_real_run(finished: Path, title: str):
    with open_run(finished) as run:
        answer = run.query(questions()[title]).arrow()
    assert answer.num_rows or title in MAY_BE_EMPTY
    assert set(answer["run"].to_pylist()) <= {"finished"}


@pytest.mark.thorough
@pytest.mark.parametrize("title", questions())
def test_the_same_question_is_answered_across_runs(finished: Path, finished_solo: Path, title: str):
    with open_run(finished, finished_solo) as runs:
        together = runs.query(questions()[title]).arrow()
    if title.startswith("Which exact") or title.startswith("Which prompt") or "LIMIT" in questions()[title]:
        assert together.num_rows
        return
    alone = 0
    for directory in (finished, finished_solo):
        with open_run(directory) as run:
            alone += run.query(questions()[title]).arrow().num_rows
    assert together.num_rows == alone


@pytest.mark.thorough
@pytest.mark.parametrize("who", ["students", "teachers"])
def test_the_last_generations_are_those_of_each_run(tmp_path: Path, who: str):
    runs = [write_run(tmp_path / "long", generations=14), write_run(tmp_path / "short", generations=1)]
    # Whoever made them, all problems of these runs are solved always.
    sql = questions()[f"Who may be hacking the reward: {who}?"].replace("solve_rate < 1", "solve_rate <= 1")
    with Catalogue(*runs) as both:
        rows = both.rows(sql)
    assert {row["run"] for row in rows} == {"long", "short"}
    if who == "teachers":
        assert {row["run"]: row["paid_problems"] for row in rows} == {"long": 10, "short": 1}


# Many runs


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("two")
    return write_run(root / "a" / "demo"), write_run(root / "b" / "demo", generations=1)


@pytest.mark.thorough
def test_every_view_of_many_runs_has_the_rows_of_each_under_its_name(two_runs):
    with Catalogue(*two_runs) as both:
        for view in VIEWS:
            counted = {
                row["run"]: row["n"]
                for row in both.rows(f"SELECT run, count(*) AS n FROM {view} GROUP BY ALL")
            }
            alone = {}
            for label, directory in zip(("a/demo", "b/demo"), two_runs, strict=True):
                with Catalogue(directory) as one:
                    if n := one.query(f"FROM {view}").arrow().num_rows:
                        alone[label] = n
            assert counted == alone, view


def test_a_run_among_many_keeps_its_own_catalogue_with_the_stage_tables(two_runs):
    with Catalogue(*two_runs) as both:
        assert both.rows('SELECT DISTINCT completion_ids FROM "a/demo".tables.attempts') == [
            {"completion_ids": [9, 1]}
        ]


def test_a_run_that_is_named_twice_counts_once(two_runs):
    with Catalogue(two_runs[0], two_runs[0]) as run:
        assert run.query("FROM attempts").arrow().num_rows == 4


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["/runs/a", "/runs/b"], ["a", "b"]),
        (["/x/run", "/y/run"], ["x/run", "y/run"]),
        (["/x/Demo", "/y/demo"], ["x/Demo", "y/demo"]),
        (["/x/memory", "/x/b"], ["x/memory", "x/b"]),
        (["/x/Main", "/x/b"], ["x/Main", "x/b"]),
    ],
)
def test_labels_tell_runs_apart_for_duckdb_too(paths, labels):
    assert run_labels([Path(path) for path in paths]) == labels


@pytest.mark.parametrize("name", ["main", "tables", "held", "recent", "information_schema"])
def test_a_run_named_as_a_schema_is_asked_beside_another(tmp_path: Path, name: str):
    runs = [write_run(tmp_path / "runs" / each, generations=1) for each in (name, "b")]
    with Catalogue(*runs) as both:
        rows = both.rows("SELECT run, count(*) AS n FROM attempts GROUP BY ALL ORDER BY run")
    assert rows == [{"run": f"runs/{each}", "n": 2} for each in ("b", name)]


# Answers


def test_an_answer_is_a_frame_a_table_or_batches(two_runs):
    with Catalogue(two_runs[0]) as run:
        answer = run.query("SELECT i FROM range(20000) t(i) ORDER BY i")
        assert isinstance(answer.df(), pd.DataFrame)
        assert isinstance(answer.arrow(), pa.Table)
        batches = list(answer.batches())
        assert answer.columns == ["i"]
    assert max(batch.num_rows for batch in batches) <= BATCH
    assert pa.Table.from_batches(batches)["i"].to_pylist() == list(range(20000))


TWICE = "SELECT 1 AS a, 2 AS b, 3 AS a, 4 AS c"


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("1 AS a, 2 AS b, 3 AS a", ["a", "b", "a_1"]),
        ("1 AS a, 2 AS a, 3 AS a", ["a", "a_1", "a_2"]),
        ("1 AS a, 2 AS a_1, 3 AS a", ["a", "a_1", "a_2"]),
        ("1 AS a, 2 AS a, 3 AS a_1", ["a", "a_1", "a_1_1"]),
        ("1 AS a, 2 AS A, 3 AS a_1", ["a", "A_1", "a_1_1"]),
    ],
)
def test_columns_of_one_name_are_told_apart_as_duckdb_does_in_frames(two_runs, asked, named):
    with Catalogue(two_runs[0]) as run:
        answer = run.query(f"SELECT {asked}")
        assert answer.columns == named
        assert list(run.connect().sql(f"SELECT {asked}").df().columns) == named


def test_an_answer_has_the_same_columns_whatever_it_is_taken_as(two_runs):
    row = {"a": 1, "b": 2, "a_1": 3, "c": 4}
    with Catalogue(two_runs[0]) as run:
        answer = run.query(TWICE)
        assert answer.columns == list(row)
        assert answer.df().to_dict("records") == [row]
        assert answer.arrow().to_pylist() == [row]
        assert [batch.to_pylist() for batch in answer.batches()] == [[row]]
        assert run.rows(TWICE) == [row]


@pytest.mark.parametrize("format", ["csv", "json", "table"])
def test_a_value_is_printed_under_its_own_column_where_two_share_a_name(two_runs, capsys, format):
    with Catalogue(two_runs[0]) as run:
        print_answer(run.query(TWICE), format)
    lines = capsys.readouterr().out.splitlines()
    if format == "csv":
        names, values = csv.reader(lines)
    elif format == "json":
        (row,) = map(json.loads, lines)
        names, values = list(row), [str(value) for value in row.values()]
    else:
        names, values = lines[1].replace("┃", " ").split(), lines[3].replace("│", " ").split()
    assert dict(zip(names, values, strict=True)) == {"a": "1", "b": "2", "a_1": "3", "c": "4"}


@pytest.mark.thorough
@pytest.mark.parametrize(("formats", "many"), [("csv json", 150_000), ("table", 50_000)])
def test_memory_does_not_grow_with_the_rows_that_are_printed(two_runs, formats, many):
    script = (
        "import sys; from bench.harness import status_kib; from pathlib import Path\n"
        "from populora_core.commands.answers import print_answer\n"
        "from populora_core.store.catalogue import Catalogue\n"
        "with Catalogue(Path(sys.argv[1])) as run:\n"
        " sql = f\"SELECT i, repeat('x', {sys.argv[3]}) || i AS t FROM range({sys.argv[2]}) r(i)\"\n"
        " for format in sys.argv[4:]: print_answer(run.query(sql), format)\n"
        "print(status_kib('VmHWM'), file=sys.stderr)"
    )
    peaks, row = [], 2_000  # of a table 100 MB, else 300
    for rows in (1_000, many):
        command = [sys.executable, "-c", script, str(two_runs[0]), str(rows), str(row), *formats.split()]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=True
        )
        peaks.append(int(done.stderr))
    assert (peaks[1] - peaks[0]) * 1024 < many * row / 2


def test_query_asks_several_runs_and_prints_plain_json(finished: Path, finished_solo: Path):
    sql = "SELECT run, sum(n_attempts) AS n, list(DISTINCT 'x') AS l, 'NaN'::DOUBLE AS nothing FROM problems"
    sql += " WHERE generation = 1 GROUP BY ALL ORDER BY run"
    done = populora("query", finished, finished_solo, sql, "--format", "json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["run"] for row in rows] == ["finished", "finished_solo"]
    assert all(isinstance(row["n"], int) and row["l"] == ["x"] and row["nothing"] is None for row in rows)


def test_who_stops_reading_ends_the_query_quietly(finished: Path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "populora_core.commands", "query", finished, "FROM range(100000)"]
    command += ["--format", "csv"]
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=PATIENCE
    )
    os.close(writing)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.thorough
def test_the_notebook_runs_over_several_runs(finished: Path, finished_solo: Path):
    pytest.importorskip("marimo", reason="the extra `notebook` is not installed")
    notebook = ROOT / "notebooks" / "explore.py"
    checked = ran([sys.executable, "-m", "marimo", "check", "--strict", notebook])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, notebook, "--", finished, finished_solo]
    done = ran(command, env=environment)
    assert done.returncode == 0, done.stderr


# Publishing under readers


@pytest.mark.thorough
def test_a_reader_goes_on_across_a_hundred_publishes(tmp_path):
    write_run(tmp_path, generations=1)
    publish(tmp_path)
    failures: list[BaseException] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            try:
                with Catalogue(tmp_path) as run:
                    assert run.rows("SELECT count(*) AS n FROM attempts")[0]["n"] >= 2
            except BaseException as error:
                failures.append(error)
                return

    others = threading.Thread(target=read)
    with Catalogue(tmp_path) as run:
        batches = run.query("SELECT a.* FROM attempts a, range(300000)").batches(1000)
        others.start()
        try:
            for number in range(100):
                if number % 25 == 0:
                    commit_stage(tmp_path, 2 + number, "match", generation_tables(2)["match"])
                publish(tmp_path)
                assert next(batches).num_rows
        finally:
            ended.set()
            others.join()
        assert run.query("FROM matches").arrow().num_rows == 1  # it still shows what it was opened on
    assert failures == []


# Blocks of old generations


@pytest.mark.thorough
def test_views_and_tables_show_the_same_rows_with_blocks_as_without(tmp_path, monkeypatch):
    monkeypatch.setattr("populora_core.store.publication.HELD_BYTES", 0)  # a run too large to be held
    write_run(tmp_path, generations=7)
    commit_stage(
        tmp_path,
        3,
        "evaluate-late",
        {
            "evaluations": generation_tables(3)["evaluate"]["evaluations"],
            "evaluation_items": [
                row | {"verdict": "correct", "correct": True}
                for row in generation_tables(3)["evaluate"]["evaluation_items"]
            ],
        },
        {"metrics": {"mean_depth": 3.0}},
    )
    before = all_rows(tmp_path)
    made = compact(tmp_path, generations=3)
    assert [block.generations for block in made] == [range(0, 3), range(3, 6)]
    assert stale(tmp_path)
    assert all_rows(tmp_path) == before
    unsaid = {
        "averages",
        "tables.averages",
        "hyperparameters",
        "tables.hyperparameters",
        "runs",
        "settings",
    }  # no one averages or inherits here, and no record was written
    assert {name for name, rows in before.items() if not len(rows)} <= unsaid


def test_a_block_holds_few_files_and_the_stages_keep_theirs(tmp_path):
    write_run(tmp_path, generations=4)
    files = sorted((tmp_path / "generations").rglob("*"))
    (block,) = compact(tmp_path, generations=5)
    assert len(list(block.folder.iterdir())) == len(JOINED) + len(MERGED) + len(MANIFEST_TABLES)
    assert sorted((tmp_path / "generations").rglob("*")) == files


def test_a_block_is_full_after_so_many_attempts(tmp_path):
    write_run(tmp_path, generations=5)
    assert [block.generations for block in compact(tmp_path, rows=4)] == [range(0, 3), range(3, 5)]
    assert compact(tmp_path, rows=4) == []


@pytest.mark.parametrize("older", [[1], [1, 2]], ids=["some", "all"])
def test_a_column_that_an_older_version_did_not_write_is_null_in_a_block(tmp_path, monkeypatch, older):
    write_run(tmp_path, generations=2)
    before = replace(TABLES["updates"], columns=tuple(c for c in TABLES["updates"] if c.name != "steps"))
    for generation in older:
        rows = [
            {name: value for name, value in row.items() if name != "steps"}
            for row in generation_tables(generation)["update"]["updates"]
        ]
        with monkeypatch.context() as patch:
            patch.setitem(TABLES, "updates", before)
            commit_stage(tmp_path, generation, "update", {"updates": rows}, version=0)
    sql = "SELECT generation, member_id, tokens, steps FROM updates ORDER BY ALL"
    with Catalogue(tmp_path) as run:
        told = run.rows(sql)
    assert [block.generations for block in compact(tmp_path, generations=3)] == [range(3)]
    with Catalogue(tmp_path) as run:
        assert run.rows(sql) == told
    assert {row["generation"] for row in told if row["steps"] is None} == set(older)


def test_only_whole_generations_go_into_blocks(tmp_path):
    write_run(tmp_path, generations=3)
    (tmp_path / "generations" / "0002" / "solve" / "manifest.json").unlink()
    assert [block.generations for block in compact(tmp_path, generations=2)] == [range(0, 2)]


def test_a_stage_that_is_made_again_takes_its_block_out_of_use(tmp_path):
    write_run(tmp_path, generations=3)
    compact(tmp_path, generations=2)
    commit_stage(
        tmp_path, 1, "match", {"matches": [generation_tables(1)["match"]["matches"][0] | {"weight": 0.5}]}
    )
    assert [block.generations for block in valid_blocks(tmp_path)] == [range(2, 4)]
    with Catalogue(tmp_path) as run:
        assert run.rows("SELECT weight FROM matches WHERE generation = 1") == [{"weight": 0.5}]
    assert len(stale_blocks(tmp_path)) == 1
    assert [block.generations for block in compact(tmp_path, generations=2)] == [range(0, 2)]


def test_a_killed_compaction_leaves_nothing_that_is_used(tmp_path, monkeypatch):
    write_run(tmp_path, generations=3)
    monkeypatch.setattr("os.rename", lambda *paths: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        compact(tmp_path, generations=2)
    assert list((tmp_path / BLOCKS).iterdir()) == []
    assert valid_blocks(tmp_path) == []


def test_a_catalogue_of_other_views_is_stale(tmp_path, monkeypatch):
    publish(write_run(tmp_path, generations=1))
    assert not stale(tmp_path)
    view = VIEWS["ratings"]
    monkeypatch.setitem(VIEWS, "ratings", type(view)(view.name, view.meaning, view.source, view.columns[:-1]))
    assert stale(tmp_path)
