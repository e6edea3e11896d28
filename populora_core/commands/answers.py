"""`populora query`: an answer's rows as a table, CSV or JSON lines, printed as they come."""

from __future__ import annotations

import csv
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal

from rich.markup import escape
from rich.table import Table

from populora_core.commands.console import console
from populora_core.report.text import visible
from populora_core.store.answer import Answer
from populora_core.support.aliases import Row

WIDEST = 60  # characters of one line of a cell
LONGEST = 20_000  # of a cell of several lines
TABLE_ROWS = 500  # of one printed table; a longer answer is several, so that nothing is held back


def print_answer(answer: Answer, format: Literal["table", "csv", "json"]) -> None:
    """Print all rows. Memory does not grow with their number; who stops reading ends it, as `head` does."""
    printers: dict[str, Callable[[Answer], None]] = {"table": _tables, "csv": _csv, "json": _json}
    try:
        printers[format](answer)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left goes nowhere


def row_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows with the same columns as a table for the terminal."""
    table = Table()
    for name in rows[0]:
        table.add_column(str(name))
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else str(value)
    widest = LONGEST if "\n" in text[:LONGEST] else WIDEST
    return escape(visible(text if len(text) <= widest else text[: widest - 1] + "…"))


def _tables(answer: Answer) -> None:
    count = 0
    for batch in answer.batches(TABLE_ROWS):
        rows = batch.to_pylist()
        count += len(rows)
        console.print(row_table(rows))
    console.print(f"{count} rows")


def _csv(answer: Answer) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    for row in _rows(answer):
        cells = (json.dumps(v) if isinstance(v, list | dict) else v for v in row.values())
        writer.writerow(_shown(v) if isinstance(v, str) else v for v in cells)


def _json(answer: Answer) -> None:
    for row in _rows(answer):
        sys.stdout.write(_shown(json.dumps(row, ensure_ascii=False)) + "\n")


def _shown(text: str) -> str:
    """The text as it is for a file or a program, made harmless for a terminal."""
    return visible(text) if sys.stdout.isatty() else text


def _rows(answer: Answer) -> Iterator[Row]:
    for batch in answer.batches():
        for row in batch.to_pylist():
            yield {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """The value in types that JSON has: sums of integers are decimals in Arrow, NaN is nothing in JSON."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)
