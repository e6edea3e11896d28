"""The catalogue opens wherever its run lies, is published again when it is stale, and answers or says why not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from store_run import commit_stage, generation_tables, write_run

from populora_core.runs.run import Run
from populora_core.store.answer import Answer
from populora_core.store.catalogue import Catalogue, publish, stale
from populora_core.store.manifest import stage_dir
from populora_core.store.views import VIEWS
from populora_core.support.errors import ArtifactError, PopuloraError


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def catalogue(run_dir):
    with Catalogue(run_dir) as opened:
        yield opened


@pytest.mark.parametrize(
    "name",
    [
        *("it's", "a [b] c", "star*", "really?", "back\\slash", "lr=3", "generation=9", "ünïcode"),
        *("lr[1]/run", "star*/run", "really?/a [b] c"),
    ],
)
def test_a_run_directory_may_have_any_name(tmp_path, name):
    with Catalogue(write_run(tmp_path / name, generations=1)) as opened:
        assert opened.query("SELECT DISTINCT generation FROM attempts").df()["generation"].tolist() == [1]


def test_a_name_that_duckdb_cannot_read_is_said_to_be_one(tmp_path):
    with pytest.raises(ArtifactError, match="another name"):
        Catalogue(write_run(tmp_path / "both\\and*", generations=1))


@pytest.mark.parametrize("name", ["lr=0.1,seed=[7]", "all*", "all?7", "all\\7"])
def test_a_locked_catalogue_reads_its_own_folder_whatever_its_name(tmp_path, name):
    other = write_run(tmp_path / "all-7", generations=1)
    file = next(other.rglob("*.parquet"))
    with Catalogue(write_run(tmp_path / name, generations=1), locked=True) as opened:
        assert opened.query("SELECT DISTINCT generation FROM attempts").df()["generation"].tolist() == [1]
        with pytest.raises(PopuloraError):
            opened.query(f"SELECT * FROM read_parquet('{file}')").df()


def test_any_duckdb_client_opens_it_from_any_folder(run_dir, tmp_path):
    script = (
        "import duckdb, sys; con = duckdb.connect(sys.argv[1], read_only=True); "
        "print(con.execute('SELECT count(*) FROM attempts').fetchall())"
    )
    path = publish(run_dir)
    done = subprocess.run([sys.executable, "-c", script, path], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "[(4,)]\n", done.stderr


def test_it_may_be_attached_under_any_name(run_dir):
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{publish(run_dir)}' AS tuesday (READ_ONLY)")
        assert connection.execute("SELECT count(*) FROM tuesday.proposals").fetchall() == [(4,)]


def test_every_view_and_table_and_each_of_their_columns_has_a_comment(run_dir):
    with duckdb.connect(publish(run_dir), read_only=True) as connection:
        silent = connection.execute(
            "SELECT view_name FROM duckdb_views() WHERE comment IS NULL AND NOT internal UNION ALL "
            "SELECT table_name FROM duckdb_tables() WHERE comment IS NULL UNION ALL "
            "SELECT table_name || '.' || column_name FROM duckdb_columns() "
            "WHERE comment IS NULL AND NOT internal AND table_name <> 'source'"
        ).fetchall()
    assert silent == []


def test_a_suite_of_one_benchmark_has_a_row_all_beside_it_which_no_stage_stores(catalogue):
    rows = catalogue.rows(
        "SELECT * EXCLUDE (benchmark) FROM evaluations WHERE benchmark = 'all' ORDER BY ALL"
    )
    assert rows == catalogue.rows(
        "SELECT * EXCLUDE (benchmark) FROM evaluations WHERE benchmark <> 'all' ORDER BY ALL"
    )
    assert rows and catalogue.rows("FROM tables.evaluations WHERE benchmark = 'all'") == []


def test_a_level_is_a_number_beside_the_text_of_its_stratum(catalogue):
    assert catalogue.rows("SELECT DISTINCT stratum, level FROM evaluation_items") == [
        {"stratum": "level 1", "level": 1}
    ]


def test_a_run_tells_what_it_is_and_each_of_its_settings(finished):
    run = Run.open(finished)
    with Catalogue(finished) as opened:
        (row,) = opened.rows("FROM runs")
        settings = {found["setting"]: found for found in opened.rows("FROM settings")}
    assert (row["base"], row["seed"], row["played"]) == (
        run.config.base.path,
        run.config.run.seed,
        run.config.run.generations,
    )
    assert row["seconds"] > 0 and row["forked_from"] is None and row["run"] == finished.name
    declared = {f"{section}.{key}" for section, keys in run.config.as_json().items() for key in keys}
    assert set(settings) == declared
    assert settings["update.learning_rate"]["number"] == run.config.update.learning_rate
    assert settings["base.dialect"]["value"] == run.config.base.dialect


def test_a_fresh_catalogue_is_not_stale(tmp_path):
    publish(write_run(tmp_path, generations=1))
    assert not stale(tmp_path)


def test_a_missing_or_unreadable_catalogue_is_stale(tmp_path):
    assert stale(tmp_path)
    (tmp_path / "catalogue.duckdb").write_bytes(b"junk")
    assert stale(tmp_path)


def test_a_new_stage_a_lost_file_and_a_lost_stage_make_it_stale(tmp_path):
    write_run(tmp_path, generations=1)
    publish(tmp_path)
    commit_stage(tmp_path, 2, "match", generation_tables(2)["match"])
    assert stale(tmp_path)
    publish(tmp_path)
    (stage_dir(tmp_path, 1, "solve") / "attempts.parquet").unlink()
    assert stale(tmp_path)
    publish(tmp_path)
    shutil.rmtree(stage_dir(tmp_path, 2, "match"))
    assert stale(tmp_path)


def test_a_moved_run_is_opened_at_its_new_place(tmp_path):
    publish(write_run(tmp_path / "old", generations=1))
    (tmp_path / "old").rename(tmp_path / "new")
    assert stale(tmp_path / "new")
    with Catalogue(tmp_path / "new") as opened:
        assert len(opened.query("FROM attempts").df()) == 2
    assert not stale(tmp_path / "new")


def test_a_reader_goes_on_across_a_swap_and_the_next_one_sees_the_new_state(tmp_path):
    write_run(tmp_path, generations=1)
    with Catalogue(tmp_path) as old:
        commit_stage(tmp_path, 2, "match", generation_tables(2)["match"])
        publish(tmp_path)
        with Catalogue(tmp_path) as new:
            assert len(old.query("FROM matches").df()) == 1
            assert len(new.query("FROM matches").df()) == 2


def test_who_may_not_write_to_the_run_sees_its_newest_state(tmp_path, monkeypatch):
    write_run(tmp_path, generations=1)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with Catalogue(tmp_path) as opened:
        assert len(opened.query("FROM attempts").df()) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["generations"]


def test_publishing_leaves_nothing_but_the_catalogue(tmp_path):
    publish(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["catalogue.duckdb", "catalogue.mark"]


def test_a_failed_publish_leaves_the_old_catalogue(tmp_path):
    write_run(tmp_path, generations=1)
    before = publish(tmp_path).read_bytes()
    path = stage_dir(tmp_path, 1, "solve") / "attempts.parquet"
    path.write_bytes(bytes(path.stat().st_size))  # damaged at its full size, which only reading finds
    with pytest.raises(ArtifactError, match="could not be built"):
        publish(tmp_path)
    assert (tmp_path / "catalogue.duckdb").read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_publishing_does_not_make_a_run_directory(tmp_path):
    with pytest.raises(ArtifactError):
        publish(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_query_gives_a_pandas_frame_or_an_arrow_table(catalogue):
    assert catalogue.query("SELECT 1 AS one").df().to_dict("list") == {"one": [1]}
    assert catalogue.query("SELECT 1 AS one").arrow() == pa.table({"one": pa.array([1], pa.int32())})


def test_a_query_takes_parameters(catalogue):
    sql = "SELECT count(*) AS n FROM attempts WHERE generation = ?"
    assert catalogue.query(sql, [2]).df()["n"].tolist() == [2]
    assert catalogue.query("SELECT $word AS word", {"word": "it's"}).df()["word"].tolist() == ["it's"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELEC 1",
        "FROM nothing",
        "SELECT colour FROM members",
        "CREATE TABLE t (x INTEGER)",
        "DROP VIEW members",
        "",
    ],
)
def test_a_refused_query_says_why_and_names_the_views(catalogue, sql):
    with pytest.raises(PopuloraError) as caught:
        catalogue.query(sql)
    assert caught.value.got
    assert all(name in caught.value.expected for name in VIEWS)


def test_a_query_works_after_a_refused_one(catalogue):
    with pytest.raises(PopuloraError):
        catalogue.query("SELECT error('stop') FROM members").df()
    assert len(catalogue.query("FROM members").df()) == 3


class Ended(BaseException):
    """What a handler raises, as Prefect's of SIGTERM does."""


@pytest.mark.parametrize("taken", [Answer.df, Answer.arrow, lambda answer: list(answer.batches())])
def test_a_signal_during_a_query_raises_what_its_handler_raises(catalogue, taken):
    def end(*_):
        raise Ended

    endless = "SELECT sum(a.range * b.range) FROM range(10_000_000) a, range(10_000_000) b"
    before = signal.signal(signal.SIGTERM, end)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        with pytest.raises(Ended):
            timer.start()
            taken(catalogue.query(endless))
    finally:
        timer.join()
        signal.signal(signal.SIGTERM, before)
    assert catalogue.rows("SELECT 1 AS one") == [{"one": 1}], "and the next question is answered"
