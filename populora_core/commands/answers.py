"""`populora query`: an answer's rows as a table, CSV, JSON lines, Markdown or Parquet, written as they come."""

from __future__ import annotations

import csv
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from populora_core.report.text import markdown_row, markdown_table
from populora_core.store.answer import Answer
from populora_core.support.aliases import Row
from populora_core.support.durable import replacing, writing
from populora_core.support.errors import ConfigError
from populora_core.support.visible import visible
from populora_core.terminal.screen import Screen, console

ArrowRows = TypeVar("ArrowRows", pa.Table, pa.RecordBatch)
AnswerFormat = Literal["table", "csv", "json", "markdown", "parquet"]
SUFFIXES: Mapping[str, AnswerFormat] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".md": "markdown",
    ".parquet": "parquet",
}
WIDEST = 64  # characters of one line of a cell: a sha256, the longest id
LONGEST = 20_000  # of a cell of several lines
TABLE_ROWS = 500  # of one printed table; a longer answer is several, so that nothing is held back
UNBOUNDED = 1_000_000  # columns of what is no terminal


def print_answer(answer: Answer, format: AnswerFormat) -> None:
    """Print all rows. Memory does not grow with their number. A reader that stops, such as `head`, ends it."""
    if format == "parquet":
        raise ConfigError(
            "Parquet is no text to print",
            expected="--output FILE with --format parquet",
            fix="name a file, such as --output rows.parquet",
        )
    try:
        _PRINTERS[format](answer, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left goes nowhere


def save_answer(answer: Answer, format: AnswerFormat, output: Path) -> None:
    """Write all rows to a file, whole or not at all.

    Raises:
        ArtifactError: it could not be written.
    """
    with writing(output), replacing(output) as temporary:
        if format == "parquet":
            _parquet(answer, temporary)
            return
        with open(temporary, "w", encoding="utf-8") as out:
            _PRINTERS[format](answer, out)


def format_of(format: AnswerFormat | None, output: Path | None) -> AnswerFormat:
    """The requested format, else the one that the file's name ends in, else a table."""
    return format or (SUFFIXES.get(output.suffix, "table") if output else "table")


def row_table(rows: Sequence[Mapping[str, Any]], folded: bool = False, widest: int = WIDEST) -> Table:
    """Rows with the same columns as a table.

    Args:
        folded: break the names of columns at underscores where their cells are narrower.
        widest: characters of one line of a cell; what is longer is cut, saying so.
    """
    table = Table()
    cells = [[_cell(value, widest) for value in row.values()] for row in rows]
    for place, name in enumerate(map(visible, rows[0])):
        needed = max((len(line) for row in cells for line in row[place].splitlines()), default=0)
        table.add_column(_folded(name, needed) if folded else name, no_wrap=True)
    for row in cells:
        table.add_row(*row)
    return table


def print_rows(rows: Sequence[Mapping[str, Any]], to: Console) -> None:
    """Rows with the same columns, none of them cut: where no table has the room, one under another."""
    if not to.is_terminal:
        Screen(file=to.file, width=UNBOUNDED).print(row_table(rows, widest=LONGEST))
        return
    boundless = to.options.update(max_width=UNBOUNDED)
    for folded in (False, True):
        table = row_table(rows, folded)
        if to.measure(table, options=boundless).maximum <= to.width:
            to.print(table)
            return
    for row in rows:
        to.rule(style="dim")
        for name, value in row.items():
            text = _cell(value)
            to.print(
                Text.assemble((visible(name), "bold"), "\n" if "\n" in text else "  ", text), soft_wrap=True
            )


def _folded(name: str, widest: int) -> str:
    """The name in lines that break after underscores, none longer than its column's cells if that can be."""
    lines = [""]
    for part in name.replace("_", "_\0").split("\0"):
        if lines[-1] and len(lines[-1] + part) > widest:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _cell(value: Any, widest: int = WIDEST) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else str(value)
    widest = LONGEST if "\n" in text[:LONGEST] else widest
    return visible(text if len(text) <= widest else text[: widest - 1] + "…")


def _tables(answer: Answer, out: TextIO) -> None:
    to, count = console if out is sys.stdout else Screen(file=out), 0
    rows = (row for batch in answer.batches(TABLE_ROWS) for row in _told(batch).to_pylist())
    while some := list(islice(rows, TABLE_ROWS)):  # a batch may be small
        print_rows(some, to)
        count += len(some)
    to.print(f"{count} row{'s' * (count != 1)}")


def _csv(answer: Answer, out: TextIO) -> None:
    def write(cells: Iterable[Any]) -> None:
        line = StringIO()
        csv.writer(line).writerow(cells)  # ends it with CR and LF, and so quotes a text that has one of them
        out.write(line.getvalue().removesuffix("\r\n") + "\n")

    write(_shown(name, out) for name in answer.columns)
    for row in _rows(answer):
        texts = (json.dumps(v) if isinstance(v, list | dict) else v for v in row.values())
        write(_shown(v, out) if isinstance(v, str) else v for v in texts)


def _json(answer: Answer, out: TextIO) -> None:
    for row in _rows(answer):
        out.write(_shown(json.dumps(row, ensure_ascii=False), out) + "\n")


def _markdown(answer: Answer, out: TextIO) -> None:
    out.write(_shown(markdown_table(answer.columns, []), out) + "\n")
    for row in _rows(answer):
        out.write(_shown(markdown_row(row.values()), out) + "\n")


def _parquet(answer: Answer, path: Path) -> None:
    try:
        _write_parquet(answer, path)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise ConfigError(
            "Parquet has no type for a column of this answer",
            got=str(error),
            fix="select it as text, CAST(column AS VARCHAR), or write .csv or .json",
        ) from error


def _write_parquet(answer: Answer, path: Path) -> None:
    batches = map(_told, answer.batches())
    first = next(batches, None)
    if first is None:
        pq.write_table(_told(answer.arrow()), path, compression="zstd")
        return
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


_PRINTERS: Mapping[str, Callable[[Answer, TextIO], None]] = {
    "table": _tables,
    "csv": _csv,
    "json": _json,
    "markdown": _markdown,
}


def _shown(text: str, out: TextIO) -> str:
    """The text as it is for a file or a program, made harmless for a terminal."""
    return visible(text) if out.isatty() else text


def _told(rows: ArrowRows) -> ArrowRows:
    """The rows with each interval as text: no format has a type for months, days and seconds at once."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_interval(field.type):
            texts = [None if value is None else _interval(value) for value in rows.column(place).to_pylist()]
            rows = rows.set_column(place, field.name, pa.array(texts, pa.string()))
    return rows


def _interval(value: pa.MonthDayNano) -> str:
    """The interval in words that DuckDB reads again: `1 months 2 days 3.5 seconds`."""
    parts = {"months": value.months, "days": value.days, "seconds": value.nanoseconds / 1e9}
    return " ".join(f"{count:.15g} {unit}" for unit, count in parts.items() if count) or "0 seconds"


def _rows(answer: Answer) -> Iterator[Row]:
    for batch in answer.batches():
        for row in _told(batch).to_pylist():
            yield {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """The value in types that JSON has: sums of integers are decimals in Arrow, NaN is nothing in JSON."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, pa.MonthDayNano):  # within a list or a struct
        return _interval(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)
