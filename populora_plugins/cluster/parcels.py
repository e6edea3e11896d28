"""Paths on their way to another machine: files travel as objects of the store, named by content."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from populora_core.compute.work import Work
from populora_core.sharing.objects import ObjectStore
from populora_core.support.digest import file_sha256, files_below


@dataclass(frozen=True, slots=True)
class Parcel:
    """A file, or a folder of files, as a shard's work carries it.

    Attributes:
        place: the last three parts of the path, which readers of errors and reports know it by.
        files: path within -> sha256; that of a single file is empty. What was not there has none.
    """

    place: str
    files: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps([self.place, self.files]).encode()).hexdigest()[:24]


class Outbox:
    """A sender that puts what shards read into a store, each content once."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._sent: set[str] = set()

    def pack(self, work: Work) -> Work:
        """The work with parcels in place of its paths."""
        return _with(work, Path, self._parcel)

    def _parcel(self, path: Path) -> Parcel:
        files = tuple((place, self._send(file)) for place, file in files_below(path).items())
        return Parcel("/".join(path.parts[-3:]), files)

    def _send(self, file: Path) -> str:
        sha256 = file_sha256(file)
        if sha256 not in self._sent:
            read_only = not file.stat().st_mode & 0o222  # as what came from a store is: a link to it will do
            sha256 = self._store.put(file, lasting=read_only)
            self._sent.add(sha256)
        return sha256


class Inbox:
    """A folder of this machine where parcels become files again; those that the newest work does not name go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def unpack(self, work: Work, store: ObjectStore) -> Work:
        """The work with paths in place of parcels; what is here from the last one is not fetched again.

        Raises:
            ArtifactError: the store lacks an object, or it is damaged.
        """
        used: set[str] = set()

        def opened(parcel: Parcel) -> Path:
            used.add(parcel.key)
            path = self._folder / parcel.key / parcel.place
            for name, sha256 in parcel.files:
                if not (path / name).is_file():
                    store.fetch(sha256, path / name)
            return path

        unpacked = _with(work, Parcel, opened)
        for folder in self._folder.iterdir():
            if folder.name not in used:
                shutil.rmtree(folder, ignore_errors=True)
        return unpacked


def _with(value: Any, kind: type, change: Callable[[Any], object]) -> Any:
    """The value with `change` made to everything of a kind in it."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _with(item, kind, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with(item, kind, change) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        own = {item.name: _with(getattr(value, item.name), kind, change) for item in fields(value)}
        return replace(value, **own)
    return value
