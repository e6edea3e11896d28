"""A run's committed rows as SQL: the rows of its tables in the stages' own files, and in blocks that hold them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import duckdb

from populora_core.store.blocks import APART, JOINED, MERGED, CatalogueBlock, stages_in
from populora_core.store.columns import Table, View
from populora_core.store.figure_views import FIGURES
from populora_core.store.manifest import Manifest, complete, read_manifest
from populora_core.store.manifest_tables import MANIFEST_TABLES, manifest_rows
from populora_core.store.record_tables import RECORD_TABLES, record_rows
from populora_core.store.sql import literal, parquet, tables_read, text
from populora_core.store.tables import TABLES
from populora_core.store.views import VIEWS

RECENT = "recent"  # schema of the tables that the views with texts join: of the generations in no block


@dataclass(frozen=True, slots=True)
class StageRows:
    """The committed stages of some folders.

    Attributes:
        files: table -> its files.
        recent: the same without those of generations that a block holds.
        kinds: table -> a file of each block and of each version of its stage: what may lack columns that came later.
        manifests: of the stages that no block holds, in order.
    """

    run_dir: Path
    blocks: tuple[CatalogueBlock, ...]
    files: dict[str, list[str]] = field(default_factory=lambda: {table: [] for table in TABLES})
    recent: dict[str, list[str]] = field(default_factory=lambda: {table: [] for table in APART})
    kinds: dict[str, dict[object, str]] = field(default_factory=lambda: {table: {} for table in TABLES})
    manifests: list[Manifest] = field(default_factory=list)

    def rows(self, table: str) -> str:
        """The rows of a table of the stages."""
        return parquet(TABLES[table], self.files[table], list(self.kinds[table].values()))

    def recent_rows(self, table: str) -> str:
        """The same without those of generations that a block holds."""
        return parquet(TABLES[table], self.recent[table], list(self.kinds[table].values()))

    def manifest_rows(self) -> Iterator[tuple[Table, str]]:
        """The rows of each table that is made of manifests."""
        rows = manifest_rows(self.manifests)
        for name, table in MANIFEST_TABLES.items():
            yield table, self._and_blocks(table, literal(table, rows[name]))

    def view_rows(self, view: View) -> str:
        """The rows of a view with texts, joined from tables in the schema `recent`."""
        columns = tuple(item.column for item in view.columns)
        return self._and_blocks(Table(view.name, (), view.meaning, columns), view.sql(RECENT))

    def _and_blocks(self, table: Table, others: str) -> str:
        if not self.blocks:
            return others
        return f"{parquet(table, [block.file(table.name) for block in self.blocks])} UNION ALL {others}"


def committed(run_dir: Path, folders: Sequence[str], blocks: Sequence[CatalogueBlock] = ()) -> StageRows:
    """The committed stages of these folders, and the blocks that hold rows of them."""
    held = {
        f"{run_dir}/generations/{number:04d}/{stage}": _apart_of(stage)
        for block in blocks
        for number in block.generations
        for stage in stages_in(number)
    }
    found = StageRows(run_dir, tuple(blocks))
    for block in blocks:
        for table in MERGED:
            found.files[table].append(str(block.file(table)))
            found.kinds[table][block] = str(block.file(table))
    for folder in folders:
        if (tables := held.get(folder)) is not None:
            for table in tables:
                if os.path.exists(path := f"{folder}/{table}.parquet"):
                    found.files[table].append(path)
                    found.kinds[table].setdefault("held", path)
            continue
        manifest = read_manifest(Path(folder))
        if manifest is None or not complete(Path(folder), manifest):
            continue
        found.manifests.append(manifest)
        for file in manifest.files:
            table, path = file.name.removesuffix(".parquet"), f"{folder}/{file.name}"
            if table in found.files:
                found.files[table].append(path)
                found.kinds[table].setdefault((manifest.stage, manifest.stage_version), path)
            if table in found.recent:
                found.recent[table].append(path)
    found.manifests.sort(key=lambda manifest: (manifest.generation, manifest.started_at))
    return found


def over_files(found: StageRows, asked: str | None = None) -> Iterator[str]:
    """The statements of a catalogue that holds no row itself.

    Args:
        asked: the SELECT statements that it is made for: what they do not read is left out. None for all.
    """
    read = None if asked is None else _read_by(asked)

    def needed(name: str) -> bool:
        return read is None or name in read

    yield "CREATE SCHEMA tables"
    for table in TABLES:
        if needed(f"tables.{table}"):
            yield f"CREATE VIEW tables.{table} AS {found.rows(table)}"
    for declared, rows in found.manifest_rows():
        if needed(f"tables.{declared.name}"):
            yield f"CREATE VIEW tables.{declared.name} AS {rows}"
    recorded = record_rows(found.run_dir) if any(needed(f"tables.{name}") for name in RECORD_TABLES) else {}
    for name, declared in RECORD_TABLES.items():
        if needed(f"tables.{name}"):
            yield f"CREATE VIEW tables.{name} AS {literal(declared, recorded[name])}"
    if found.blocks:
        yield from recent_views(found)
    for view in VIEWS.values():
        if needed(view.name):
            once = asked is not None and view in FIGURES  # it is small, and asked several times
            rows = found.view_rows(view) if found.blocks and view.name in JOINED else view.sql()
            yield shown(view, found.run_dir, rows, "TABLE" if once else "VIEW")


@cache
def _read_by(sql: str) -> frozenset[str]:
    """The views and `tables.…` that SQL reads, and those that these views read."""
    found: set[str] = set()
    with duckdb.connect() as connection:
        new = tables_read(connection, sql)
        while new:
            found |= new
            views = (VIEWS[name].sql() for name in new if name in VIEWS)
            new = set().union(*(tables_read(connection, view) for view in views)) - found
    return frozenset(found)


def recent_views(found: StageRows) -> Iterator[str]:
    """The statements that make the schema `recent`."""
    yield f"CREATE SCHEMA {RECENT}"
    for table in APART:
        yield f"CREATE VIEW {RECENT}.{table} AS {found.recent_rows(table)}"


def shown(view: View, run_dir: Path, rows: str, kind: str = "VIEW") -> str:
    """The statement that makes a view of the contract from its rows, or a table of what it shows now."""
    return f"CREATE OR REPLACE {kind} main.{view.name} AS SELECT *, {text(run_dir.name)} AS run FROM ({rows})"


@cache
def _apart_of(stage: str) -> tuple[str, ...]:
    """The tables of a stage that no block holds."""
    return tuple(table for table in APART if stage in TABLES[table].stages)
