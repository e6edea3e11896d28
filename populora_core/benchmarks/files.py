"""Rows of a benchmark from a file: Parquet, JSON lines or a JSON list."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from populora_core.support.aliases import Row
from populora_core.support.digest import file_sha256, read_sha256
from populora_core.support.errors import BenchmarkError, ProblemError
from populora_core.support.received import parse_json, read_json


def read_rows(path: Path, sha256: str | None = None, source: str = "") -> list[Row]:
    """The rows of a file, in order.

    Args:
        sha256: what the file's bytes must hash to; None where nothing is pinned.
        source: where a person finds what the file is a copy of.

    Raises:
        BenchmarkError: no such file, another content than pinned, or no readable rows.
    """
    try:
        came = read_sha256(path)
    except OSError as error:
        raise BenchmarkError(
            f"there is no benchmark file {path}",
            got=str(error),
            fix="put it there, or correct the place; `file:PATH` of a suite starts in the working folder, and where "
            "nothing lies there beside the suite's file",
        ) from error
    if sha256 is not None and came != sha256:
        raise BenchmarkError(
            f"{source or path} is not the file that the suite was written for",
            expected=f"sha256 {sha256}",
            got=f"sha256 {came}",
            fix="fetch the pinned revision; or put the new checksum into the suite, if you mean to change it",
        )
    reader = READERS.get(path.suffix)
    if reader is None:
        raise BenchmarkError(
            f"{path} has an unknown format",
            expected=", ".join(READERS),
            got=path.suffix,
            fix="save it as one of these",
        )
    try:
        rows = reader(path)
    except (ValueError, OSError) as error:  # of pyarrow and json alike
        raise BenchmarkError(
            f"{path} cannot be read", got=str(error), fix="fetch the file again, or correct it"
        ) from error
    if not all(isinstance(row, dict) for row in rows):
        raise BenchmarkError(f"{path} does not hold rows", expected="one object per row")
    return rows


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file of the user's, given by its place or by that of a folder that `populora problems` wrote.

    Attributes:
        written: where such a folder holds it.
        what: it is, and `setting` that names it, for the error.
    """

    written: Path
    what: str
    setting: str

    def at(self, path: str) -> Path:
        """The file; raises ProblemError where there is none."""
        place = Path(os.path.expanduser(path))
        file = place / self.written if place.is_dir() else place
        if not file.is_file():
            raise ProblemError(
                f"there is no {self.what} at {path}",
                expected=f"a folder that `populora problems` wrote, or a {', '.join(READERS)} file",
                got=f"nothing at {file}",
                fix=f"put it there, or correct {self.setting}; it starts where populora runs",
            )
        return file

    def sha256(self, path: str) -> str:
        """The sha256 of the file; raises ProblemError where there is none."""
        return file_sha256(self.at(path))


def _parquet(path: Path) -> list[Row]:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path).read().to_pylist()


def _json_lines(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="\n") as file:  # a line at a time: there are files of gigabytes
        return [parse_json(line, path) for line in file if line.strip()]


def _json(path: Path) -> list[Row]:
    rows = read_json(path)
    return rows if isinstance(rows, list) else [rows]


READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".json": _json,
}
