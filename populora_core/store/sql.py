"""Fragments of SQL that stand for files, rows and text; what DuckDB says of a full disk."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from populora_core.store.columns import Column, View
from populora_core.support.durable import DISK_FULL
from populora_core.support.errors import ArtifactError

T = TypeVar("T")


def heeding_signals(connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """Return the result of DuckDB's work, or raise the exception of a signal that interrupts it.

    It is done beside the main thread: there, DuckDB turns what a signal's handler raises into a RuntimeError without a
    cause, and whoever catches errors would go on after a Ctrl-C.
    """
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        try:
            return done.result()
        except BaseException:
            connection.interrupt()
            raise


@contextmanager
def full_disk_told() -> Iterator[None]:
    """DuckDB tells of a full disk or quota in text alone; from here on it is the OSError that it was."""
    try:
        yield
    except duckdb.Error as error:
        code = next((code for code in DISK_FULL if os.strerror(code) in str(error)), None)
        if code is None:
            raise
        raise OSError(code, str(error)) from error


@contextmanager
def refusal_told(problem: str) -> Iterator[None]:
    """Turn DuckDB's refusal to read committed stages into an ArtifactError, and a full disk into an OSError."""
    try:
        with full_disk_told():
            yield
    except duckdb.Error as error:
        raise ArtifactError(
            problem,
            expected="committed tables with the columns of this version",
            got=str(error),
            fix="populora inspect shows what is committed; populora resume makes damaged stages again",
        ) from error


def text(value: str) -> str:
    """A literal of a text."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """A quoted identifier."""
    return '"' + value.replace('"', '""') + '"'


def comments(view: View) -> Iterator[str]:
    """The statements that tell any client of DuckDB what a view and its columns mean."""
    return described("VIEW", view.name, view.meaning, view)


def described(kind: str, place: str, meaning: str, columns: Iterable[Column]) -> Iterator[str]:
    """The same of a TABLE or VIEW at a place of the catalogue."""
    yield f"COMMENT ON {kind} {place} IS {text(meaning)}"
    for column in columns:
        yield f"COMMENT ON COLUMN {place}.{column.name} IS {text(column.meaning)}"


STEPS_TAKEN = "coalesce(updates.steps, (updates.entropy IS NOT NULL)::INTEGER)"
"""Optimiser steps of a row of `updates`: before it said so there was one, where there is an entropy."""


def parquet(
    table: Iterable[Column], paths: Sequence[Path] | Sequence[str], older: Sequence[Path] | Sequence[str] = ()
) -> str:
    """The rows of Parquet files; none for no files.

    Args:
        older: the files, or some of each kind, that may lack columns. Where they do, these are null: columns are
            added to the contract, never renamed or dropped.
    """
    if not paths:
        return literal(table, [])
    declared = list(table)
    columns = ", ".join(column.name for column in declared)
    files = ", ".join(text(literal_path(path)) for path in paths)
    if all(_has(path, {column.name for column in declared}) for path in older):
        return f"SELECT {columns} FROM read_parquet([{files}], hive_partitioning = false)"
    rows = f"FROM read_parquet([{files}], hive_partitioning = false, union_by_name = true)"
    return f"SELECT {columns} FROM ({literal(declared, [])} UNION ALL BY NAME {rows})"


def _has(path: Path | str, columns: set[str]) -> bool:
    """True if a Parquet file has these columns, or is damaged: then DuckDB reports the damage."""
    try:
        return columns <= set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return True


def literal(table: Iterable[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows within the SQL text. One text that is cast parses 20 times as fast as a VALUES list."""
    fields = ", ".join(f"{column.name} {column.sql_type}" for column in table)
    document = text(json.dumps(rows, ensure_ascii=False))
    return f"SELECT unnest({document}::STRUCT({fields})[], recursive := true)"


def tables_read(connection: duckdb.DuckDBPyConnection, selects: str) -> set[str]:
    """The tables and views that SELECT statements read, as `name` or `schema.name`; names of CTEs are among them."""
    row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [selects]).fetchone()
    assert row is not None
    found: set[str] = set()
    nodes = [json.loads(row[0])]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                found.add(f"{node['schema_name']}.{node['table_name']}".lstrip("."))
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    return found


def has_database(path: Path) -> bool:
    """True if DuckDB can keep a database in this folder: it ends a path at `?`, and takes a backslash for `/`."""
    return not {"?", "\\"} & set(str(path))


def literal_path(path: Path | str) -> str:
    """The path with its glob characters escaped.

    Raises:
        ArtifactError: it has a backslash too, behind which DuckDB finds no pattern.
    """
    if "\\" in str(path) and re.search(r"[*?\[]", str(path)):
        raise ArtifactError(
            f"DuckDB finds no file under {path}",
            expected="a path without a backslash, or without any of * ? [",
            fix="give the folder another name",
        )
    return re.sub(r"([*?\[])", r"[\1]", str(path))
