"""Fragments of SQL that stand for files, rows and text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from populora_core.store.columns import Column


def text(value: str) -> str:
    """A literal of a text."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """A quoted identifier."""
    return '"' + value.replace('"', '""') + '"'


def parquet(table: Iterable[Column], paths: Sequence[Path] | Sequence[str]) -> str:
    """The rows of Parquet files that all have the same columns; none for no files."""
    if not paths:
        return literal(table, [])
    columns = ", ".join(column.name for column in table)
    files = ", ".join(text(_literal_path(path)) for path in paths)
    return f"SELECT {columns} FROM read_parquet([{files}], hive_partitioning = false)"


def literal(table: Iterable[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows within the SQL text. One text that is cast parses 20 times as fast as a VALUES list."""
    fields = ", ".join(f"{column.name} {column.sql_type}" for column in table)
    document = text(json.dumps(rows, ensure_ascii=False))
    return f"SELECT unnest({document}::STRUCT({fields})[], recursive := true)"


def _literal_path(path: Path | str) -> str:
    """The path with its glob characters escaped."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))
