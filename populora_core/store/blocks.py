"""Blocks: the rows of many finished generations in few large Parquet files, for the catalogue's views alone.

A block holds what the views show of a range of generations: small tables as they are, one file instead of one a
generation, and the views of proposals, problems and attempts with their joins already made. Token ids and
log-probabilities stay in the stages' own files, which are never touched: nothing but the catalogue reads a block.

Its name, `blocks/0000-0063-DIGEST`, says which generations it holds and which manifests it was made from. A block
whose manifests are not those any more is left alone and not used; `populora prune` removes it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from populora_core.store.manifest import (
    MANIFEST,
    Manifest,
    complete,
    read_manifest,
    stage_dir,
)
from populora_core.store.manifest_tables import MANIFEST_TABLES, manifest_rows
from populora_core.store.sql import literal, parquet, refusal_told, text
from populora_core.store.tables import TABLES
from populora_core.store.views import VIEWS
from populora_core.support import durable
from populora_core.support.errors import ArtifactError
from populora_core.support.received import below

BLOCKS = "blocks"
GENERATIONS = 64  # at most, in one block
ROWS = 200_000  # attempts after which a block is full

JOINED = (
    "proposals",
    "problems",
    "attempts",
)  # views that a block holds instead of the tables that they join
APART = (
    *JOINED,
    "proposal_checks",
    "proposal_grades",
    "proposal_advantages",
    "problem_results",
    "attempt_grades",
    "attempt_advantages",
)
MERGED = tuple(name for name in TABLES if name not in APART)  # tables that a block holds as they are

_NAME = re.compile(r"(?P<first>\d{4,})-(?P<last>\d{4,})-(?P<digest>[0-9a-f]{16})$")
_FIRST_STAGES = ("found",)
_STAGES = tuple(
    dict.fromkeys(stage for table in TABLES.values() for stage in table.stages if stage != "found")
)


@dataclass(frozen=True, slots=True)
class CatalogueBlock:
    """One block that is valid.

    Attributes:
        generations: those that it holds.
    """

    folder: Path
    generations: range

    def file(self, name: str) -> Path:
        """The Parquet file with the rows of a table or view."""
        return self.folder / f"{name}.parquet"


def stages_in(generation: int) -> tuple[str, ...]:
    """The stages whose rows a block holds. Evaluations on request are not among them."""
    return _STAGES if generation else _FIRST_STAGES


def valid_blocks(run_dir: Path) -> list[CatalogueBlock]:
    """The blocks that hold what is committed now, by generation; no two overlap."""
    found: list[CatalogueBlock] = []
    named = [
        (name, folder) for folder in (run_dir / BLOCKS).glob("[0-9]*") if (name := _NAME.match(folder.name))
    ]
    for name, folder in sorted(named, key=lambda each: (int(each[0]["first"]), each[1].name)):
        generations = range(int(name["first"]), int(name["last"]) + 1)
        overlaps = bool(found) and generations.start < found[-1].generations.stop
        if not overlaps and _digest(run_dir, generations) == name["digest"]:
            found.append(CatalogueBlock(folder, generations))
    return found


def stale_blocks(run_dir: Path) -> list[Path]:
    """Folders of blocks that are of no more use."""
    used = {block.folder for block in valid_blocks(run_dir)}
    return [path for path in sorted((run_dir / BLOCKS).glob("[0-9]*")) if path not in used]


def compact(run_dir: Path, generations: int = GENERATIONS, rows: int = ROWS) -> list[CatalogueBlock]:
    """Make the blocks that are due: of whole generations, each of `generations` or of `rows` attempts.

    What remains at the end stays as it is until there is enough of it.

    Raises:
        ArtifactError: a stage's table is damaged, or a block could not be written.
    """
    run_dir = run_dir.resolve()
    held = {number for block in valid_blocks(run_dir) for number in block.generations}
    made: list[CatalogueBlock] = []
    pending: dict[int, list[Manifest]] = {}
    size, number = 0, 0
    while True:
        manifests = None if number in held else _manifests(run_dir, number)
        if manifests is not None:
            pending[number] = manifests
            size += sum(manifest.rows for manifest in manifests if manifest.stage == "solve")
        full = len(pending) >= generations or size >= rows
        if pending and (full or number in held):
            made.append(_make(run_dir, pending))
            pending, size = {}, 0
        if manifests is None and number not in held:
            return made
        number += 1


def _make(run_dir: Path, manifests: dict[int, list[Manifest]]) -> CatalogueBlock:
    generations = range(min(manifests), max(manifests) + 1)
    digest = _digest(run_dir, generations)
    target = below(run_dir, BLOCKS) / f"{generations.start:04d}-{generations[-1]:04d}-{digest}"
    with durable.writing(target):
        target.parent.mkdir(exist_ok=True)
        with durable.temporary_folder(target.parent, target.name) as folder:
            _write(run_dir, [manifest for found in manifests.values() for manifest in found], folder)
            if _digest(run_dir, generations) != digest:
                raise ArtifactError(
                    f"generations {generations.start} to {generations[-1]} changed while they were read",
                    fix="populora resume goes on; the run itself is untouched",
                )
            durable.fsync_tree(folder)
            if not target.exists():
                os.rename(folder, target)
            durable.fsync(target.parent)
    return CatalogueBlock(target, generations)


def _write(run_dir: Path, manifests: Sequence[Manifest], folder: Path) -> None:
    for name in MERGED:
        tables = [_whole(path) for path in _files(run_dir, manifests, name)]
        schema = _columns_of(name, tables)
        with pq.ParquetWriter(folder / f"{name}.parquet", schema, compression="zstd") as writer:
            everything = pa.concat_tables([schema.empty_table(), *tables], promote_options="default")
            writer.write_table(everything.select(schema.names).cast(schema))
    spilled = folder / ".spilled"
    with duckdb.connect(config={"temp_directory": str(spilled)}) as connection:
        rows = manifest_rows(manifests)
        for name, table in MANIFEST_TABLES.items():
            _copy(connection, literal(table, rows[name]), folder / f"{name}.parquet")
        connection.execute("CREATE SCHEMA tables")
        for name in APART:
            files = _files(run_dir, manifests, name)
            connection.execute(f"CREATE VIEW tables.{name} AS {parquet(TABLES[name], files, files)}")
        for name in JOINED:
            _copy(connection, VIEWS[name].sql(), folder / f"{name}.parquet")
    shutil.rmtree(spilled, ignore_errors=True)


def _columns_of(name: str, tables: Sequence[pa.Table]) -> pa.Schema:
    """The declared columns of a table; those that an older version did not write are null in its rows."""
    always = set(TABLES[name].arrow.names).intersection(*(table.column_names for table in tables))
    return pa.schema(
        [column if column.name in always else column.with_nullable(True) for column in TABLES[name].arrow]
    )


def _copy(connection: duckdb.DuckDBPyConnection, sql: str, path: Path) -> None:
    with refusal_told(f"{path.name} of a block could not be written"):
        connection.execute(f"COPY ({sql}) TO {text(str(path))} (FORMAT parquet, COMPRESSION zstd)")


def _files(run_dir: Path, manifests: Sequence[Manifest], name: str) -> list[Path]:
    """The table's files; a stage that an older version made may lack it."""
    return [
        stage_dir(run_dir, manifest.generation, manifest.stage) / file.name
        for manifest in manifests
        for file in manifest.files
        if file.name == f"{name}.parquet"
    ]


def _manifests(run_dir: Path, generation: int) -> list[Manifest] | None:
    """The manifests of a generation's stages in order; None unless all are committed."""
    found = []
    for stage in stages_in(generation):
        folder = stage_dir(run_dir, generation, stage)
        manifest = read_manifest(folder)
        if manifest is None or not complete(folder, manifest):
            return None
        found.append(manifest)
    return found


def _digest(run_dir: Path, generations: range) -> str:
    """Digest of a block's inputs: the manifests, by when they were written, and the declared columns."""
    digest = hashlib.sha256(_declared().encode())
    for manifest in _manifest_files(run_dir, generations):
        try:
            status = os.stat(manifest)
        except FileNotFoundError:
            return ""
        digest.update(f"\0{status.st_mtime_ns} {status.st_size}".encode())
    return digest.hexdigest()[:16]


def _manifest_files(run_dir: Path, generations: range) -> Iterator[str]:
    for number in generations:
        for stage in stages_in(number):
            yield f"{run_dir}/generations/{number:04d}/{stage}/{MANIFEST}"


@cache
def _declared() -> str:
    tables = [*(TABLES[name] for name in MERGED), *MANIFEST_TABLES.values()]
    columns = [f"{table.name} {column.name} {column.sql_type}" for table in tables for column in table]
    return "\n".join([*columns, *(VIEWS[name].sql() for name in JOINED)])


def _whole(path: Path) -> pa.Table:
    try:
        return pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(
            f"{path} cannot be read", got=str(error), fix="populora resume makes damaged stages again"
        ) from error
