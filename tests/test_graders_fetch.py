"""Rows are fetched at the pinned revision, or taken from files, and kept with a checksum; what is missing is said."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmark_rows import ROWS
from typer.testing import CliRunner

from flows.cli import app
from populora_core.benchmarks import fetch as module
from populora_core.benchmarks.fetch import FOLDER_VARIABLE, fetch, fetched_file, folder
from populora_core.benchmarks.items import load_items
from populora_core.benchmarks.suite import Entry, load_suite
from populora_core.support.errors import BenchmarkError

ROOT = Path(__file__).resolve().parent.parent
ENTRIES = {
    entry.benchmark: entry for entry in load_suite(ROOT / "configs" / "suites" / "paper.toml").benchmarks
}


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for fetched rows, private to a test."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "kept"))
    return folder()


def unpinned(name: str) -> Entry:
    """The entry without the checksum of the real file."""
    return ENTRIES[name].model_copy(update={"sha256": None})


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", sorted(ROWS))
def test_rows_given_as_json_lines_are_kept_as_they_are(name: str, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "given" / f"{name}.jsonl", ROWS[name])
    record = fetch(unpinned(name), tmp_path / "given")
    assert record.rows == len(ROWS[name]) and record.given
    assert fetched_file(unpinned(name)).read_bytes() == source.read_bytes()
    assert record.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert [item.fields for item in load_items(unpinned(name))] == ROWS[name]


@pytest.mark.parametrize("name", ["math500", "gsm8k", "olympiadbench", "livecodebench"])
def test_rows_given_as_parquet_are_taken(name: str, tmp_path: Path) -> None:
    path = tmp_path / "given" / "test-00000-of-00001.parquet"
    path.parent.mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS[name]), path)
    fetch(unpinned(name), path.parent)
    assert [item.fields for item in load_items(unpinned(name))] == ROWS[name]


def test_the_published_files_are_found_packed_or_not(tmp_path: Path) -> None:
    write_lines(tmp_path / "a" / "HumanEvalPlus.jsonl.gz", ROWS["humaneval_plus"])
    write_lines(tmp_path / "b" / "HumanEvalPlus.jsonl", ROWS["humaneval_plus"])
    write_lines(tmp_path / "b" / "something.jsonl", [{"else": 1}])
    one, other = (fetch(unpinned("humaneval_plus"), tmp_path / name) for name in ("a", "b"))
    assert one == other


def test_all_files_of_a_release_are_taken_in_order(tmp_path: Path) -> None:
    first = ROWS["livecodebench"][0]
    for number, name in enumerate(("test", "test2", "test3", "test4", "test5", "test6")):
        row = first | {"question_id": f"q{number}"}
        write_lines(tmp_path / f"{name}.jsonl", [row])
    fetch(unpinned("livecodebench"), tmp_path)
    ids = [item.item_id for item in load_items(unpinned("livecodebench"))]
    assert ids == ["q0", "q1", "q2", "q3", "q4"]  # the sixth file belongs to a later release


def test_a_wrong_file_is_refused_and_what_was_kept_stays(tmp_path: Path) -> None:
    entry = unpinned("gsm8k")
    fetch(entry, write_lines(tmp_path / "right.jsonl", ROWS["gsm8k"]))
    kept = fetched_file(entry).read_bytes()
    with pytest.raises(BenchmarkError, match="has no column 'answer'"):
        fetch(entry, write_lines(tmp_path / "wrong.jsonl", [{"question": "?"}]))
    assert fetched_file(entry).read_bytes() == kept
    assert sorted(path.name for path in folder().iterdir()) == ["gsm8k.jsonl", "gsm8k.source.json"]


def test_a_file_of_another_release_is_refused_by_its_checksum(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "HumanEvalPlus.jsonl", ROWS["humaneval_plus"])
    with pytest.raises(BenchmarkError, match=str(ENTRIES["humaneval_plus"].sha256)):
        fetch(ENTRIES["humaneval_plus"], path)
    assert list(folder().iterdir()) == []


def test_a_missing_data_set_says_what_to_download_and_where_to_put_it() -> None:
    for name, entry in ENTRIES.items():
        with pytest.raises(BenchmarkError) as caught:
            load_items(entry)
        message = str(caught.value)
        assert str(folder() / f"{name}.jsonl") in message
        assert (
            f"populora suite fetch {name}" in message
            and f"populora suite fetch {name} --from FOLDER" in message
        )
        assert entry.dataset in message
        assert entry.dataset.startswith("https://") or str(entry.revision) in message


def test_rows_that_changed_since_they_were_fetched_are_refused(tmp_path: Path) -> None:
    entry = unpinned("gsm8k")
    fetch(entry, write_lines(tmp_path / "gsm8k.jsonl", ROWS["gsm8k"]))
    path = fetched_file(entry)
    path.write_text(path.read_text().replace("18", "19"))
    with pytest.raises(BenchmarkError, match="has changed since it was fetched"):
        load_items(entry)


def test_a_folder_without_the_files_says_which_it_should_hold(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", ROWS["gsm8k"])
    write_lines(tmp_path / "b.jsonl", ROWS["gsm8k"])
    with pytest.raises(BenchmarkError, match=r"test\.jsonl, test2\.jsonl"):
        fetch(ENTRIES["livecodebench"], tmp_path)
    with pytest.raises(BenchmarkError, match=r"Came: a\.jsonl, b\.jsonl"):
        fetch(ENTRIES["gsm8k"], tmp_path)
    with pytest.raises(BenchmarkError, match="no such folder"):
        fetch(ENTRIES["gsm8k"], tmp_path / "nowhere")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "MbppPlus.jsonl.gz").write_bytes(b"no archive")
    with pytest.raises(BenchmarkError, match="cannot be unpacked"):
        fetch(unpinned("mbpp_plus"), tmp_path)


# Through the library


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """What `datasets.load_dataset` was called with; it answers with the fixture's rows."""
    datasets = pytest.importorskip("datasets", reason="needs the extra `evaluation`")
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def load_dataset(*arguments: Any, **named: Any) -> Any:
        calls.append((arguments, {key: value for key, value in named.items() if key != "cache_dir"}))
        if arguments[0] == "text":
            name = "livecodebench" if "livecodebench" in named["data_files"][0] else "humaneval_plus"
            return [{"text": json.dumps(row)} for row in ROWS[name]]
        (name,) = (name for name, entry in ENTRIES.items() if entry.dataset == arguments[0])
        return datasets.Dataset.from_list(ROWS[name])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


@pytest.mark.parametrize("name", ["aime24", "aime25", "math500", "minerva", "gsm8k", "olympiadbench"])
def test_a_data_set_of_the_hub_is_asked_for_at_its_revision(name: str, asked: list[Any]) -> None:
    entry = ENTRIES[name]
    record = fetch(entry)
    assert asked == [((entry.dataset, entry.config), {"split": entry.split, "revision": entry.revision})]
    assert record.revision == entry.revision and not record.given
    assert [item.fields for item in load_items(entry)] == ROWS[name]


def test_files_are_asked_for_line_by_line(asked: list[Any]) -> None:
    fetch(ENTRIES["livecodebench"])
    fetch(unpinned("humaneval_plus"))
    revision = ENTRIES["livecodebench"].revision
    hub = f"hf://datasets/livecodebench/code_generation_lite@{revision}/test"
    files = [f"{hub}{number}.jsonl" for number in ("", 2, 3, 4, 5)]
    assert asked == [
        (("text",), {"data_files": files, "split": "train"}),
        (("text",), {"data_files": [ENTRIES["humaneval_plus"].dataset], "split": "train"}),
    ]


def test_the_library_really_reads_lines_of_mixed_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets", reason="needs the extra `evaluation`")
    path = write_lines(tmp_path / "HumanEvalPlus.jsonl.gz", ROWS["humaneval_plus"])
    monkeypatch.setattr(module, "_file_addresses", lambda entry: (str(path),))
    fetch(unpinned("humaneval_plus"))
    assert [item.fields for item in load_items(unpinned("humaneval_plus"))] == ROWS["humaneval_plus"]
    assert fetched_file(unpinned("humaneval_plus")).read_bytes() == gzip.decompress(path.read_bytes())
    assert sorted(path.name for path in folder().iterdir()) == [
        "humaneval_plus.jsonl",
        "humaneval_plus.source.json",
    ]


def test_a_hub_that_cannot_be_reached_says_how_to_do_without(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(BenchmarkError, match="no route") as caught:
        fetch(ENTRIES["gsm8k"])
    assert "--from FOLDER" in str(caught.value)


def test_rows_of_another_revision_than_the_suite_names_are_refused(asked: list[Any]) -> None:
    fetch(ENTRIES["gsm8k"])
    later = ENTRIES["gsm8k"].model_copy(update={"revision": "0" * 40})
    with pytest.raises(BenchmarkError, match="another data set than the suite names"):
        fetched_file(later)


# The command line


def test_a_benchmark_is_fetched_by_name_and_a_suite_from_one_folder_a_benchmark(tmp_path: Path) -> None:
    write_lines(tmp_path / "gsm8k" / "test.jsonl", ROWS["gsm8k"])
    write_lines(tmp_path / "math500" / "test.jsonl", ROWS["math500"])
    one = CliRunner().invoke(app, ["suite", "fetch", "gsm8k", "--from", str(tmp_path / "gsm8k")])
    assert one.exit_code == 0 and "2 problems" in one.output
    all_there = CliRunner().invoke(app, ["suite", "fetch", "paper", "--from", str(tmp_path)])
    assert all_there.exit_code == 0, all_there.output
    assert {path.stem for path in folder().glob("*.jsonl")} == {"gsm8k", "math500"}


def test_an_unknown_name_lists_what_there_is() -> None:
    done = CliRunner().invoke(app, ["suite", "fetch", "nothing"])
    assert isinstance(done.exception, BenchmarkError)
    assert "paper" in str(done.exception) and "olympiadbench" in str(done.exception)
