"""Rows become the declared tables, or a SchemaError that names the table, the column and the row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from numbers import Integral, Real
from typing import Any

import numpy as np
import pyarrow as pa

from populora_core.store.columns import BOOL, FLOAT, INT, LONG, TEXT, Column, Table
from populora_core.store.tables import TABLES
from populora_core.support.errors import SchemaError

_ACCEPTED: dict[pa.DataType, tuple[type, ...]] = {
    INT: (Integral,),
    LONG: (Integral,),
    pa.float32(): (Real,),
    FLOAT: (Real,),
    TEXT: (str,),
    BOOL: (bool, np.bool_),
}
_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def table_of(name: str) -> Table:
    """The declared table.

    Raises:
        SchemaError: no such table.
    """
    if name not in TABLES:
        raise SchemaError(f"there is no table {name!r}", expected="one of " + ", ".join(TABLES))
    return TABLES[name]


def to_table(name: str, rows: Iterable[Mapping[str, Any]], beside: pa.Table | None = None) -> pa.Table:
    """Build a declared table from rows.

    Args:
        rows: mappings from every declared column that is not in `beside`, and nothing else, to a value.
        beside: further columns of the same rows, with their declared types.

    Raises:
        SchemaError: a column is missing or unknown, or a value does not fit its column.
    """
    declared = table_of(name)
    rows = list(rows)
    given = set() if beside is None else set(beside.column_names)
    expected = {column.name for column in declared} - given
    for number, row in enumerate(rows):
        if row.keys() != expected:
            raise SchemaError(
                f"row {number} of table {name} does not have the declared columns",
                expected=", ".join(column.name for column in declared if column.name in expected),
                got=_difference(expected, row),
            )
    arrays = [
        _array(name, column, [row[column.name] for row in rows])
        if beside is None or column.name not in given
        else beside[column.name]
        for column in declared
    ]
    return pa.Table.from_arrays(arrays, schema=declared.arrow)


def check(name: str, table: pa.Table) -> None:
    """Raise SchemaError unless `table` has the declared columns and no null where none may be."""
    declared = table_of(name)
    if not table.schema.equals(declared.arrow):
        raise SchemaError(
            f"table {name} does not have the declared columns",
            expected=_describe(declared.arrow),
            got=_describe(table.schema),
        )
    for column in declared:
        if not column.nullable and table[column.name].null_count:
            values = table[column.name].is_null().to_pylist()
            raise _misfit(name, column, values.index(True), None)


def _array(name: str, column: Column, values: Sequence[Any]) -> pa.Array:
    try:
        return _convert(column, values)
    except _MISFITS:
        for number, value in enumerate(values):
            try:
                _convert(column, [value])
            except _MISFITS as error:
                raise _misfit(name, column, number, value) from error
        raise


def _convert(column: Column, values: Sequence[Any]) -> pa.Array:
    """An Arrow array; stricter than Arrow, which cuts 1.5 to 1 and takes text for a list of characters."""
    present = [value for value in values if value is not None] if column.nullable else values
    if not pa.types.is_list(column.type):
        _require(present, _ACCEPTED[column.type])
    else:
        _require(present, (list, tuple, np.ndarray))
        _require(chain.from_iterable(present), _ACCEPTED[column.type.value_type])
    return pa.array(values, column.type)


def _require(values: Iterable[Any], accepted: tuple[type, ...]) -> None:
    for kind in set(map(type, values)):
        if not issubclass(kind, accepted) or (kind is bool and bool not in accepted):
            raise TypeError(kind.__name__)


def _misfit(name: str, column: Column, number: int, value: object) -> SchemaError:
    kind = f"{column.type}, or null" if column.nullable else f"{column.type}, never null"
    got = "null" if value is None else f"{type(value).__name__} {value!r:.80}"
    return SchemaError(
        f"row {number} of table {name} does not fit column {column.name}", expected=kind, got=got
    )


def _difference(expected: set[str], row: Mapping[str, Any]) -> str:
    missing, unknown = sorted(expected - row.keys()), sorted(row.keys() - expected)
    parts = ["no " + ", ".join(missing)] if missing else []
    return "; ".join([*parts, "unknown " + ", ".join(unknown)] if unknown else parts)


def _describe(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema)
