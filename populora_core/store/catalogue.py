"""The catalogue: a DuckDB file of the views of the data contract, swapped in by rename when brought up to date."""

from __future__ import annotations

import hmac
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb

from populora_core.store.answer import Answer, refusal
from populora_core.store.blocks import valid_blocks
from populora_core.store.committed import RECENT, committed, over_files
from populora_core.store.manifest import stage_folder_names
from populora_core.store.publication import CATALOGUE, HELD, STORAGE, CatalogueSource, statements
from populora_core.store.sql import (
    comments,
    full_disk_told,
    has_database,
    heeding_signals,
    literal_path,
    name,
    refusal_told,
    text,
)
from populora_core.store.views import VIEWS
from populora_core.support import durable, owner
from populora_core.support.errors import ArtifactError

MARK = "catalogue.mark"  # beside it: made by the key of the user who published it
SELECT, PIVOTED = "SELECT", "MULTI"  # DuckDB's kinds of a statement; the second is any that holds a PIVOT
# Names of DuckDB's databases and of schemas in all: a run attached under one could not be told from it.
_TAKEN = {"memory", "system", "temp", "main", "information_schema", "pg_catalog", "tables", HELD, RECENT}


def publish(run_dir: Path) -> Path:
    """Bring catalogue.duckdb up to date and swap it in; readers of the old one go on undisturbed.

    What it holds of generations whose stages are as they were is taken over. It takes nothing over from a catalogue of
    another place, version or user: its rows could be anything. In a folder whose name DuckDB takes in no path none is
    made: readers get its views in memory.

    Raises:
        ArtifactError: it could not be made or written; the old catalogue is untouched.
    """
    run_dir = run_dir.resolve()
    target, made = run_dir / CATALOGUE, "made"
    if not has_database(run_dir):
        return target
    folders = stage_folder_names(run_dir)
    # Before anything is read: what is committed meanwhile makes it stale.
    source = CatalogueSource.of(run_dir, folders)
    with durable.writing(target), durable.temporary_folder(run_dir, "catalogue") as folder:
        with full_disk_told(), duckdb.connect() as connection:
            old = _attached(connection, run_dir, "published")
            connection.execute("DETACH DATABASE IF EXISTS published")
            if not source.goes_on_from(old):
                old = None
            elif old is not None:
                shutil.copyfile(target, folder / CATALOGUE)
            connection.execute(
                f"ATTACH {text(str(folder / CATALOGUE))} AS {made} (STORAGE_VERSION {text(STORAGE)}); USE {made}"
            )
            _execute(connection, run_dir, statements(run_dir, folders, source, old))
            connection.execute(f"CHECKPOINT {made}; USE memory; DETACH {made}")
        durable.fsync(folder / CATALOGUE)
        mark = owner.mark(folder / CATALOGUE)
        os.replace(folder / CATALOGUE, target)
        durable.write_atomically(run_dir / MARK, mark + "\n")
        durable.fsync(run_dir)
    return target


def stale(run_dir: Path) -> bool:
    """True if the catalogue is missing, unreadable, or made for another place or other stage folders."""
    run_dir = run_dir.resolve()
    with duckdb.connect() as connection:
        return _attached(connection, run_dir, "published") != CatalogueSource.of(
            run_dir, stage_folder_names(run_dir)
        )


def _attached(connection: duckdb.DuckDBPyConnection, run_dir: Path, attached: str) -> CatalogueSource | None:
    """Attach the catalogue of a run, and what it says that it was made from.

    None if it is not ours or cannot be read.
    """
    if not has_database(run_dir) or not _ours(run_dir):
        return None
    try:
        _attach(connection, run_dir / CATALOGUE, attached)
    except duckdb.Error:
        return None
    return CatalogueSource.read(connection, attached)


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
        asked: with these, the SQL that will be asked: views that it does not name are left out, which saves most of
            the time.

    Raises:
        ArtifactError: a catalogue was stale and could not be built again.
    """

    def __init__(
        self,
        *run_dirs: Path,
        locked: bool = False,
        generations: Collection[int] | None = None,
        asked: str | None = None,
    ) -> None:
        directories = list(dict.fromkeys(path.resolve() for path in run_dirs))
        self._generations, self._asked = generations, asked
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
        if self._generations is None and has_database(directory):
            now = CatalogueSource.of(directory, stage_folder_names(directory))
            if _attached(self._connection, directory, attached) == now:
                return
            self._connection.execute(f"DETACH DATABASE IF EXISTS {name(attached)}")
            if os.access(directory, os.W_OK):
                with suppress(ArtifactError):  # a disk that is full still has rows to read
                    _attach(self._connection, publish(directory), attached)
                    return
        self._connection.execute(f"ATTACH ':memory:' AS {name(attached)}")
        self._connection.execute(f"USE {name(attached)}")
        _build(self._connection, directory, self._generations, self._asked)

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

    def rows(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """The answer to one SQL statement as dictionaries (see `query`), whose columns the statement alone knows."""
        return self.query(sql, parameters).arrow().to_pylist()


def _ours(run_dir: Path) -> bool:
    """True if this user published the catalogue: another's views are SQL that could read any file."""
    path = run_dir / CATALOGUE
    try:
        if not path.is_file() or not (run_dir / MARK).is_file():
            return False
        with (run_dir / MARK).open() as file:
            return hmac.compare_digest(file.read(64).encode(), owner.mark(path).encode())
    except (OSError, ValueError):
        return False


def run_labels(directories: Sequence[Path]) -> list[str]:
    """A name for each run that no other has: its folder's, with as much of the path as it takes.

    Names differ whatever their case, and from databases and schemas that are there, since the runs are attached under
    them.
    """
    for depth in range(1, max(len(path.parts) for path in directories) + 1):
        labels = ["/".join(path.parts[-depth:]) for path in directories]
        known = {label.lower() for label in labels}
        if len(known) == len(set(directories)) and not known & _TAKEN:
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
    if kinds != [SELECT] and not (kinds == [PIVOTED] and _is_table(connection, sql)):
        raise refusal(
            f"{', '.join(kinds) or 'no statement'}; locked SQL is one SELECT, FROM, PIVOT, DESCRIBE or SHOW"
        )


def _is_table(connection: duckdb.DuckDBPyConnection, sql: str) -> bool:
    """True if a statement can be read from, as a PIVOT can and a COPY of one cannot."""
    text = sql.encode()  # DuckDB counts in bytes
    end = next((at for at, _ in duckdb.tokenize(sql) if text[at : at + 1] == b";"), len(text))
    try:
        return len(connection.extract_statements(f"FROM ({text[:end].decode()}\n)")) == 1
    except duckdb.Error:
        return False


def _build(
    connection: duckdb.DuckDBPyConnection,
    run_dir: Path,
    generations: Collection[int] | None,
    asked: str | None,
) -> None:
    """Create views in the connection's database over the stages' files, of all generations or these."""
    blocks = valid_blocks(run_dir) if generations is None else []
    made = over_files(committed(run_dir, stage_folder_names(run_dir, generations), blocks), asked)
    if generations is None:  # a stage's summary has no reader of comments, and they take half of the time
        made = chain(made, chain.from_iterable(map(comments, VIEWS.values())))
    _execute(connection, run_dir, made)


def _execute(connection: duckdb.DuckDBPyConnection, run_dir: Path, statements: Iterable[str]) -> None:
    with refusal_told(f"the catalogue of {run_dir} could not be built"):
        together = "; ".join(["BEGIN", *statements, "COMMIT"])
        heeding_signals(connection, lambda: connection.execute(together))
