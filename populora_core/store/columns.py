"""Declarations of tables and views: columns with a name, an Arrow type, a nullability and a meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

INT = pa.int32()
LONG = pa.int64()
FLOAT = pa.float64()
TEXT = pa.string()
BOOL = pa.bool_()
TIME = pa.timestamp("us")
TEXTS = pa.list_(pa.string())
TOKENS = pa.list_(pa.int32())
LOGPROBS = pa.list_(pa.float32())

_SQL = {
    INT: "INTEGER",
    LONG: "BIGINT",
    pa.float32(): "FLOAT",
    FLOAT: "DOUBLE",
    TEXT: "VARCHAR",
    BOOL: "BOOLEAN",
    TIME: "TIMESTAMP",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table or a view."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = False

    @property
    def sql_type(self) -> str:
        """The type that DuckDB gives the column."""
        return sql_type(self.type)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind.

    Attributes:
        stages: the stages that write it.
    """

    name: str
    stages: tuple[str, ...]
    meaning: str
    columns: tuple[Column, ...]

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns])

    def only(self, names: Sequence[str]) -> Table:
        """The table with these columns alone, in this order; with all of them where none is named."""
        return replace(self, columns=tuple(self[name] for name in names)) if names else self

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __getitem__(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)


def sql_type(type_: pa.DataType) -> str:
    """The DuckDB name of an Arrow type."""
    return f"{sql_type(type_.value_type)}[]" if pa.types.is_list(type_) else _SQL[type_]


RUN = Column("run", TEXT, "Name of the run: its folder's, with more of the path where several share it.")


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view and the SQL expression that gives it."""

    column: Column
    expression: str


@dataclass(frozen=True, slots=True)
class View:
    """A view of the catalogue. Its last column is the name of the run, which `columns` leaves out.

    Attributes:
        source: the FROM clause; tables stand in the schema `tables`.
    """

    name: str
    meaning: str
    source: str
    columns: tuple[ViewColumn, ...]

    def sql(self, schema: str = "tables") -> str:
        """The rows, without the run's name, from the tables in a schema."""
        columns = ", ".join(f"{item.expression} AS {item.column.name}" for item in self.columns)
        return f"SELECT {columns} FROM {self.source.replace('tables.', f'{schema}.')}"

    def __iter__(self) -> Iterator[Column]:
        return chain((item.column for item in self.columns), [RUN])
