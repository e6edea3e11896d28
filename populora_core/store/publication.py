"""The content of the catalogue's file: the rows that its views show, brought up to date generation by generation.

It holds the rows themselves, so that a run that was moved, copied or sent answers from its own files in any client.
Token ids and log-probabilities stay in the stages' files, and so do the rows that have texts once their files come to
more than `HELD_BYTES`. A view over files refuses where the catalogue is not at its place: it would show another run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from populora_core.store.blocks import APART, JOINED, MERGED, valid_blocks
from populora_core.store.columns import LONG, TEXT, Column, Table
from populora_core.store.committed import RECENT, committed, recent_views, shown
from populora_core.store.manifest_tables import MANIFEST_TABLES
from populora_core.store.record_tables import RECORD_TABLES, record_rows
from populora_core.store.sql import comments, described, literal, name, text
from populora_core.store.tables import TABLES
from populora_core.store.views import VIEWS

CATALOGUE = "catalogue.duckdb"
STORAGE = "v1.0.0"  # every DuckDB from 1.0 on reads it
HELD_BYTES = 256 << 20  # of the stages' files: a publish copies what the catalogue holds
HELD = "held"  # schema of the rows that have texts
ITEMS, RESULTS = "evaluation_items", "match_results"
_SMALL = {table: TABLES[table] for table in MERGED if table != ITEMS} | MANIFEST_TABLES
_TEXTS = {
    **{
        view: Table(view, (), VIEWS[view].meaning, tuple(item.column for item in VIEWS[view].columns))
        for view in JOINED
    },
    ITEMS: TABLES[ITEMS],
}
_FOLDERS = Table(
    "folders",
    (),
    "Stage folders that the catalogue was made from.",
    (
        Column("folder", TEXT, "Where it lies in the run directory."),
        Column("stamp", LONG, "When it was committed, or a file of it came or went: nanoseconds since 1970."),
    ),
)


@dataclass(frozen=True, slots=True)
class CatalogueSource:
    """The state of a run that a catalogue is made from; the same for as long as it needs no publishing.

    Attributes:
        made_for: a digest of its place and of all that is declared of it.
        held: whether it holds the rows that have texts.
        blocks: where it does not, the blocks that its views read.
        stamps: stage folder below the run directory -> when it was committed, or a file of it came or went.
    """

    made_for: str
    held: bool
    blocks: str
    stamps: Mapping[str, int]

    @classmethod
    def of(cls, run_dir: Path, folders: Sequence[str]) -> CatalogueSource:
        """Describe a run as it is now."""
        stamps = {}
        for folder in folders:
            with suppress(FileNotFoundError):  # set aside meanwhile
                stamps["/".join(folder.split("/")[-3:])] = os.stat(folder).st_mtime_ns
        held = _text_bytes(folders) <= HELD_BYTES
        blocks = "" if held else " ".join(block.folder.name for block in valid_blocks(run_dir))
        return cls(hashlib.sha256(f"{run_dir}\0{_declared()}".encode()).hexdigest(), held, blocks, stamps)

    @classmethod
    def read(cls, connection: duckdb.DuckDBPyConnection, database: str) -> CatalogueSource | None:
        """Read it from an attached catalogue; None where it is of an older version."""
        tables = f"{name(database)}.tables"
        try:
            row = connection.execute(f"SELECT made_for, held, blocks FROM {tables}.source").fetchone()
            stamps = connection.execute(f"SELECT folder, stamp FROM {tables}.folders").fetchall()
        except duckdb.Error:
            return None
        return cls(row[0], row[1], row[2], dict(stamps)) if row else None

    def goes_on_from(self, old: CatalogueSource | None) -> bool:
        """True if a file that was made from `old` can be brought up to date."""
        return old is not None and (old.made_for, old.held) == (self.made_for, self.held)


def statements(
    run_dir: Path, folders: Sequence[str], source: CatalogueSource, old: CatalogueSource | None
) -> Iterator[str]:
    """The statements that bring a file up to date that was made from `old`, or that holds nothing yet."""
    blocks = valid_blocks(run_dir)
    if old is None:
        yield from _begun(run_dir, source.held)
    changed = {
        int(folder.split("/")[1]) for folder, _ in (old.stamps if old else {}).items() ^ source.stamps.items()
    }
    yield from _taken_out(changed, source.held)
    new = committed(
        run_dir,
        [folder for folder in folders if int(folder.split("/")[-2]) in changed],
        [block for block in blocks if changed.issuperset(block.generations)],
    )
    for table in MERGED:
        if table != ITEMS:
            yield f"INSERT INTO tables.{table} {new.rows(table)}"
    for declared, rows in new.manifest_rows():
        yield f"INSERT INTO tables.{declared.name} {rows}"
    everything = committed(run_dir, folders, blocks)
    yield f"DROP SCHEMA IF EXISTS {RECENT} CASCADE"
    if source.held:
        yield from recent_views(new)
        for view in JOINED:
            yield f"INSERT INTO {HELD}.{view} {new.view_rows(VIEWS[view])}"
        yield f"INSERT INTO {HELD}.{ITEMS} {new.rows(ITEMS)}"
        yield f"DROP SCHEMA {RECENT} CASCADE"
    else:
        yield from recent_views(everything)
        for view in JOINED:
            yield shown(VIEWS[view], run_dir, _at(run_dir, everything.view_rows(VIEWS[view])))
            yield from comments(VIEWS[view])  # they went with the view of before
        yield from _table_view(TABLES[ITEMS], _at(run_dir, everything.rows(ITEMS)))
    for table in APART:
        yield from _table_view(TABLES[table], _at(run_dir, everything.rows(table)))
    if old is None:
        yield from _views(run_dir, source.held)
    recorded = record_rows(run_dir)
    for table, declared in RECORD_TABLES.items():
        yield f"DELETE FROM tables.{table}; INSERT INTO tables.{table} {literal(declared, recorded[table])}"
    yield "DELETE FROM tables.source; DELETE FROM tables.folders"
    yield f"INSERT INTO tables.source VALUES ({text(source.made_for)}, {source.held}, {text(source.blocks)})"
    stamps = [{"folder": folder, "stamp": stamp} for folder, stamp in source.stamps.items()]
    yield f"INSERT INTO tables.folders {literal(_FOLDERS, stamps)}"


def _declared() -> str:
    """All that is declared of a catalogue: one that was made by other declarations lacks columns."""
    views = (part for view in VIEWS.values() for part in (view.sql(), *comments(view)))
    tables = (
        f"{table.name} {column.name} {column.sql_type} {column.meaning}"
        for table in (*_SMALL.values(), *_TEXTS.values(), *RECORD_TABLES.values())
        for column in table
    )
    return "\0".join([STORAGE, _at(Path(), ""), *views, *tables])


def _begun(run_dir: Path, held: bool) -> Iterator[str]:
    """The schemas and the tables, without a row."""
    yield f"CREATE SCHEMA tables; CREATE SCHEMA {HELD}"
    yield "CREATE TABLE tables.source (made_for VARCHAR, held BOOLEAN, blocks VARCHAR)"
    yield f"COMMENT ON TABLE tables.source IS {_origin(run_dir)}"
    for table in (*_SMALL.values(), *RECORD_TABLES.values(), _FOLDERS):
        yield f"CREATE TABLE tables.{table.name} AS {literal(table, [])}"
        yield from described("TABLE", f"tables.{table.name}", table.meaning, table)
    for table in _TEXTS.values() if held else ():
        yield f"CREATE TABLE {HELD}.{table.name} AS {literal(table, [])}"
        yield from described("TABLE", f"{HELD}.{table.name}", table.meaning, table)


def _views(run_dir: Path, held: bool) -> Iterator[str]:
    """The views of the contract, over the tables."""
    if held:
        yield from _table_view(TABLES[ITEMS], f"FROM {HELD}.{ITEMS}")
    for view in VIEWS.values():
        if view.name not in JOINED:
            yield shown(view, run_dir, view.sql())
        elif held:
            yield shown(view, run_dir, f"FROM {HELD}.{view.name}")
        else:
            continue  # it is made at every publish
        yield from comments(view)


def _taken_out(generations: Collection[int], held: bool) -> Iterator[str]:
    """Remove the rows of these generations."""
    if not generations:
        return
    which = f"generation IN ({', '.join(map(str, sorted(generations)))})"
    kept = f"SELECT match_id FROM tables.matches WHERE NOT {which}"
    yield f"DELETE FROM tables.{RESULTS} WHERE match_id NOT IN ({kept})"
    for table in _SMALL:
        if table != RESULTS:
            yield f"DELETE FROM tables.{table} WHERE {which}"
    for table in _TEXTS if held else ():
        yield f"DELETE FROM {HELD}.{table} WHERE {which}"


def _table_view(table: Table, rows: str) -> Iterator[str]:
    yield f"CREATE OR REPLACE VIEW tables.{table.name} AS {rows}"
    yield from described("VIEW", f"tables.{table.name}", table.meaning, table)


def _at(run_dir: Path, rows: str) -> str:
    """The rows of files, which lie where the catalogue does; in another place a client gets a sentence.

    A view cannot tell which attached database is its own, so all that were made for this place must lie there.
    """
    place = text(str(run_dir / CATALOGUE))
    refusal = text(
        f"these rows lie in files of {run_dir}, and a catalogue from there is attached from another place: ask with "
        "populora query, which makes it again for the place where it is"
    )
    here = f"CASE WHEN bool_and(path IS NOT DISTINCT FROM {place}) THEN true ELSE error({refusal}) END"
    made_for = (
        "SELECT database_oid FROM duckdb_tables() "
        f"WHERE schema_name = 'tables' AND table_name = 'source' AND comment = {_origin(run_dir)}"
    )
    return f"SELECT * FROM ({rows}) WHERE (SELECT {here} FROM duckdb_databases() WHERE database_oid IN ({made_for}))"


def _origin(run_dir: Path) -> str:
    """The comment by which a catalogue is known wherever it was copied to."""
    return text(f"What this catalogue was made from, in {run_dir}.")


def _text_bytes(folders: Sequence[str]) -> int:
    """The bytes of the files whose rows have texts."""
    size = 0
    for folder in folders:
        stage = folder.rpartition("/")[2]
        for table in ("proposals", "problems", "attempts", ITEMS):
            if stage in TABLES[table].stages or (table == ITEMS and stage.startswith("evaluate")):
                with suppress(OSError):
                    size += os.path.getsize(f"{folder}/{table}.parquet")
    return size
