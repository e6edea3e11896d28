"""The types of rows, `populora_core/store/rows.py`, rendered from the declared tables.

python tests/row_types.py populora_core/store/rows.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from populora_core.store.columns import BOOL, FLOAT, INT, LONG, TEXT, Column, Table
from populora_core.store.shared_columns import SAMPLED
from populora_core.store.tables import TABLES

_PYTHON = {INT: "int", LONG: "int", pa.float32(): "float", FLOAT: "float", TEXT: "str", BOOL: "bool"}
_WIDTH = 110  # of a line, as the formatter leaves it
_SQL_ALONE = {"updates", "averages", "proposal_advantages", "attempt_advantages"}
"""Tables that only the catalogue's views read: no code of ours holds a row of theirs, or names its type."""

_INTRODUCTION = '''"""A type for the rows of each table that code reads, and readers that know it by the table's name.

Rendered from `tables.py` by `make docs`; a test fails where this module and the declarations differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, overload

from populora_core.store.artifacts import read_table
'''

_READER = '''

class RowReader(ABC):
    """A reader of rows from the stage folders that hold a table."""

    __slots__ = ()

    @abstractmethod
    def folders(self, name: str) -> Sequence[Path]:
        """The folders that hold this table, oldest first."""

'''

_REST = '''
    def rows(self, name: str, *columns: str, newest: int = 0) -> list[Any]:
        """The rows of a table with these columns, or all; of several folders in order.

        Args:
            newest: how many of the folders are read, the last ones; 0 for all.

        Raises:
            ArtifactError: a file is missing, damaged, or has other columns.
        """
        tables = (read_table(folder, name, columns) for folder in self.folders(name)[-newest:])
        return [row for table in tables for row in table.to_pylist()]


class StageTables(RowReader):
    """The tables of one committed stage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folders(self, name: str) -> Sequence[Path]:
        return (self._folder,)
'''


def render() -> str:
    """The whole module."""
    read = [table for name, table in TABLES.items() if name not in _SQL_ALONE]
    types = [_type("SampledRow", "TypedDict", SAMPLED), *map(_of_table, read)]
    return "".join([_INTRODUCTION, *types, _READER, *(_overload(table.name) for table in read), _REST])


def type_name(table: str) -> str:
    """The type of a table's rows, in the singular: `ProposalCheckRow` of `proposal_checks`."""
    one = re.sub(r"(?<=ch)es$|(?<!s)s$", "", table)
    return "".join(map(str.capitalize, one.split("_"))) + "Row"


def _of_table(table: Table) -> str:
    sampled = set(SAMPLED) <= set(table)
    own = [column for column in table if not sampled or column not in SAMPLED]
    return _type(type_name(table.name), "SampledRow" if sampled else "TypedDict", own)


def _type(name: str, base: str, columns: Sequence[Column]) -> str:
    return "".join(
        [
            f"\n\nclass {name}({base}):\n",
            *(f"    {column.name}: {_python(column.type)}{_or_none(column)}\n" for column in columns),
        ]
    )


def _python(kind: pa.DataType) -> str:
    return f"list[{_PYTHON[kind.value_type]}]" if pa.types.is_list(kind) else _PYTHON[kind]


def _or_none(column: Column) -> str:
    return " | None" if column.nullable else ""


def _overload(table: str) -> str:
    takes = f'self, name: Literal["{table}"], *columns: str, newest: int = 0'
    returns = f"list[{type_name(table)}]: ..."
    line = f"    def rows({takes}) -> {returns}\n"
    if len(line) > _WIDTH + 1:
        line = f"    def rows(\n        {takes}\n    ) -> {returns}\n"
    return f"    @overload\n{line}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
