"""Rows of public benchmarks: from the hub at a pinned revision, or from files given by hand.

`populora_core.benchmarks.fetched` says where they lie.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from populora_core.benchmarks.benchmark import benchmark
from populora_core.benchmarks.fetched import RowsRecord, how_to_get, is_address, kept_at, published_files
from populora_core.benchmarks.files import READERS, read_rows
from populora_core.benchmarks.suite import Entry
from populora_core.support.digest import read_sha256
from populora_core.support.durable import fsync, sweep, temporary_folder, write_atomically, writing
from populora_core.support.errors import BenchmarkError
from populora_plugins.public_benchmarks.reasoning_gym import PREFIX, generated

SUFFIXES = tuple(suffix + packed for suffix in READERS for packed in ("", ".gz"))


def fetch(entry: Entry, given: Path | None = None) -> RowsRecord:
    """Get the rows of a benchmark, check them against its schema, and keep them.

    Args:
        given: a file or a folder with the benchmark's published files; None to ask the hub.

    Raises:
        BenchmarkError: they cannot be had, or are not in the published schema; what was kept before stays.
    """
    if entry.here is not None:
        raise BenchmarkError(f"{entry.benchmark} is at {entry.here}", fix="there is nothing to fetch")
    path, record_path = kept_at(entry)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    with temporary_folder(path.parent, entry.benchmark) as workshop:
        rows = workshop / path.name
        files = _download(entry, workshop) if given is None else _choose(entry, given)
        _write_lines(rows, _lines(files, workshop))
        items = benchmark(entry.benchmark).load(read_rows(rows, entry.sha256, str(given or entry.dataset)))
        record = RowsRecord(
            entry.benchmark,
            entry.dataset,
            entry.config,
            entry.split,
            entry.revision,
            given is not None,
            len(items),
            read_sha256(rows),
        )
        with writing(path):
            fsync(rows)
            record_path.unlink(missing_ok=True)  # a record never stands beside rows that it does not describe
            os.replace(rows, path)
            write_atomically(record_path, json.dumps(asdict(record), indent=2) + "\n")
    return record


def _download(entry: Entry, workshop: Path) -> list[Path]:
    """The published files at the pinned revision, in the workshop: nothing stays in the hub's own cache."""
    if entry.dataset.startswith(PREFIX):
        made = workshop / "made.jsonl"
        _write_lines(made, map(_line, generated(entry.dataset, entry.config, entry.revision)))
        return [made]
    from huggingface_hub import snapshot_download

    try:
        if is_address(entry):
            return [_file_at(entry.dataset, workshop)]
        folder = snapshot_download(
            entry.dataset,
            repo_type="dataset",
            revision=entry.revision,
            allow_patterns=list(published_files(entry)) or f"*{entry.config or ''}*",
            local_dir=workshop / "hub",
        )
    except Exception as error:  # of the network, the hub, or the library: it has dozens
        raise BenchmarkError(
            f"the rows of {entry.benchmark} could not be fetched",
            got=f"{type(error).__name__}: {error}",
            fix=how_to_get(entry),
        ) from error
    return _choose(entry, Path(folder))


def _file_at(address: str, workshop: Path) -> Path:
    path = workshop / address.rpartition("/")[2]
    with urlopen(address, timeout=60) as answer, path.open("wb") as file:
        shutil.copyfileobj(answer, file)
    return path


def _choose(entry: Entry, given: Path) -> list[Path]:
    """The files that hold the benchmark: the published ones, those named like it, of its split, or the only one."""
    if given.is_file():
        return [given]
    published = published_files(entry)
    for names in (
        published,
        tuple(name.removesuffix(".gz") for name in published),
        *((f"{entry.benchmark}{suffix}",) for suffix in SUFFIXES),
    ):
        if names and all((given / name).is_file() for name in names):
            return [given / name for name in names]
    present = sorted(path for path in given.rglob("*") if path.name.endswith(SUFFIXES))
    of_config = [path for path in present if entry.config in path.relative_to(given).parts] or present
    of_split = [path for path in of_config if _split_of(path) == entry.split]
    if of_split and not published:
        return of_split
    if len(of_config) == 1:
        return of_config
    raise BenchmarkError(
        f"{given} does not hold the files of {entry.benchmark}",
        expected=", ".join(published) or f"{entry.benchmark}.parquet or {entry.benchmark}.jsonl",
        got=", ".join(path.name for path in present) or "no data file"
        if given.is_dir()
        else "no such folder",
        fix=how_to_get(entry),
    )


def _split_of(path: Path) -> str:
    """The split of a file, as data sets of the hub name theirs: `main/test-00000-of-00001.parquet`, `test.jsonl`."""
    return re.split(r"[-_.]", path.name, maxsplit=1)[0]


def _lines(paths: Iterable[Path], workshop: Path) -> Iterator[str]:
    """The rows of files as JSON lines; those of a JSON-lines file as they stand there."""
    for path in paths:
        source = path
        if path.suffix == ".gz":
            source = workshop / path.stem
            try:
                source.write_bytes(gzip.decompress(path.read_bytes()))
            except (OSError, EOFError) as error:
                raise BenchmarkError(f"{path} cannot be unpacked", got=str(error)) from error
        if source.suffix == ".jsonl":
            read_rows(source)
            with source.open(encoding="utf-8") as lines:
                yield from (line.removesuffix("\n") for line in lines if line.strip())
        else:
            yield from map(_line, read_rows(source))


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with writing(path), path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
