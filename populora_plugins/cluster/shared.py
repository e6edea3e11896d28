"""A run's shared store: what its run directories on several machines agree on.

    URL/run.json                             the run's record
    URL/stages/<generation>/<stage>/<key>    what a stage is, once and for all: its manifest, which names its files
    URL/objects/<sha256>                     every file of every stage and of every member's PEFT folder
    URL/history/000001                       the first redraw, then the second ..., each the whole of redraws.json

A stage's files are uploaded first, then its one small document is put if it is absent; whoever comes second takes what
stands there in place of its own. So one key has one result, and a machine that dies in between leaves files that
no one names. Nothing is overwritten: other inputs or another seed make another key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from populora_core.sharing.objects import ObjectStore
from populora_core.sharing.places import open_objects
from populora_core.store.adapters import ADAPTER_FILES, MOMENTS, PROBE, STATE_FILES, staged_adapter
from populora_core.store.artifacts import StageWriter
from populora_core.store.manifest import FileRecord, Manifest, committed_stages, pruned
from populora_core.store.record import RECORD, RECORDED, REWRITTEN, RunRecord
from populora_core.support.digest import file_sha256
from populora_core.support.errors import (
    ArtifactError,
    DamagedText,
    RunDirectoryError,
    StoreUnavailable,
)
from populora_core.support.received import below, validated
from populora_core.support.typed import shown
from populora_plugins.cluster.trials import require_conditional

STAGES = "stages"
HISTORY = "history"
STREAMS = 8  # files on their way at a time
_MEMBER = (*ADAPTER_FILES, MOMENTS, PROBE)  # the files of a member's folder


@dataclass(frozen=True, slots=True)
class SharedStage:
    """The shared record of a stage, the same for every run directory of the run.

    Attributes:
        adapters: the files of its PEFT folders; names are relative to the run directory.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    manifest: Manifest
    adapters: tuple[FileRecord, ...]

    @property
    def key(self) -> str:
        return entry_key(self.manifest.generation, self.manifest.stage, self.manifest.key)

    def to_bytes(self) -> bytes:
        return _document(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes, url: str, name: str) -> SharedStage:
        """The entry under this name. Raises ArtifactError where the document is not one of ours, or of another name."""
        try:
            entry = validated(_ENTRY, data, f"{url}/{name}")
            entry._require(name)
            return entry
        except DamagedText as error:
            raise ArtifactError(
                f"{url}/{name} cannot be read",
                expected="the manifest of a stage, as populora puts it",
                got=error.problem,
                fix="restore the store from a copy",
            ) from error

    def _require(self, name: str) -> None:
        """Raise DamagedText unless this is the entry of that name, with exactly the files of its members."""
        if self.key != name:
            raise DamagedText(f"it is the entry {self.key}")
        members = self.manifest.extra.get("adapters", {})
        files = {file.name: file.sha256 for file in self.adapters}
        if len(files) != len(self.adapters) or files.keys() != {
            f"{path}/{n}" for path in members for n in _MEMBER
        }:
            raise DamagedText("its files are not those of its members")
        if any(files[f"{path}/{n}"] != sha for path, hashes in members.items() for n, sha in hashes.items()):
            raise DamagedText("its members have other hashes than their files")


_ENTRY = TypeAdapter(SharedStage)


def entries_under(generation: int, stage: str) -> str:
    return f"{STAGES}/{generation:04d}/{stage}"


def entry_key(generation: int, stage: str, key: str) -> str:
    return f"{entries_under(generation, stage)}/{key}"


class SharedRun:
    """The shared store of one run, as one of its run directories sees it."""

    def __init__(self, objects: ObjectStore, run_dir: Path, redraws: Mapping[str, int]) -> None:
        """Open it; raise RunDirectoryError if another machine redrew a stage that this directory knows nothing of."""
        self._objects = objects
        self._run_dir = run_dir
        history = read_history(objects)
        self._known = len(history)
        if (history[-1] if history else {}) != redraws:
            raise self._rewritten()

    def find(self, generation: int, stage: str, key: str) -> SharedStage | None:
        """The stage under this key, or None if no machine has made it."""
        name = entry_key(generation, stage, key)
        data = self._objects.get(name)
        return None if data is None else SharedStage.from_bytes(data, self._objects.url, name)

    def found(self, generation: int, stage: str) -> list[SharedStage]:
        """All that the stage ever was, under any key."""
        listed = self._objects.listing(entries_under(generation, stage))
        entries = (self.find(generation, stage, item.key.rpartition("/")[2]) for item in listed)
        return [entry for entry in entries if entry is not None]

    def settle(self, manifest: Manifest, writer: StageWriter) -> Manifest:
        """Share a stage that is about to be committed.

        Returns:
            What the stage is: this manifest, or the one that another machine put first, and then the writer
            holds that one's files.

        Raises:
            StoreUnavailable: the store does not answer; nothing was committed.
            RunDirectoryError: another machine redrew a stage meanwhile.
        """
        if self._objects.get(_rewrite(self._known + 1)) is not None:
            raise self._rewritten()
        folders = {path: staged_adapter(writer, path) for path in _adapters_of(manifest)}
        ours = SharedStage(manifest, _adapter_records(folders))
        self._upload(
            [
                *(writer.path(file.name) for file in manifest.files),
                *(folders[_folder(file)] / _name(file) for file in ours.adapters),
            ]
        )
        if self._objects.put_if_absent(ours.key, ours.to_bytes()):
            return manifest
        theirs = self.find(manifest.generation, manifest.stage, manifest.key)
        if theirs is None:
            raise StoreUnavailable(
                f"{self._objects.url}/{ours.key} was removed while it was being put",
                expected="documents that no one removes",
                fix="resume: this stage is then shared again",
            )
        self.bring(theirs, writer)
        return theirs.manifest

    def bring(self, entry: SharedStage, writer: StageWriter) -> None:
        """Fill the writer with a stage's files, by hash; what it holds already stays.

        Raises:
            ArtifactError: an object is missing or damaged in the store.
        """
        wanted = {below(writer.path(""), file.name): file for file in entry.manifest.files}
        for record in writer.records():
            if writer.path(record.name) not in wanted:
                writer.path(record.name).unlink()
        for file in entry.adapters:
            wanted[staged_adapter(writer, _folder(file)) / _name(file)] = file
        lacking = [
            (file.sha256, path, file.bytes)
            for path, file in wanted.items()
            if not path.is_file() or file_sha256(path) != file.sha256
        ]
        with ThreadPoolExecutor(STREAMS) as pool:
            list(pool.map(lambda item: self._objects.fetch(*item), lacking))

    def push(self, redraws: Mapping[str, int]) -> None:
        """Share what was committed without this store: the inherited generations of a fork, and their redraws.

        Generation by generation, so that a pull sees by the last one what was cut short.
        """
        if redraws:
            self.redraw(redraws)
        for folder, manifest in committed_stages(self._run_dir):
            folders = {path: self._run_dir / path for path in _adapters_of(manifest)}
            entry = SharedStage(manifest, _adapter_records(folders))
            self._upload(
                [
                    *(folder / file.name for file in manifest.files),
                    *(self._run_dir / file.name for file in entry.adapters),
                ]
            )
            self._objects.put_if_absent(entry.key, entry.to_bytes())

    def redraw(self, redraws: Mapping[str, int]) -> None:
        """Say to all machines that a stage is drawn with another seed from now on.

        Raises:
            RunDirectoryError: another machine said something else first; nothing was changed.
        """
        if not self._objects.put_if_absent(_rewrite(self._known + 1), _document({"redraws": dict(redraws)})):
            raise self._rewritten()
        self._known += 1

    def _upload(self, files: Iterable[Path]) -> None:
        once = {file_sha256(path): path for path in files}  # most members' adapter_config.json are one object
        with ThreadPoolExecutor(STREAMS) as pool:
            list(pool.map(partial(self._objects.put, lasting=True), once.values()))

    def _rewritten(self) -> RunDirectoryError:
        return RunDirectoryError(
            f"{self._run_dir} and {self._objects.url} tell different histories of the run",
            expected="the same redraws of stages in both",
            got="a `populora rerun --seed` that only one of them knows",
            fix=f"populora pull {self._objects.url} {shown(self._run_dir)} takes the store's over; "
            "what no longer follows goes to superseded/",
        )


def require_unpruned(url: str, run_dir: Path, generation: int) -> None:
    """Raise ArtifactError unless every file up to a generation is there for a fork to share."""
    gone = [
        path
        for folder, manifest in committed_stages(run_dir)
        if manifest.generation <= generation
        for path in (
            *(folder / file.name for file in manifest.files),
            *(run_dir / member / name for member in _adapters_of(manifest) for name in STATE_FILES),
        )
        if pruned(path)
    ]
    if gone:
        raise ArtifactError(
            f"{url} cannot hold the whole run: populora prune removed some of it",
            expected="a run of which every file is there",
            got=f"{gone[0]} and {len(gone) - 1} more are pruned",
            fix="fork without a store.url, or from a run directory that was not pruned",
        )


def open_shared(url: str, run_dir: Path, record: Mapping[str, Any], redraws: Mapping[str, int]) -> SharedRun:
    """The shared store of an existing run.

    Raises:
        StoreUnavailable: it does not answer, or cannot refuse a second writer.
        RunDirectoryError: it holds no run or another one, or its history is another.
    """
    objects = open_objects(url)
    require_same(url, run_dir, record, read_record(objects))
    require_conditional(objects)
    return SharedRun(objects, run_dir, redraws)


def require_same(url: str, run_dir: Path, record: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Raise RunDirectoryError unless the record of the run directory is that of the store's run."""
    if _identity(stored) != _identity(record):
        raise RunDirectoryError(
            f"{url} holds another run than {run_dir}",
            expected=f"the run created at {record['created_at']}",
            got=f"one created at {stored['created_at']}",
            fix="fix store.url, or choose another folder; nothing was changed",
        )


def claim(url: str, record: Mapping[str, Any]) -> None:
    """Make the store that of a new run.

    Raises:
        StoreUnavailable: it does not answer, or cannot refuse a second writer.
        RunDirectoryError: it holds a run.
    """
    objects = open_objects(url)
    require_conditional(objects)
    if not objects.put_if_absent(RECORD, _document(record)):
        raise RunDirectoryError(
            f"{url} already holds a run",
            expected="a store of its own for every run, forks included",
            fix=f"populora pull {url} DIR and populora resume DIR go on with that run; "
            f"for a new one choose another, e.g. --set store.url={url.rstrip('/')}-2",
        )


def read_record(objects: ObjectStore) -> dict[str, Any]:
    """The record of the run that the store holds.

    Raises:
        RunDirectoryError: it holds none.
        DamagedText: what it holds is no record of a run.
    """
    data = objects.get(RECORD)
    if data is None:
        raise RunDirectoryError(
            f"{objects.url} holds no run",
            expected=f"{RECORD}, which the start of a run puts there",
            got="nothing under that key",
            fix="mount the folder, or fix the url; a new run starts with --set store.url=...",
        )
    record: RunRecord = validated(RECORDED, data, f"{objects.url}/{RECORD}")
    return dict(record)


def read_history(objects: ObjectStore) -> list[dict[str, int]]:
    """The redraws after each time that `rerun --seed` changed them."""
    history: list[dict[str, int]] = []
    while (data := objects.get(_rewrite(len(history) + 1))) is not None:
        where = f"{objects.url}/{_rewrite(len(history) + 1)}"
        history.append(validated(REWRITTEN, data, where)["redraws"])
    return history


def _adapters_of(manifest: Manifest) -> Sequence[str]:
    return sorted(manifest.extra.get("adapters", {}))


def _adapter_records(folders: Mapping[str, Path]) -> tuple[FileRecord, ...]:
    records = []
    for path, folder in folders.items():
        for name in _MEMBER:
            sha256 = file_sha256(folder / name)
            size = (folder / name).stat().st_size
            records.append(FileRecord(f"{path}/{name}", size, sha256, sha256, None))
    return tuple(records)


def _folder(file: FileRecord) -> str:
    return file.name.rpartition("/")[0]


def _name(file: FileRecord) -> str:
    return file.name.rpartition("/")[2]


def _rewrite(number: int) -> str:
    return f"{HISTORY}/{number:06d}"


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a record that is the same in every run directory: all but the place of its store."""
    config = {name: section for name, section in record["config"].items() if name != "store"}
    return {**record, "config": config}


def _document(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode()
