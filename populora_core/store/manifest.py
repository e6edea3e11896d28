"""The manifest: what a stage wrote and what that follows from. Without one a stage is not done."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, TypeAdapter
from typing_extensions import TypedDict

from populora_core.support.digest import file_sha256
from populora_core.support.errors import DamagedText
from populora_core.support.plain import read_plain
from populora_core.support.received import (
    AdapterPath,
    MemberId,
    PlainName,
    RelativePath,
    Sha256,
    Time,
    Whole,
    validated,
)

MANIFEST = "manifest.json"
SHARDS_PREFIX = ".shards-"
EVALUATION = "evaluate-"  # and the suite: the folder of an evaluation, beside the stages of its generation
_STRICT = ConfigDict(extra="forbid")
METRIC_NAME = r"^[a-z][a-z0-9_]{0,59}$"
MetricName = Annotated[str, StringConstraints(pattern=METRIC_NAME)]
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

    __pydantic_config__ = _STRICT

    name: RelativePath
    bytes: Whole
    sha256: Sha256
    content: Sha256
    rows: Whole | None


class SamplerProof(TypedDict):
    """Evidence, from an update's tokens, that the sampler serves a member (see `sampler.proof.MemberProof`)."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    told: str
    tokens: int
    mean: float
    p99: float
    alike: list[str]


class Extra(TypedDict, total=False):
    """The part of a manifest's `extra` that is read back.

    Attributes:
        adapters: place below the run directory -> file name -> sha256, of the members that the stage wrote.
        member_seconds: of the update of each member.
        members: the members of an evaluation: all, best, or an id.
        tokens: that were drawn, or learnt from with their prompts.
        prompt_tokens, cached_tokens: of the prompts that were completed; those that the engine had in its cache.
        gpu_busy: share of the time in which GPUs computed.
        mfu: share of the GPUs' peak that an update reached.
        seconds_before: between the end of the stage before, in the same session, and this one's start.
        proof: of the members that an update learnt from, where rounding may hide a fault.
        made_with: base, dialect, sandbox and sampler, as the key has them.
        again: what had moved where the stage was made again.
        summary: a sentence on what came of a plug-in's stage.
        metrics: figures that need no column of a table, by name.
    """

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    adapters: dict[AdapterPath, dict[PlainName, Sha256]]
    member_seconds: dict[MemberId, float]
    members: str
    tokens: int
    prompt_tokens: int
    cached_tokens: int
    gpu_busy: float
    mfu: float
    seconds_before: float
    proof: dict[MemberId, SamplerProof]
    made_with: dict[str, Any]
    again: list[str]
    summary: str
    metrics: dict[MetricName, Annotated[float, Field(allow_inf_nan=False)]]


_EXTRA = TypeAdapter(Extra)


def _checked(extra: dict[str, Any]) -> dict[str, Any]:
    _EXTRA.validate_python(extra, strict=True)
    return extra


@dataclass(frozen=True, slots=True)
class Manifest:
    """The record of a committed stage.

    Attributes:
        key: sha256 over everything that decides the content.
        config: the sections of the configuration that the stage read.
        inputs: artifact name -> content hash.
        attempt: how often the stage has been committed in the run directory that made it.
        started_at: ISO 8601, UTC.
        extra: times, paths, hosts and what else is not content.
    """

    __pydantic_config__ = _STRICT

    stage: PlainName
    generation: Whole
    key: Sha256
    stage_version: Whole
    seed: Whole
    config: dict[str, Any]
    inputs: dict[str, str]
    files: tuple[FileRecord, ...]
    attempt: Whole
    started_at: Time
    seconds: float
    code_revision: str
    extra: Annotated[dict[str, Any], AfterValidator(_checked)]

    @property
    def rows(self) -> int:
        """Rows of all tables together."""
        return sum(file.rows or 0 for file in self.files)

    @property
    def contents(self) -> dict[str, str]:
        """File name -> content hash."""
        return {file.name: file.content for file in self.files}

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


_MANIFEST = TypeAdapter(Manifest)


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
            entry.name
            for entry in os.scandir(generation)
            if entry.name[0] != "." and entry.is_dir(follow_symlinks=False)
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
    """The manifest of a stage folder, or None where there is none, or it is damaged or another stage's.

    A file that is unchanged is not read again. No one writes to what this gives.
    """
    path = f"{folder}/{MANIFEST}"
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        found = _parsed(path, status.st_ino, status.st_mtime_ns, status.st_size)
    except (FileNotFoundError, NotADirectoryError, DamagedText):
        return None
    return found if _place(found) == (folder.parent.name, folder.name) else None


# Each generation, planning and the report ask for the manifests of all earlier ones, in order: some ten of each. A
# cache that is smaller than these sets would lose each manifest before it is asked for again; this one holds 1,600
# generations of them, at some 7 KB a manifest.
@lru_cache(maxsize=1 << 14)
def _parsed(path: str, inode: int, mtime_ns: int, size: int) -> Manifest:
    return validated(_MANIFEST, read_plain(Path(path)), path)


def _place(manifest: Manifest) -> tuple[str, str]:
    return f"{manifest.generation:04d}", manifest.stage


def complete(folder: Path, manifest: Manifest) -> bool:
    """True if every recorded file has its recorded size, or was pruned."""
    return all(_has_size(folder / file.name, file.bytes) for file in manifest.files)


def intact(folder: Path, manifest: Manifest) -> bool:
    """True if every recorded file has its recorded bytes, or was pruned."""
    return not damaged(folder, manifest)


def damaged(folder: Path, manifest: Manifest) -> list[str]:
    """The recorded files that are missing, or have other bytes."""
    return [
        file.name
        for file in manifest.files
        if not _has_size(folder / file.name, file.bytes)
        or (not pruned(folder / file.name) and file_sha256(folder / file.name) != file.sha256)
    ]


def pruned(path: Path) -> bool:
    """True if the file was removed by `populora prune`, rather than lost."""
    return not path.exists() and path.with_name(path.name + PRUNED).exists()


def _has_size(path: Path, size: int) -> bool:
    try:
        status = path.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_size == size
    except (FileNotFoundError, NotADirectoryError):
        return pruned(path)
