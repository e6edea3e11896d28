"""A stage folder is committed whole or not at all, and nothing that was committed is ever lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from store_run import STUDENT, TEACHER, adapter_row, commit_stage, generation_tables, member_row

from populora_core.store.artifacts import StageWriter, link_tree, read_table, supersede, sweep
from populora_core.store.hashing import content_hash
from populora_core.store.manifest import committed_stages, generation_dir, intact, read_manifest, stage_dir
from populora_core.store.schema import to_table
from populora_core.store.sql import refusal_told
from populora_core.support import durable
from populora_core.support.durable import disk_full, write_atomically
from populora_core.support.errors import ArtifactError, SchemaError
from populora_core.support.processes import Owner

MATCHES = generation_tables(3)["match"]["matches"]
FULL = OSError(errno.ENOSPC, "No space left on device")


def commit_match(run_dir: Path, weight: float = 0.25):
    return commit_stage(run_dir, 3, "match", {"matches": [MATCHES[0] | {"weight": weight}]})


def visible(folder: Path) -> list[str]:
    """Every file below the folder, hidden ones too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


# Commit


def test_a_committed_stage_holds_its_tables_and_its_manifest(tmp_path):
    commit_match(tmp_path)
    assert visible(tmp_path) == [
        "generations/0003/match/manifest.json",
        "generations/0003/match/matches.parquet",
    ]
    assert read_table(stage_dir(tmp_path, 3, "match"), "matches").to_pylist() == MATCHES


def test_only_the_columns_that_are_asked_for_are_read(tmp_path):
    commit_match(tmp_path)
    table = read_table(stage_dir(tmp_path, 3, "match"), "matches", ("student_id", "match_id"))
    assert table.column_names == ["student_id", "match_id"]
    assert table.to_pylist() == [{name: row[name] for name in ("student_id", "match_id")} for row in MATCHES]


def test_a_table_is_recorded_by_its_rows_and_another_file_by_its_bytes(tmp_path):
    with StageWriter(tmp_path, 0, "found") as writer:
        writer.write_table("adapters", to_table("adapters", [adapter_row(0, TEACHER)]))
        writer.path("members.safetensors").write_bytes(b"weights")
        records = {record.name: record for record in writer.records()}
    table, weights = records["adapters.parquet"], records["members.safetensors"]
    assert (table.rows, table.content) == (1, content_hash(to_table("adapters", [adapter_row(0, TEACHER)])))
    assert (weights.rows, weights.bytes, weights.content) == (None, 7, weights.sha256)


def test_scratch_files_are_not_committed(tmp_path):
    with StageWriter(tmp_path, 3, "match") as writer:
        (writer.scratch / "part0").write_bytes(b"x")
        assert writer.records() == ()


def test_leaving_without_a_commit_leaves_nothing(tmp_path):
    with StageWriter(tmp_path, 3, "match") as writer:
        writer.write_table("matches", to_table("matches", MATCHES))
    assert visible(tmp_path) == []
    assert list(generation_dir(tmp_path, 3).iterdir()) == []


def test_an_error_in_the_stage_leaves_the_earlier_commit(tmp_path):
    before = commit_match(tmp_path)
    with pytest.raises(ZeroDivisionError), StageWriter(tmp_path, 3, "match") as writer:
        writer.write_table("matches", to_table("matches", []))
        raise ZeroDivisionError
    assert read_manifest(stage_dir(tmp_path, 3, "match")) == before


def test_a_table_with_other_columns_is_refused(tmp_path):
    with pytest.raises(SchemaError), StageWriter(tmp_path, 3, "match") as writer:
        writer.write_table("matches", pa.table({"generation": [3]}))


def test_a_second_commit_sets_the_first_aside_and_counts_on(tmp_path):
    first = commit_match(tmp_path, weight=0.25)
    second = commit_match(tmp_path, weight=0.5)
    third = commit_match(tmp_path, weight=0.75)
    assert [first.attempt, second.attempt, third.attempt] == [1, 2, 3]
    assert read_manifest(tmp_path / "superseded/0001/generations/0003/match") == first
    assert read_manifest(tmp_path / "superseded/0002/generations/0003/match") == second


def test_the_count_survives_a_truncated_generation_and_a_lost_manifest(tmp_path):
    commit_match(tmp_path)
    supersede(tmp_path, generation_dir(tmp_path, 3))
    assert commit_match(tmp_path).attempt == 2
    (stage_dir(tmp_path, 3, "match") / "manifest.json").write_text("{")
    assert commit_match(tmp_path).attempt == 2  # the damaged one can no longer be counted


# Failures to write


def test_a_full_disk_while_a_table_is_written_is_an_artifact_error(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    before = commit_match(tmp_path)
    with (
        pytest.raises(ArtifactError, match=r"(?s)No space left.*free space on the disk, then resume"),
        StageWriter(tmp_path, 3, "match") as writer,
    ):
        writer.path("matches.parquet").symlink_to("/dev/full")
        writer.write_table("matches", to_table("matches", MATCHES))
    assert read_manifest(stage_dir(tmp_path, 3, "match")) == before
    assert not list(generation_dir(tmp_path, 3).glob(".*"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_that_duckdb_meets_is_an_error_of_the_disk(code: int) -> None:
    """An exceeded quota is one, too."""
    told = f'IO Error: Could not write file "catalogue.duckdb": {os.strerror(code)}'
    with pytest.raises(OSError, match="Could not write file") as met, refusal_told("no catalogue was built"):
        raise duckdb.IOException(told)
    assert disk_full(met.value) and met.value.errno == code


def test_a_full_disk_while_another_file_is_written_is_an_artifact_error(tmp_path):
    with pytest.raises(ArtifactError, match="could not be written"), StageWriter(tmp_path, 3, "match"):
        raise FULL
    assert visible(tmp_path) == []


def test_an_error_that_is_not_the_disk_s_stays_what_it_is(tmp_path):
    with pytest.raises(ConnectionError), StageWriter(tmp_path, 3, "match"):
        raise ConnectionError


@pytest.mark.parametrize("operation", ["fsync", "rename"])
@pytest.mark.parametrize("failing", range(9))
def test_a_commit_that_fails_at_any_operation_loses_nothing(tmp_path, monkeypatch, operation, failing):
    before = commit_match(tmp_path, weight=0.25)
    real, calls = getattr(os, operation), []

    def fail_once(*args):
        calls.append(args)
        if len(calls) == failing + 1:
            raise FULL
        return real(*args)

    monkeypatch.setattr(os, operation, fail_once)
    try:
        after = commit_match(tmp_path, weight=0.5)
    except ArtifactError:
        after = None
    monkeypatch.undo()
    assert (after is None) == (len(calls) == failing + 1)
    places = [stage_dir(tmp_path, 3, "match"), tmp_path / "superseded/0001/generations/0003/match"]
    found = [(place, manifest) for place in places if (manifest := read_manifest(place))]
    assert before in [manifest for _, manifest in found]
    assert all(intact(place, manifest) for place, manifest in found)
    assert not list(generation_dir(tmp_path, 3).glob(".*"))
    assert commit_match(tmp_path, weight=0.5).attempt >= 2


# Damage


def test_a_flipped_bit_is_found_after_the_file_was_found_intact(tmp_path):
    folder, manifest = stage_dir(tmp_path, 3, "match"), commit_match(tmp_path)
    path = folder / "matches.parquet"
    assert intact(folder, manifest)
    flip_last_byte(path)
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))
    assert not intact(folder, manifest)


@pytest.mark.parametrize("damage", ["flipped", "missing", "short"])
def test_a_flipped_bit_and_a_missing_or_short_file_are_found(tmp_path, damage):
    folder, manifest = stage_dir(tmp_path, 3, "match"), commit_match(tmp_path)
    path = folder / "matches.parquet"
    if damage == "flipped":
        flip_last_byte(path)
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    assert not intact(folder, manifest)
    assert len(list(committed_stages(tmp_path))) == (damage == "flipped")  # which reads sizes alone


UNKNOWN = "a field of no manifest"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"files": []}', '"text"', "\xff", UNKNOWN])
def test_a_damaged_manifest_counts_as_none(tmp_path, text):
    commit_match(tmp_path)
    path = stage_dir(tmp_path, 3, "match") / "manifest.json"
    if text == UNKNOWN:
        text = json.dumps(json.loads(path.read_text()) | {"colour": "red"})
    path.write_text(text, encoding="latin-1")
    assert read_manifest(path.parent) is None


def test_reading_a_damaged_table_says_how_to_mend_it(tmp_path):
    commit_match(tmp_path)
    (stage_dir(tmp_path, 3, "match") / "matches.parquet").write_bytes(b"PAR1")
    with pytest.raises(ArtifactError, match="populora resume"):
        read_table(stage_dir(tmp_path, 3, "match"), "matches")


def test_reading_a_table_restores_its_declared_schema(tmp_path):
    commit_stage(tmp_path, 0, "found", {"population": [member_row(0, STUDENT)], "adapters": []})
    written = to_table("population", [member_row(0, STUDENT)])
    assert read_table(stage_dir(tmp_path, 0, "found"), "population").schema.equals(written.schema)


def test_a_run_directory_named_like_a_partition_adds_no_column(tmp_path):
    run_dir = tmp_path / "generation=9"
    commit_match(run_dir)
    assert read_table(stage_dir(run_dir, 3, "match"), "matches").to_pylist() == MATCHES


def test_committed_stages_come_in_the_order_of_generations(tmp_path):
    for generation in (10_000, 9, 1):
        commit_stage(tmp_path, generation, "match", {"matches": MATCHES})
    assert [manifest.generation for _, manifest in committed_stages(tmp_path)] == [1, 9, 10_000]


# Leftovers of killed processes


HOLD = """
import sys
from pathlib import Path
from populora_core.store.artifacts import StageWriter
with StageWriter(Path(sys.argv[1]), 3, "match") as writer:
    writer.path("half").write_bytes(b"x")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_sweep_removes_what_a_killed_process_left_and_nothing_of_a_living_one(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"ready\n"
        assert sweep(tmp_path) == []
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        (left,) = generation_dir(tmp_path, 3).iterdir()
        assert sweep(tmp_path) == [left]
    assert visible(tmp_path) == []


def left_by_an_earlier_process(folder):
    """A folder that an earlier process with the id of this one had begun to write."""
    own = durable.temporary_name(folder, "match")
    left = own.with_name(own.name.replace(f"-{os.getpid()}-", f"-{os.getpid()}-1"))
    left.mkdir()
    return left


def test_a_sweep_knows_a_reused_pid_from_its_first_owner(tmp_path):
    durable.temporary_name(tmp_path, "match").mkdir()
    left = left_by_an_earlier_process(tmp_path)
    assert sweep(tmp_path) == [left]


def test_a_new_folder_takes_away_what_a_killed_process_had_begun_beside_it(tmp_path):
    left_by_an_earlier_process(tmp_path)
    with durable.new_folder(tmp_path / "out") as folder:
        (folder / "file").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_sweep_leaves_other_hosts_and_foreign_names_alone(tmp_path):
    (tmp_path / ".tmp-match-00000000-00000000-1-1-1@another-host").mkdir()
    (tmp_path / ".tmp-notes").mkdir()
    assert sweep(tmp_path) == []


def test_a_sweep_takes_what_another_host_has_not_written_to_for_a_day(tmp_path):
    old, young = (tmp_path / f".tmp-match-0000000{n}-00000000-1-1-1@another-host" for n in range(2))
    for folder in (old, young):
        folder.mkdir()
        (folder / "half").write_bytes(b"x")
    two_days_ago = time.time() - 2 * 86400
    for path in (old / "half", old, young):
        os.utime(path, (two_days_ago, two_days_ago))
    assert sweep(tmp_path) == [old]
    assert young.exists(), "a file in it was written since"


def test_a_sweep_leaves_a_process_of_another_container_alone(tmp_path):
    me = Owner.this_process()
    neighbour = replace(me, namespace=me.namespace + 1, started="1")
    (tmp_path / f".tmp-match-00000000-{neighbour.here}").mkdir()
    assert durable.sweep(tmp_path) == []


def test_a_sweep_leaves_what_another_user_owns_alone(tmp_path, monkeypatch):
    left = left_by_an_earlier_process(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert sweep(tmp_path) == []
    assert left.exists()


def test_several_may_sweep_one_folder(tmp_path, monkeypatch):
    left, remove = left_by_an_earlier_process(tmp_path), shutil.rmtree

    def remove_twice(path):
        remove(path)
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", remove_twice)
    assert sweep(tmp_path) == []
    assert not left.exists()


# Single files and whole trees


def test_a_text_file_is_replaced_whole(tmp_path):
    write_atomically(tmp_path / "run.json", "old")
    write_atomically(tmp_path / "run.json", "new")
    assert (tmp_path / "run.json").read_text() == "new"
    assert visible(tmp_path) == ["run.json"]


def test_a_text_file_stays_when_its_replacement_fails(tmp_path, monkeypatch):
    write_atomically(tmp_path / "run.json", "old")

    def fail(descriptor):
        raise FULL

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ArtifactError):
        write_atomically(tmp_path / "run.json", "new")
    assert (tmp_path / "run.json").read_text() == "old"
    assert visible(tmp_path) == ["run.json"]


def test_a_linked_tree_shares_its_files(tmp_path):
    commit_match(tmp_path / "old")
    link_tree(generation_dir(tmp_path / "old", 3), generation_dir(tmp_path / "new", 3))
    one, other = (stage_dir(tmp_path / run, 3, "match") / "matches.parquet" for run in ("old", "new"))
    assert one.samefile(other)
    assert visible(tmp_path / "new") == visible(tmp_path / "old")


def test_a_tree_is_not_linked_over_another(tmp_path):
    commit_match(tmp_path / "old")
    commit_match(tmp_path / "new")
    with pytest.raises(ArtifactError):
        link_tree(generation_dir(tmp_path / "old", 3), generation_dir(tmp_path / "new", 3))
