"""Rows are fetched at the pinned revision, or taken from files, and kept with a checksum; what is missing is said."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmark_rows import ROWS
from hub_server import Hub, serving
from published_data import FOLDER, published
from typer.testing import CliRunner

from populora_core.benchmarks.fetched import FOLDER_VARIABLE, fetched_file, folder
from populora_core.benchmarks.items import load_items
from populora_core.benchmarks.suite import Entry, load_suite
from populora_core.commands.app import app
from populora_core.support.errors import BenchmarkError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.public_benchmarks import fetch as module
from populora_plugins.public_benchmarks.commands import SUITES, entries_named
from populora_plugins.public_benchmarks.fetch import fetch

ENTRIES = {
    entry.benchmark: entry
    for entry in load_suite(REPOSITORY / "configs" / "suites" / "paper.toml").benchmarks
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
    with pytest.raises(BenchmarkError, match="no usable column 'answer'"):
        fetch(entry, write_lines(tmp_path / "wrong.jsonl", [{"question": "?"}]))
    assert fetched_file(entry).read_bytes() == kept
    assert sorted(path.name for path in folder().iterdir()) == ["gsm8k.jsonl", "gsm8k.source.json"]


def test_a_file_of_another_release_is_refused_by_its_checksum(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "HumanEvalPlus.jsonl", ROWS["humaneval_plus"])
    with pytest.raises(BenchmarkError, match=str(ENTRIES["humaneval_plus"].sha256)) as refusal:
        fetch(ENTRIES["humaneval_plus"], path)
    assert str(refusal.value).startswith(f"{path} is not the file")
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
    with pytest.raises(BenchmarkError, match=r"Got: a\.jsonl, b\.jsonl"):
        fetch(ENTRIES["gsm8k"], tmp_path)
    with pytest.raises(BenchmarkError, match="no such folder"):
        fetch(ENTRIES["gsm8k"], tmp_path / "nowhere")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "MbppPlus.jsonl.gz").write_bytes(b"no archive")
    with pytest.raises(BenchmarkError, match="cannot be unpacked"):
        fetch(unpinned("mbpp_plus"), tmp_path)


# From the hub


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize(
    ("name", "file", "others"),
    [
        ("aime24", "test-00000-of-00001.parquet", []),
        ("math500", "test.jsonl", []),
        ("minerva", "data/test-00000-of-00001.parquet", ["data/train-00000-of-00001.parquet"]),
        (
            "gsm8k",
            "main/test-00000-of-00001.parquet",
            ["main/train-00000-of-00001.parquet", "socratic/test-00000-of-00001.parquet"],
        ),
        (
            "olympiadbench",
            "OlympiadBench/OE_TO_maths_en_COMP/OE_TO_maths_en_COMP.parquet",
            ["OlympiadBench/OE_MM_maths_en_COMP/OE_MM_maths_en_COMP.parquet"],
        ),
    ],
)
def test_a_data_set_of_the_hub_is_fetched_at_its_revision(
    name: str, file: str, others: list[str], hub: Hub
) -> None:
    entry = ENTRIES[name]
    pinned = f"{entry.dataset}@{entry.revision}"
    write = as_lines if file.endswith(".jsonl") else as_parquet
    hub.files = {
        f"{pinned}/README.md": b"about",
        f"{pinned}/{file}": write(ROWS[name]),
        **{f"{pinned}/{other}": write([{"wrong": 1}]) for other in others},
        f"{entry.dataset}@main/{file}": write([{"newer": 1}]),
    }
    record = fetch(entry)
    assert record.revision == entry.revision and not record.given
    assert [item.fields for item in load_items(entry)] == ROWS[name]
    assert sorted(path.name for path in folder().iterdir()) == [f"{name}.jsonl", f"{name}.source.json"]


def test_of_a_release_its_own_files_are_fetched_line_by_line(hub: Hub) -> None:
    entry = ENTRIES["livecodebench"]
    row = ROWS["livecodebench"][0]
    files = [f"test{number}.jsonl" for number in ("", 2, 3, 4, 5, 6)]
    hub.files = {
        f"{entry.dataset}@{entry.revision}/{file}": as_lines([row | {"question_id": file}]) for file in files
    }
    fetch(entry)
    assert [item.item_id for item in load_items(entry)] == files[:5]
    assert len(hub.fetched()) == 5


def test_a_file_beside_the_hub_is_fetched_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / "HumanEvalPlus.jsonl.gz", ROWS["humaneval_plus"])
    monkeypatch.setattr(module, "urlopen", lambda address, timeout: urlopen(path.as_uri()))
    fetch(unpinned("humaneval_plus"))
    assert [item.fields for item in load_items(unpinned("humaneval_plus"))] == ROWS["humaneval_plus"]
    assert fetched_file(unpinned("humaneval_plus")).read_bytes() == gzip.decompress(path.read_bytes())


def test_a_hub_that_has_nothing_says_how_to_do_without(hub: Hub) -> None:
    with pytest.raises(BenchmarkError, match="could not be fetched") as caught:
        fetch(ENTRIES["gsm8k"])
    assert "--from FOLDER" in str(caught.value)
    assert list(folder().iterdir()) == []


def test_a_copy_of_the_data_set_made_elsewhere_is_taken_as_it_is(tmp_path: Path) -> None:
    for config in ("main", "socratic"):
        for split in ("test", "train"):
            wrong = [{"question": "?"}]
            file = tmp_path / config / f"{split}-00000-of-00001.parquet"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(as_parquet(ROWS["gsm8k"] if (config, split) == ("main", "test") else wrong))
    fetch(ENTRIES["gsm8k"], tmp_path)
    assert [item.fields for item in load_items(ENTRIES["gsm8k"])] == ROWS["gsm8k"]


def test_rows_of_another_revision_than_the_suite_names_are_refused(hub: Hub) -> None:
    entry = ENTRIES["gsm8k"]
    hub.files = {f"{entry.dataset}@{entry.revision}/main/test.jsonl": as_lines(ROWS["gsm8k"])}
    fetch(entry)
    later = ENTRIES["gsm8k"].model_copy(update={"revision": "0" * 40})
    with pytest.raises(BenchmarkError, match="another data set than the suite names"):
        fetched_file(later)


def test_given_rows_are_those_of_one_data_set_config_and_split_at_any_revision(tmp_path: Path) -> None:
    entry = unpinned("gsm8k")
    fetch(entry, write_lines(tmp_path / "gsm8k.jsonl", ROWS["gsm8k"]))
    assert fetched_file(entry.model_copy(update={"revision": "0" * 40})).is_file()
    for change in ({"dataset": "mine/gsm8k"}, {"config": "socratic"}, {"split": "train"}):
        with pytest.raises(BenchmarkError, match="another data set than the suite names"):
            fetched_file(entry.model_copy(update=change))


# The command line


def test_a_benchmark_is_fetched_by_name_and_a_suite_from_one_folder_a_benchmark(tmp_path: Path) -> None:
    write_lines(tmp_path / "gsm8k" / "test.jsonl", ROWS["gsm8k"])
    write_lines(tmp_path / "math500" / "test.jsonl", ROWS["math500"])
    one = CliRunner().invoke(app, ["suite", "fetch", "gsm8k", "--from", str(tmp_path / "gsm8k")])
    assert one.exit_code == 0 and "2 problems" in one.output
    all_there = CliRunner().invoke(app, ["suite", "fetch", "paper", "--from", str(tmp_path)])
    assert all_there.exit_code == 0, all_there.output
    assert {path.stem for path in folder().glob("*.jsonl")} == {"gsm8k", "math500"}


def test_rows_that_the_suite_pins_otherwise_are_missing(tmp_path: Path) -> None:
    entry = unpinned("gsm8k")
    fetch(entry, write_lines(tmp_path / "old.jsonl", ROWS["gsm8k"]))
    new = write_lines(tmp_path / "new.jsonl", ROWS["gsm8k"][:1])
    own = tmp_path / "own.toml"
    own.write_text(
        f'suite = "own"\n[[benchmarks]]\nbenchmark = "gsm8k"\ndataset = "{entry.dataset}"\n'
        f'config = "{entry.config}"\nsha256 = "{hashlib.sha256(new.read_bytes()).hexdigest()}"\n'
    )
    done = CliRunner().invoke(app, ["suite", "fetch", str(own), "--missing", "--from", str(new)])
    assert done.exit_code == 0, done.output
    assert fetched_file(entry).read_bytes() == new.read_bytes()


def test_plain_humaneval_is_a_suite_whose_published_file_has_the_pinned_checksum(tmp_path: Path) -> None:
    rows = published("HumanEval.jsonl.gz")
    file = str(FOLDER / "HumanEval.jsonl.gz")
    done = CliRunner().invoke(app, ["suite", "fetch", "humaneval", "--from", file])
    assert done.exit_code == 0 and "164 problems" in done.output, done.output
    (entry,) = load_suite(REPOSITORY / "configs" / "suites" / "humaneval.toml").benchmarks
    assert str(entry.revision) in entry.dataset
    assert [item.fields for item in load_items(entry)] == rows
    rows[0]["test"] += "\n"
    other = write_lines(tmp_path / "HumanEval.jsonl", rows)
    refused = CliRunner().invoke(app, ["suite", "fetch", "humaneval", "--from", str(other)])
    assert isinstance(refused.exception, BenchmarkError) and str(entry.sha256) in str(refused.exception)


@pytest.mark.parametrize("suite", sorted(SUITES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_command_that_an_error_names_finds_every_benchmark_of_every_shipped_suite(suite: Path) -> None:
    for entry in load_suite(suite).benchmarks:
        if entry.here is None:
            with pytest.raises(BenchmarkError) as caught:
                load_items(entry)
            name = caught.value.fix.removeprefix("populora suite fetch ").split()[0]
            for found in entries_named(name, SUITES / "paper.toml"):
                assert source_of(found) == source_of(entry)


def source_of(entry: Entry) -> tuple[str | None, ...]:
    return entry.benchmark, entry.dataset, entry.config, entry.split, entry.revision, entry.sha256


def test_a_benchmark_is_looked_for_in_the_named_suite_first(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('suite = "own"\n[[benchmarks]]\nbenchmark = "gsm8k"\ndataset = "mine/gsm8k"\n')
    assert [entry.dataset for entry in entries_named("gsm8k", own)] == ["mine/gsm8k"]
    assert [entry.dataset for entry in entries_named("aime24", own)] == ["math-ai/aime24"]


def test_rows_of_the_users_own_are_told_and_not_fetched(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('suite = "own"\n[[benchmarks]]\nbenchmark = "gsm8k"\ndataset = "file:rows.jsonl"\n')
    done = CliRunner().invoke(app, ["suite", "fetch", str(own)])
    assert done.exit_code == 0
    assert f"gsm8k            the rows are your own, {tmp_path / 'rows.jsonl'}: nothing" in done.output


def test_what_comes_with_the_project_is_not_fetched() -> None:
    with pytest.raises(BenchmarkError, match="no benchmark 'tiny_code_o'"):
        entries_named("tiny_code_o", SUITES / "tiny.toml")


def test_an_unknown_name_lists_what_there_is() -> None:
    done = CliRunner().invoke(app, ["suite", "fetch", "nothing"])
    assert isinstance(done.exception, BenchmarkError)
    assert "paper" in str(done.exception) and "olympiadbench" in str(done.exception)
