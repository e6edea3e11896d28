"""Fetched rows of benchmarks: one folder of the user's, and a record of where each file is from.

Rows are JSON lines in the benchmark's published schema; the record has their sha256, which is checked on every load.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from populora_core.benchmarks.suite import Entry, Suite
from populora_core.support.digest import read_sha256
from populora_core.support.errors import BenchmarkError
from populora_core.support.received import read_json
from populora_core.support.user_cache import user_folder

FOLDER_VARIABLE = "POPULORA_BENCHMARKS"

RELEASES = {
    ("livecodebench/code_generation_lite", "release_v5"): (
        "test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl",
    ),
}  # fmt: skip
"""Data set and config -> its files, where the hub would choose them by running a script of the data set's."""


@dataclass(frozen=True, slots=True)
class RowsRecord:
    """The origin of a benchmark's rows.

    Attributes:
        given: True if a person supplied the files, whose revision we then cannot know.
        sha256: of the file with the rows.
    """

    benchmark: str
    dataset: str
    config: str | None
    split: str
    revision: str | None
    given: bool
    rows: int
    sha256: str


def folder() -> Path:
    """The folder of fetched rows: $POPULORA_BENCHMARKS, or populora/benchmarks among the user's data.

    Raises:
        ConfigError: see `user_folder`.
    """
    return user_folder(FOLDER_VARIABLE, "XDG_DATA_HOME", ".local/share", "populora/benchmarks")


def fetched_file(entry: Entry) -> Path:
    """The file with the rows of a benchmark.

    Raises:
        BenchmarkError: it is not there, says what to download and where to put it; or it is of another data set or
            revision, or not what was fetched.
    """
    path, record_path = kept_at(entry)
    try:
        record = RowsRecord(**read_json(record_path))
        sha256 = read_sha256(path)
    except (OSError, ValueError, TypeError):
        raise BenchmarkError(
            f"the rows of {entry.benchmark} are not on this machine",
            expected=str(path),
            fix=how_to_get(entry),
        ) from None
    asked = (entry.dataset, entry.config, entry.split, entry.revision)
    revision = entry.revision if record.given else record.revision  # of given files we cannot know it
    came = (record.dataset, record.config, record.split, revision)
    if asked != came:
        raise BenchmarkError(
            f"the rows of {entry.benchmark} are of another data set than the suite names",
            expected=" ".join(map(str, asked)),
            got=" ".join(map(str, came)),
            fix=how_to_get(entry),
        )
    if sha256 != record.sha256:
        raise BenchmarkError(
            f"{path} has changed since it was fetched",
            expected=f"sha256 {record.sha256}",
            got=f"sha256 {sha256}",
            fix=how_to_get(entry),
        )
    return path


def unfetched(suite: Suite) -> list[Entry]:
    """The benchmarks of a suite whose rows have to be fetched first."""
    return [
        entry
        for entry in suite.benchmarks
        if entry.here is None and not all(path.is_file() for path in kept_at(entry))
    ]


def kept_at(entry: Entry) -> tuple[Path, Path]:
    """The files of a benchmark's rows and of their record."""
    name = entry.benchmark.replace(":", ".")
    return folder() / f"{name}.jsonl", folder() / f"{name}.source.json"


def published_files(entry: Entry) -> tuple[str, ...]:
    """The names of an entry's files, where the hub does not tell them by config and split."""
    if is_address(entry):
        return (entry.dataset.rpartition("/")[2],)
    return RELEASES.get((entry.dataset, entry.config or ""), ())


def is_address(entry: Entry) -> bool:
    """True if the data set is a single file, elsewhere than on the hub."""
    return entry.dataset.startswith("https://")


def how_to_get(entry: Entry) -> str:
    """The ways to get a benchmark's rows, for an error."""
    files = ", ".join(published_files(entry)) or "its files of Parquet or JSON lines"
    place = " ".join(filter(None, (entry.dataset, entry.config, entry.split, entry.revision)))
    return (
        f"populora suite fetch {entry.benchmark} (of a suite of your own: populora suite fetch FILE.toml); without a "
        f"network: download {files} of {place} on another machine, put them into a folder and run populora suite fetch "
        f"{entry.benchmark} --from FOLDER"
    )
