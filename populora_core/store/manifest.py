"""The manifest: what a stage wrote and what that follows from. Without one a stage is not done."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from populora_core.support.digest import file_sha256

MANIFEST = "manifest.json"
SHARDS_PREFIX = ".shards-"
PRUNED = ".pruned"  # an empty file of this suffix stands for one that `populora prune` removed


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of a stage folder.

    Attributes:
        name: path relative to the stage folder.
        sha256: of the bytes, to find damage.
        content: what stage keys are made of: the content hash of a table, the sha256 of any other file.
        rows: of a table; None for any other file.
    """

    name: str
    bytes: int
    sha256: str
    content: str
    rows: int | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a stage committed.

    Attributes:
        key: sha256 over everything that decides the content.
        config: the sections of the configuration that the stage read.
        inputs: artifact name -> content hash.
        attempt: how often the stage has been committed in this run directory.
        started_at: ISO 8601, UTC.
        extra: times, paths, hosts and what else is not content.
    """

    stage: str
    generation: int
    key: str
    stage_version: int
    seed: int
    config: dict[str, Any]
    inputs: dict[str, str]
    files: tuple[FileRecord, ...]
    attempt: int
    started_at: str
    seconds: float
    code_revision: str
    extra: dict[str, Any]

    @property
    def rows(self) -> int:
        """Rows of all tables together."""
        return sum(file.rows or 0 for file in self.files)

    def content(self, file_name: str) -> str:
        """The content hash of a file.

        Raises:
            KeyError: the stage wrote no such file.
        """
        return {file.name: file.content for file in self.files}[file_name]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Raises ValueError, TypeError or KeyError where `text` is not a whole manifest."""
        document = json.loads(text)
        files = tuple(FileRecord(**file) for file in document["files"])
        return cls(**{**document, "files": files})


def generation_dir(run_dir: Path, generation: int) -> Path:
    """The folder that holds the stages of a generation."""
    return run_dir / "generations" / f"{generation:04d}"


def stage_dir(run_dir: Path, generation: int, stage: str) -> Path:
    """The folder that holds what a stage committed."""
    return generation_dir(run_dir, generation) / stage


def shards_dir(run_dir: Path, generation: int, stage: str) -> Path:
    """The folder that holds the finished shards of a stage until it is committed."""
    return generation_dir(run_dir, generation) / f"{SHARDS_PREFIX}{stage}"


def stage_folders(run_dir: Path) -> Iterator[Path]:
    """Every stage folder of a run, by generation and name, committed whole or damaged."""
    return map(Path, stage_folder_names(run_dir))


def stage_folder_names(run_dir: Path, of: Collection[int] | None = None) -> list[str]:
    """The same as text: a long run has thousands, every publish asks, and making a Path of each takes longest.

    Args:
        of: these generations alone.
    """
    root = run_dir / "generations"
    generations = [
        entry
        for entry in (os.scandir(root) if root.is_dir() else ())
        if entry.name.isdigit() and (of is None or int(entry.name) in of)
    ]
    return [
        f"{generation.path}/{stage}"
        for generation in sorted(generations, key=lambda entry: int(entry.name))
        for stage in sorted(
            entry.name for entry in os.scandir(generation) if entry.name[0] != "." and entry.is_dir()
        )
    ]


def committed_stages(run_dir: Path) -> Iterator[tuple[Path, Manifest]]:
    """The stages with a readable manifest and all its files at their recorded sizes.

    Contents are not read, so that it stays cheap on long runs; `intact` reads them.
    """
    for folder in stage_folders(run_dir):
        manifest = read_manifest(folder)
        if manifest is not None and complete(folder, manifest):
            yield folder, manifest


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a stage folder, or None where there is none or it is damaged.

    A file that is unchanged is not read again. No one writes to what this gives.
    """
    path = f"{folder}/{MANIFEST}"
    try:
        status = os.stat(path)
        return _parsed(path, status.st_ino, status.st_mtime_ns, status.st_size)
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
        return None


@lru_cache(maxsize=1 << 12)
def _parsed(path: str, inode: int, mtime_ns: int, size: int) -> Manifest:
    return Manifest.from_json(Path(path).read_text(encoding="utf-8"))


def complete(folder: Path, manifest: Manifest) -> bool:
    """Whether every recorded file is there with its recorded size, or was pruned."""
    return all(_has_size(folder / file.name, file.bytes) for file in manifest.files)


def intact(folder: Path, manifest: Manifest) -> bool:
    """Whether every recorded file is there with its recorded bytes, or was pruned."""
    return complete(folder, manifest) and all(
        file_sha256(folder / file.name) == file.sha256
        for file in manifest.files
        if not pruned(folder / file.name)
    )


def pruned(path: Path) -> bool:
    """Whether the file was removed by `populora prune`, rather than lost."""
    return not path.exists() and path.with_name(path.name + PRUNED).exists()


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except (FileNotFoundError, NotADirectoryError):
        return pruned(path)
