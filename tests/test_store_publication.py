"""The catalogue's file answers for its own run alone, in any client, and is the same however it came to be."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from conftest import ran
from store_run import commit_stage, generation_tables, write_run

from populora_core.store import publication
from populora_core.store.blocks import APART, compact
from populora_core.store.catalogue import CATALOGUE, Catalogue, publish, stale
from populora_core.store.committed import RECENT
from populora_core.store.manifest import stage_dir
from populora_core.store.manifest_tables import MANIFEST_TABLES
from populora_core.store.record_tables import RECORD_TABLES
from populora_core.store.tables import TABLES
from populora_core.store.views import VIEWS

HELD = [f"tables.{name}" for name in (*TABLES, *MANIFEST_TABLES, *RECORD_TABLES) if name not in APART]
ANSWER = """
import duckdb, sys
def plain(row):  # the last digit of a mean follows from the order in which threads add
    return repr([float(f"{value:.12g}") if isinstance(value, float) else value for value in row])
with duckdb.connect(sys.argv[1], read_only=True) as connection:
    for name in sys.argv[2:]:
        print(name, sorted(map(plain, connection.execute(f"SELECT * EXCLUDE (run) FROM {name}").fetchall())))
"""


def told(directory: Path, python: str = sys.executable) -> str:
    """Every row of every view, as a client has it that knows nothing of us and stands in another folder."""
    done = ran(
        [python, "-c", ANSWER, directory / CATALOGUE, *VIEWS],
        cwd=directory.anchor,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def moved(finished: Path, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A copy whose original is gone, and what its views said there."""
    here = tmp_path / "here" / "run"
    shutil.copytree(finished, here)
    publish(here)
    said = told(here)
    there = tmp_path / "there" / "another"
    shutil.copytree(here, there)
    here.parent.rename(tmp_path / "gone")
    yield there, said


def test_every_view_of_a_copied_run_answers_from_its_own_files(moved: tuple[Path, str]) -> None:
    there, said = moved
    assert told(there) == said
    assert said.count("\n") == len(VIEWS) and "code_o" in said


def test_pandas_reads_every_view_of_a_copied_run(moved: tuple[Path, str]) -> None:
    there, _ = moved
    with duckdb.connect(str(there / CATALOGUE), read_only=True) as connection:
        for name in VIEWS:
            rows = connection.execute(f"SELECT * FROM {name}").fetchall()
            frame = connection.execute(f"SELECT * FROM {name}").df()
            assert len(frame) == len(rows) and list(frame) == [each[0] for each in connection.description]


@pytest.mark.foreign
@pytest.mark.thorough
@pytest.mark.parametrize("version", ["1.1.3", "1.4.4"])
def test_an_older_duckdb_says_the_same(
    version: str, moved: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    there, said = moved
    client = tmp_path_factory.mktemp("client")
    ran([sys.executable, "-m", "venv", client], check=True)
    python = str(client / "bin" / "python")
    got = ran([python, "-m", "pip", "install", "--quiet", f"duckdb=={version}"])
    if got.returncode:
        pytest.skip(f"duckdb {version} cannot be had: {got.stderr.strip()[-200:]}")
    assert told(there, python) == said


@pytest.mark.foreign
@pytest.mark.thorough
@pytest.mark.parametrize("version", ["1.4.4", "1.5.6"])
def test_the_command_line_of_duckdb_reads_a_copied_run(
    version: str, moved: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    there, client = moved[0], tmp_path_factory.mktemp("client")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", client]
    got = ran([*pip, f"duckdb-cli=={version}"])
    if got.returncode:
        pytest.skip(f"duckdb-cli {version} cannot be had: {got.stderr.strip()[-200:]}")
    (binary,) = (
        path for path in client.rglob("duckdb") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
    )
    binary.chmod(0o755)
    with Catalogue(there) as catalogue:
        rows = {name: catalogue.rows(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in VIEWS}
    counted = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in VIEWS)
    command = [binary, "-readonly", "-csv", "-noheader", there / CATALOGUE, counted]
    done = ran(command, cwd=there.anchor)
    assert done.returncode == 0, done.stderr
    assert dict(line.split(",") for line in done.stdout.split()) == {name: str(n) for name, n in rows.items()}


def test_rows_that_a_catalogue_does_not_hold_are_never_another_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = write_run(tmp_path / "held" / "run")
    publish(held)
    monkeypatch.setattr(publication, "HELD_BYTES", 0)
    run = write_run(tmp_path / "run")
    publish(run)
    assert told(run) == told(held), "at its place it reads them in the run's files"
    shutil.copytree(run, tmp_path / "copy")
    with duckdb.connect(tmp_path / "copy" / CATALOGUE, read_only=True) as connection:
        for name in (
            "proposals",
            "problems",
            "attempts",
            "evaluation_items",
            "tables.attempts",
            "figures_type",
        ):
            with pytest.raises(duckdb.Error, match=r"lie in files of .*/run, .* ask with populora query"):
                connection.execute(f"FROM {name}").fetchall()
        for name in ("members", "matches", "evaluations", "stages", "ratings", "tables.updates"):
            assert connection.execute(f"SELECT count(*) FROM {name}").fetchone() != (0,), name
    with Catalogue(tmp_path / "copy") as catalogue:
        assert len(catalogue.rows("FROM attempts")) == 4, "our own command makes it for the place where it is"


@pytest.mark.parametrize(
    "largest",
    [
        pytest.param(publication.HELD_BYTES, id="held"),
        pytest.param(0, id="in files", marks=pytest.mark.thorough),
    ],
)
def test_a_copy_that_is_attached_beside_its_original_shows_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(publication, "HELD_BYTES", largest)
    run = write_run(tmp_path / "run")
    publish(run)
    shutil.copytree(run, tmp_path / "copy")
    in_files = ["tables.problems", "tables.attempts"] + ["tokens", "problems", "attempts"] * (not largest)
    with duckdb.connect() as connection:
        for name in ("run", "copy"):
            connection.execute(f"ATTACH '{tmp_path / name / CATALOGUE}' AS {name} (READ_ONLY)")
        for view in in_files:
            with pytest.raises(duckdb.Error, match=r"lie in files of .*/run, .* ask with populora query"):
                connection.execute(f"FROM copy.{view}").fetchall()
        for view in {"tokens", "problems", "attempts", "members"}.difference(in_files):
            assert connection.execute(f"FROM copy.{view}").fetchall()
        connection.execute("DETACH copy")
        assert all(connection.execute(f"FROM run.{view}").fetchall() for view in in_files)


def rows(catalogue: Catalogue) -> dict[str, list[str]]:
    return {name: sorted(map(repr, catalogue.rows(f"FROM {name}"))) for name in (*VIEWS, *HELD)}


def drawn_again(generation: int) -> dict[str, list[dict]]:
    """What `match` could have given."""
    matches = [row | {"weight": 0.25} for row in generation_tables(generation)["match"]["matches"]]
    return {"matches": matches}


CHANGES: list[Callable[[Path], object]] = [
    lambda run: [commit_stage(run, 3, stage, tables) for stage, tables in generation_tables(3).items()],
    lambda run: commit_stage(run, 1, "match", drawn_again(1)),
    lambda run: shutil.rmtree(stage_dir(run, 2, "grade")),
    lambda run: commit_stage(run, 2, "grade", generation_tables(2)["grade"]),
    lambda run: (stage_dir(run, 1, "solve") / "attempts.parquet").unlink(),
    lambda run: compact(run, generations=1),
    lambda run: shutil.rmtree(run / "generations" / "0003"),
    lambda run: None,
]


@pytest.mark.parametrize("largest", [publication.HELD_BYTES, 0], ids=["held", "in files"])
def test_whatever_changed_it_says_what_one_made_anew_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(publication, "HELD_BYTES", largest)
    run = write_run(tmp_path / "run")
    publish(run)
    for change in CHANGES:
        change(run)
        with Catalogue(run) as taken_over:
            assert not stale(run)
            found = rows(taken_over)
        (run / CATALOGUE).unlink()
        with Catalogue(run) as made_anew:
            assert found == rows(made_anew)
        with Catalogue(run, generations=range(10)) as in_memory:
            assert found == rows(in_memory)


def test_a_file_that_somebody_changed_is_not_gone_on_from(tmp_path: Path) -> None:
    """A file of somebody else is not gone on from: its rows could be of anything."""
    run = write_run(tmp_path / "run")
    publish(run)
    with duckdb.connect(run / CATALOGUE) as connection:
        connection.execute("UPDATE tables.matches SET weight = 99")
    assert stale(run)
    with Catalogue(run) as catalogue:
        assert catalogue.rows("FROM matches WHERE weight = 99") == []


def without_comment(catalogue: Path) -> list[tuple[str]]:
    with duckdb.connect(catalogue, read_only=True) as connection:
        return connection.execute(
            "SELECT view_name FROM duckdb_views() "
            f"WHERE comment IS NULL AND NOT internal AND schema_name <> '{RECENT}' UNION ALL "
            "SELECT table_name FROM duckdb_tables() WHERE comment IS NULL UNION ALL "
            "SELECT table_name || '.' || column_name FROM duckdb_columns() WHERE comment IS NULL "
            f"AND NOT internal AND table_name <> 'source' AND schema_name <> '{RECENT}'"
        ).fetchall()


def test_every_view_and_table_and_each_of_their_columns_has_a_comment(tmp_path: Path) -> None:
    assert without_comment(publish(write_run(tmp_path / "run"))) == []


@pytest.mark.parametrize("largest", [publication.HELD_BYTES, 0], ids=["held", "in files"])
def test_comments_stay_as_the_catalogue_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(publication, "HELD_BYTES", largest)
    run = write_run(tmp_path / "run", generations=1)
    assert without_comment(publish(run)) == []
    for stage, tables in generation_tables(2).items():
        commit_stage(run, 2, stage, tables)
    assert without_comment(publish(run)) == []
