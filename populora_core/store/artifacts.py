"""Stage folders: written aside, committed by one rename, set aside rather than overwritten."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from populora_core.store.hashing import content_hash
from populora_core.store.manifest import (
    MANIFEST,
    SHARDS_PREFIX,
    FileRecord,
    Manifest,
    read_manifest,
    stage_dir,
)
from populora_core.store.schema import check, table_of
from populora_core.support import durable
from populora_core.support.digest import file_sha256, files_below
from populora_core.support.errors import ArtifactError
from populora_core.support.received import below, require_no_way_out

_SCRATCH = ".scratch"
_SUPERSEDED = "superseded"
GIVEN_UP_SECONDS = 86400.0
"""Time without a write after which what cannot be seen from here counts as given up."""


class StageWriter:
    """A temporary folder for a stage's files; `commit` makes them the stage, all or none.

    Use it as a context manager: whatever ends the block before a commit leaves the run as it was.
    """

    def __init__(self, run_dir: Path, generation: int, stage: str) -> None:
        self._run_dir = run_dir
        self._generation = generation
        self._stage = stage
        self._target = below(run_dir, stage_dir(run_dir, generation, stage))
        self._folder = durable.temporary_name(self._target.parent, stage)
        self._tables: dict[str, tuple[str, int]] = {}  # file name -> content hash, rows

    def __enter__(self) -> StageWriter:
        with durable.writing(self._target):
            self._folder.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if isinstance(error, OSError) and durable.disk_full(error):
            raise durable.write_error(self._target, error) from error

    @property
    def scratch(self) -> Path:
        """A folder on the same disk for intermediate files; it is not committed."""
        folder = self._folder / _SCRATCH
        folder.mkdir(exist_ok=True)
        return folder

    def path(self, file_name: str) -> Path:
        """The path at which to write a file that is not a table; the commit takes it along."""
        return self._folder / file_name

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a declared table.

        Raises:
            SchemaError: the rows do not fit the declaration.
            ArtifactError: they could not be written.
        """
        check(name, table)
        path = self.path(f"{name}.parquet")
        with durable.writing(path):
            pq.write_table(table, path, compression="zstd")
        self._tables[path.name] = content_hash(table), table.num_rows

    def records(self) -> tuple[FileRecord, ...]:
        """The files that a commit would now commit, by name."""
        names = files_below(self._folder)
        return tuple(self._record(name) for name in names if not name.startswith(_SCRATCH))

    def _record(self, name: str) -> FileRecord:
        path = self.path(name)
        sha256 = file_sha256(path)
        content, rows = self._tables.get(name, (sha256, None))
        return FileRecord(name, path.stat().st_size, sha256, content, rows)

    def draft(
        self,
        *,
        key: str,
        stage_version: int,
        seed: int,
        config: Mapping[str, Any],
        inputs: Mapping[str, str],
        started: float,
        seconds: float,
        code_revision: str,
        extra: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """The manifest of the files as they are now.

        Args:
            started: when the stage started, in seconds since the epoch.
        """
        return Manifest(
            stage=self._stage,
            generation=self._generation,
            key=key,
            stage_version=stage_version,
            seed=seed,
            config=dict(config),
            inputs=dict(inputs),
            files=self.records(),
            attempt=_commits(self._run_dir, self._target) + 1,
            started_at=datetime.fromtimestamp(started, UTC).isoformat(timespec="microseconds"),
            seconds=seconds,
            code_revision=code_revision,
            extra=dict(extra or {}),
        )

    def commit(self, manifest: Manifest) -> Manifest:
        """Make the files the stage's output; what was there before goes to superseded/.

        Args:
            manifest: of these very files, from `draft` or from another machine that drafted it.

        Raises:
            ArtifactError: the disk refused; what was committed before is untouched.
        """
        with durable.writing(self._target):
            shutil.rmtree(self._folder / _SCRATCH, ignore_errors=True)
            self.path(MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
            durable.fsync_tree(self._folder)
            if self._target.exists():
                supersede(self._run_dir, self._target)
            os.rename(self._folder, self._target)
            for folder in (self._target.parent, self._target.parent.parent, self._run_dir):
                durable.fsync(folder)
        return manifest


def read_table(folder: Path, name: str, columns: Sequence[str] = ()) -> pa.Table:
    """A table of a committed stage, with its declared schema.

    Args:
        columns: those to read, in this order; none for all.

    Raises:
        ArtifactError: the file is missing, damaged, or has other columns.
    """
    path = folder / f"{name}.parquet"
    declared = table_of(name).only(columns)
    try:
        table = pq.ParquetFile(path).read(list(columns) or None)
        return (table.select(columns) if columns else table).cast(declared.arrow)
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise ArtifactError(
            f"{path} cannot be read",
            expected=f"the table {name} as its stage committed it",
            got=str(error),
            fix="populora resume makes missing and damaged stages again",
        ) from error


def supersede(run_dir: Path, path: Path) -> Path:
    """Move a file or folder of the run to superseded/N/, keeping its place below the run directory.

    Raises:
        ArtifactError: it could not be moved, or leads out of the run.
    """
    return supersede_all(run_dir, [path])[0]


def supersede_all(run_dir: Path, paths: Sequence[Path]) -> list[Path]:
    """Move files or folders of the run to one superseded/N/; see `supersede`.

    They go in order, each whole: a kill in between leaves the last of them, and another call moves these.

    Raises:
        ArtifactError: one could not be moved, or leads out of the run.
    """
    root = below(run_dir, _SUPERSEDED)
    for path in paths:
        below(run_dir, path)
    if not paths:
        return []
    with durable.writing(root):
        root.mkdir(exist_ok=True)
        number = 1 + max((int(old.name) for old in root.iterdir() if old.name.isdigit()), default=0)
        aside = root / f"{number:04d}"
        aside.mkdir()
        targets = [aside / path.relative_to(run_dir) for path in paths]
        for path, target in zip(paths, targets, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, target)
        above = (parent for target in targets for parent in target.relative_to(run_dir).parents)
        for folder in dict.fromkeys([*above, *(path.parent.relative_to(run_dir) for path in paths)]):
            durable.fsync(run_dir / folder)
    return targets


def sweep(run_dir: Path) -> list[Path]:
    """Remove what killed processes left half-written; returns the removed paths. Only under the run's lock.

    What cannot be seen from here, such as another host's, counts as given up a day after the last write to it.
    Shards of a stage that was committed after them go too; those of an unfinished one stay, for its resumption.
    """
    shards = f"generations/*/{SHARDS_PREFIX}*"
    removed = [folder for folder in run_dir.glob(shards) if _used_up(folder)]
    for folder in removed:
        with durable.writing(folder):
            shutil.rmtree(folder)
    given_up = time.time() - GIVEN_UP_SECONDS
    below = ("generations/*", shards, f"{shards}/*", "members/*", "blocks")
    parents = [run_dir, *(path for pattern in below for path in run_dir.glob(pattern) if path.is_dir())]
    return removed + [path for parent in parents for path in durable.sweep(parent, given_up)]


def _used_up(shards: Path) -> bool:
    """True if the stage of these shards was committed, and nothing was added since."""
    manifest = shards.parent / shards.name.removeprefix(SHARDS_PREFIX) / MANIFEST
    if not manifest.exists():
        return False
    committed = manifest.stat().st_mtime_ns
    return all(path.stat().st_mtime_ns <= committed for path in shards.rglob("*") if path.is_file())


def link_tree(source: Path, target: Path) -> None:
    """Give a folder a second place by hard links, all or nothing; a copy where the disk differs.

    Raises:
        ArtifactError: it could not be made, `target` is not free, or a link in `source` leads out of it.
    """
    require_no_way_out(source, sys.maxsize)
    ignore = shutil.ignore_patterns(f"{durable.TEMPORARY_PREFIX}*")
    with durable.writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with durable.temporary_folder(target.parent, target.name) as folder:
            shutil.copytree(
                source, folder / target.name, copy_function=_link_or_copy, ignore=ignore, symlinks=True
            )
            durable.fsync_tree(folder)
            os.rename(folder / target.name, target)
            durable.fsync(target.parent)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _commits(run_dir: Path, target: Path) -> int:
    """Number of commits of the folder's stage, as far as manifests tell."""
    earlier = (run_dir / _SUPERSEDED).glob(f"*/{target.relative_to(run_dir).as_posix()}")
    manifests = [read_manifest(folder) for folder in (target, *earlier)]
    return max((manifest.attempt for manifest in manifests if manifest), default=0)
