"""The catalogue: a DuckDB file of views over the committed Parquet files, always rebuilt whole."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb

from populora_core.store.answer import Answer, refusal
from populora_core.store.blocks import APART, JOINED, MERGED, CatalogueBlock, stages_in, valid_blocks
from populora_core.store.columns import Table
from populora_core.store.manifest import Manifest, complete, read_manifest, stage_folder_names
from populora_core.store.manifest_tables import MANIFEST_TABLES, manifest_rows
from populora_core.store.sql import (
    comments,
    full_disk_told,
    has_database,
    heeding_signals,
    literal,
    literal_path,
    name,
    parquet,
    refusal_told,
    text,
)
from populora_core.store.tables import TABLES
from populora_core.store.views import VIEWS, View
from populora_core.support import durable, owner

CATALOGUE = "catalogue.duckdb"
MARK = "catalogue.mark"  # beside it: made by the key of the user who published it
SELECTING = {"SELECT", "MULTI"}  # DuckDB's kinds of a statement that only reads; MULTI is PIVOT
_DUCKDBS = {"memory", "system", "temp"}
RECENT = "recent"  # schema of the tables that the blocks' views join: of the generations in no block


def publish(run_dir: Path) -> Path:
    """Build catalogue.duckdb again and swap it in; readers of the old one go on undisturbed.

    It holds absolute paths, so that any DuckDB client in any folder can open it. In a folder whose name DuckDB takes
    in no path none is built: readers get its views in memory.

    Raises:
        ArtifactError: it could not be built or written; the old catalogue is untouched.
    """
    run_dir = run_dir.resolve()
    target = run_dir / CATALOGUE
    if not has_database(run_dir):
        return target
    with durable.writing(target), durable.temporary_folder(run_dir, "catalogue") as folder:
        with full_disk_told(), duckdb.connect(folder / CATALOGUE) as connection:
            _build(connection, run_dir)
        durable.fsync(folder / CATALOGUE)
        mark = owner.mark(folder / CATALOGUE)
        os.replace(folder / CATALOGUE, target)
        durable.write_atomically(run_dir / MARK, mark + "\n")
        durable.fsync(run_dir)
    return target


def stale(run_dir: Path) -> bool:
    """True if the catalogue is missing, unreadable, or made for another place or other stage folders."""
    run_dir = run_dir.resolve()
    if not _ours(run_dir):
        return True
    with duckdb.connect() as connection:
        try:
            _attach(connection, run_dir / CATALOGUE, "catalogue")
            row = connection.execute("SELECT digest FROM catalogue.tables.source").fetchone()
        except duckdb.Error:
            return True
    return row != (_source(run_dir, valid_blocks(run_dir), stage_folder_names(run_dir)),)


class Catalogue:
    """One run's catalogue opened for reading, or several runs' as one.

    It goes on showing the stages that were committed at its opening. A stale catalogue is published again; who may
    not write to the run gets the same views in memory. Of several runs each view holds all rows, told apart by
    the column `run`; each run's own catalogue is attached under that name.

    Args:
        locked: for SQL that somebody else wrote: it reads these runs alone, and one statement at a time that only
            selects. Otherwise a statement may do all that DuckDB can: read and write files, attach databases.
        generations: of one run, show the stages of these alone, and publish nothing. What a view counts since the
            first generation begins with them.

    Raises:
        ArtifactError: a catalogue was stale and could not be built again.
    """

    def __init__(
        self, *run_dirs: Path, locked: bool = False, generations: Collection[int] | None = None
    ) -> None:
        directories = list(dict.fromkeys(path.resolve() for path in run_dirs))
        self._generations = generations
        self._connection = duckdb.connect()
        self._shown = "catalogue"  # the database whose views a query sees
        self._locked = locked
        try:
            self._open(directories)
            if locked:
                _lock(self._connection, directories)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, directories: Sequence[Path]) -> None:
        if len(directories) == 1:
            self._attach(directories[0], self._shown)
            return
        labels = run_labels(directories)
        for directory, label in zip(directories, labels, strict=True):
            self._attach(directory, label)
        self._shown = "memory"
        self._connection.execute("USE memory")
        for view in VIEWS.values():
            parts = (f"SELECT * REPLACE ({text(run)} AS run) FROM {name(run)}.{view.name}" for run in labels)
            self._connection.execute(f"CREATE VIEW {view.name} AS {' UNION ALL '.join(parts)}")
            self._connection.execute("; ".join(comments(view)))

    def _attach(self, directory: Path, attached: str) -> None:
        in_memory = self._generations is not None or not has_database(directory)
        if not in_memory and stale(directory):
            in_memory = not os.access(directory, os.W_OK)
            if not in_memory:
                publish(directory)
        if not in_memory:
            _attach(self._connection, directory / CATALOGUE, attached)
            return
        self._connection.execute(f"ATTACH ':memory:' AS {name(attached)}")
        self._connection.execute(f"USE {name(attached)}")
        _build(self._connection, directory, self._generations)

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def query(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Answer:
        """Answer one SQL statement from the views; see `Answer` for what to take it as.

        Args:
            parameters: values for `?` or `$name` in the statement.

        Raises:
            PopuloraError: DuckDB refused the statement, or it gives no rows to return.
        """
        connection = self.connect()  # of its own, so that several answers can be read side by side
        try:
            if self._locked:
                _require_selection(connection, sql)
            relation = heeding_signals(connection, lambda: connection.sql(sql, params=parameters or None))
        except duckdb.Error as error:
            raise refusal(str(error)) from error
        if relation is None:
            raise refusal("it gives no rows")
        return Answer(connection, relation)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection to the same views, for tools that take one, such as a notebook's SQL cells."""
        connection = self._connection.cursor()
        connection.execute(f"USE {self._shown}")
        return connection

    def rows(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[dict[str, Any]]:
        """The answer to one SQL statement as plain rows (see `query`)."""
        return self.query(sql, parameters).arrow().to_pylist()


def _ours(run_dir: Path) -> bool:
    """True if this user published the catalogue: another's views are SQL that could read any file."""
    try:
        if not (run_dir / CATALOGUE).is_file() or not (run_dir / MARK).is_file():
            return False
        with (run_dir / MARK).open() as file:
            return hmac.compare_digest(file.read(64).encode(), owner.mark(run_dir / CATALOGUE).encode())
    except (OSError, ValueError):
        return False


def run_labels(directories: Sequence[Path]) -> list[str]:
    """A name for each run that no other has: its folder's, with as much of the path as it takes.

    Names differ whatever their case, and from DuckDB's own databases, since the runs are attached under them.
    """
    for depth in range(1, max(len(path.parts) for path in directories) + 1):
        labels = ["/".join(path.parts[-depth:]) for path in directories]
        known = {label.lower() for label in labels}
        if len(known) == len(set(directories)) and not known & _DUCKDBS:
            return labels
    return [str(path) for path in directories]


def _attach(connection: duckdb.DuckDBPyConnection, path: Path, attached: str) -> None:
    """Make the catalogue at `path` readable under a name.

    Attached rather than connected to: one process gets the same database for the same path as long as any
    connection to it is open, hence an outdated catalogue after a swap.
    """
    connection.execute(f"ATTACH {text(str(path))} AS {name(attached)} (READ_ONLY)")


def _lock(connection: duckdb.DuckDBPyConnection, directories: Sequence[Path]) -> None:
    """Leave the database, and every connection to it, these folders to read and no setting to change."""
    # DuckDB asks twice: of the path as the views spell it, then of each file that it stands for
    spelled = {path for directory in directories for path in (str(directory), literal_path(directory))}
    allowed = ", ".join(text(path) for path in sorted(spelled))
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _require_selection(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse what is not one SELECT: folders that may be read may be written by COPY, and EXPLAIN ANALYZE runs it."""
    kinds = [statement.type.name for statement in connection.extract_statements(sql)]
    if len(kinds) != 1 or kinds[0] not in SELECTING:
        raise refusal(
            f"{', '.join(kinds) or 'no statement'}; locked SQL is one SELECT, FROM, PIVOT, DESCRIBE or SHOW"
        )


def _build(
    connection: duckdb.DuckDBPyConnection, run_dir: Path, generations: Collection[int] | None = None
) -> None:
    """Create all views in the connection's database, over all generations or these."""
    blocks = valid_blocks(run_dir) if generations is None else []
    folders = stage_folder_names(run_dir, generations)
    # Before the manifests are read: what is committed meanwhile makes it stale.
    source = _source(run_dir, blocks, folders)
    with refusal_told(f"the catalogue of {run_dir} could not be built"):
        statements = "; ".join(_statements(run_dir, blocks, folders, source))
        if generations is None:  # a stage's summary has no reader of comments, and they take half of the time
            statements += "; " + "; ".join(chain.from_iterable(map(comments, VIEWS.values())))
        heeding_signals(connection, lambda: connection.execute(f"BEGIN; {statements}; COMMIT"))


def _source(run_dir: Path, blocks: Sequence[CatalogueBlock], folders: Sequence[str]) -> str:
    """A digest that changes when the run moves, when a stage folder comes, goes or is replaced, and with blocks.

    And with the declared views: a catalogue of an older version lacks columns.
    """
    declared = (part for view in VIEWS.values() for part in (view.sql(), *comments(view)))
    parts = [str(run_dir), *(block.folder.name for block in blocks), *declared]
    digest = hashlib.sha256("\0".join(parts).encode())
    for folder in folders:
        with suppress(FileNotFoundError):  # set aside meanwhile
            digest.update(f"\0{folder} {os.stat(folder).st_mtime_ns}".encode())
    return digest.hexdigest()


def _statements(
    run_dir: Path, blocks: Sequence[CatalogueBlock], folders: Sequence[str], source: str
) -> Iterable[str]:
    held = {
        f"{run_dir}/generations/{number:04d}/{stage}": _apart_of(stage)
        for block in blocks
        for number in block.generations
        for stage in stages_in(number)
    }
    files: dict[str, list[str]] = {table: [] for table in TABLES}
    recent: dict[str, list[str]] = {table: [] for table in APART}
    # table -> a file of each block and of each version of its stage: what may lack columns that came later.
    kinds: dict[str, dict[object, str]] = {table: {} for table in TABLES}
    manifests: list[Manifest] = []
    for block in blocks:
        for table in MERGED:
            files[table].append(str(block.file(table)))
            kinds[table][block] = str(block.file(table))
    for folder in folders:
        if (tables := held.get(folder)) is not None:
            for table in tables:
                if os.path.exists(path := f"{folder}/{table}.parquet"):
                    files[table].append(path)
                    kinds[table].setdefault("held", path)
            continue
        manifest = read_manifest(Path(folder))
        if manifest is None or not complete(Path(folder), manifest):
            continue
        manifests.append(manifest)
        for file in manifest.files:
            table = file.name.removesuffix(".parquet")
            if table in files:
                files[table].append(f"{folder}/{file.name}")
                kinds[table].setdefault((manifest.stage, manifest.stage_version), f"{folder}/{file.name}")
            if table in recent:
                recent[table].append(f"{folder}/{file.name}")
    manifests.sort(key=lambda manifest: (manifest.generation, manifest.started_at))

    yield "CREATE SCHEMA tables"
    yield f"CREATE VIEW tables.source AS SELECT {text(source)} AS digest"
    for table, paths in files.items():
        yield f"CREATE VIEW tables.{table} AS {parquet(TABLES[table], paths, list(kinds[table].values()))}"
    rows = manifest_rows(manifests)
    for table, declared in MANIFEST_TABLES.items():
        yield f"CREATE VIEW tables.{table} AS {_with_blocks(declared, blocks, literal(declared, rows[table]))}"
    if blocks:
        yield f"CREATE SCHEMA {RECENT}"
        for table, paths in recent.items():
            yield f"CREATE VIEW {RECENT}.{table} AS {parquet(TABLES[table], paths, list(kinds[table].values()))}"
    for view in VIEWS.values():
        yield f"CREATE VIEW {view.name} AS SELECT *, {text(run_dir.name)} AS run FROM ({_rows(view, blocks)})"


def _rows(view: View, blocks: Sequence[CatalogueBlock]) -> str:
    if not blocks or view.name not in JOINED:
        return view.sql()
    return _with_blocks(
        Table(view.name, (), view.meaning, tuple(item.column for item in view.columns)),
        blocks,
        view.sql(RECENT),
    )


def _with_blocks(table: Table, blocks: Sequence[CatalogueBlock], others: str) -> str:
    """The rows that the blocks hold, and those of the other generations."""
    if not blocks:
        return others
    return f"{parquet(table, [block.file(table.name) for block in blocks])} UNION ALL {others}"


@cache
def _apart_of(stage: str) -> tuple[str, ...]:
    """The tables of a stage that no block holds."""
    return tuple(table for table in APART if stage in TABLES[table].stages)
