"""A catalogue opens wherever its run lies and however far it is, and is published again where it is stale."""

from __future__ import annotations

import shutil

import pytest
from store_run import commit_stage, generation_tables, write_run

from populora_core.store.catalogue import Catalogue, publish, stale
from populora_core.store.manifest import stage_dir
from populora_core.support.errors import ArtifactError, PopuloraError


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


def test_a_generation_in_progress_shows_what_is_committed(tmp_path):
    write_run(tmp_path, generations=1)
    for stage in ("update", "grade"):
        shutil.rmtree(stage_dir(tmp_path, 1, stage))
    with Catalogue(tmp_path) as opened:
        assert opened.rows("SELECT DISTINCT completion_tokens, verdict, reward FROM attempts") == [
            {"completion_tokens": 2, "verdict": None, "reward": None}
        ]
        assert len(opened.query("FROM updates").df()) == 0


def test_half_a_stage_is_not_shown(tmp_path):
    write_run(tmp_path, generations=2)
    (stage_dir(tmp_path, 1, "match") / "manifest.json").unlink()
    (stage_dir(tmp_path, 2, "propose") / "proposals.parquet").write_bytes(b"PAR1")
    with Catalogue(tmp_path) as opened:
        assert opened.query("SELECT generation FROM matches").df()["generation"].tolist() == [2]
        assert set(opened.query("SELECT generation FROM proposals").df()["generation"]) == {1}
