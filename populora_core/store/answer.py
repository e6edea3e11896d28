"""The result of a query over a run's views: rows to take as a whole, or as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import duckdb

from populora_core.store.sql import heeding_signals
from populora_core.store.views import VIEWS
from populora_core.support.errors import PopuloraError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

BATCH = 8192  # rows


class Answer:
    """The rows of one SQL statement. Nothing is computed before they are read.

    Each of the methods computes them again and raises PopuloraError where DuckDB fails to. All of them name the columns
    alike, as `columns` does: those that share a name are told apart, `a`, `a_1`, so that a row may be a dictionary.
    One is read at a time: whichever begins ends the batches that were being read.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, relation: duckdb.DuckDBPyRelation) -> None:
        self._connection, self._relation = connection, relation
        self._reader: pa.RecordBatchReader | None = None

    @property
    def columns(self) -> list[str]:
        return _told_apart(self._relation.columns)

    def df(self) -> pd.DataFrame:
        """All rows as a pandas frame."""
        with self._reading():
            frame = heeding_signals(self._connection, self._relation.df)
            return frame.set_axis(self.columns, axis="columns")

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        with self._reading():
            table = heeding_signals(self._connection, self._relation.to_arrow_table)
            return table.rename_columns(self.columns)

    def batches(self, rows: int = BATCH) -> Iterator[pa.RecordBatch]:
        """The rows as they are computed, in batches, so that memory does not grow with their number."""
        columns = self.columns
        with (
            self._reading(),
            heeding_signals(self._connection, lambda: self._relation.to_arrow_reader(rows)) as reader,
        ):
            self._reader = reader
            while (batch := heeding_signals(self._connection, lambda: next(reader, None))) is not None:
                yield batch.rename_columns(columns)
                if self._reader is not reader:
                    raise _ended()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Free the connection, which holds one open result, and tell of DuckDB's errors as ours."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        with _explained():
            yield


def refusal(reason: str) -> PopuloraError:
    """The error that says why a statement was not answered."""
    return PopuloraError(
        "the query could not be answered",
        expected="one SQL statement over the views " + ", ".join(VIEWS),
        got=reason,
        fix="DESCRIBE and a view's name list its columns; docs/data-contract.md says what they mean",
    )


def _ended() -> PopuloraError:
    return PopuloraError(
        "these batches can be read no further",
        got="another reading of the same answer, which began meanwhile",
        fix="query again: two answers can be read side by side",
    )


def _told_apart(names: Iterable[str]) -> list[str]:
    """The names, none twice whatever their case: to DuckDB `a` and `A` are one. Its own frames name columns so."""
    found: dict[str, str] = {}
    for name in names:
        numbers, free = count(1), name
        while free.lower() in found:
            free = f"{name}_{next(numbers)}"
        found[free.lower()] = free
    return list(found.values())


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (
        duckdb.Error,
        OSError,
    ) as error:  # an OSError is pyarrow's, of a batch that DuckDB fails to compute
        raise refusal(str(error)) from error
