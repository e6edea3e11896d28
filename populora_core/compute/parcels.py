"""Paths on their way to another machine: files travel as objects of the store, named by content."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from populora_core.compute.backend import Payload
from populora_core.sampler.requests import Served
from populora_core.sharing.objects import ObjectStore
from populora_core.store.adapters import PROBE
from populora_core.support.digest import file_sha256


@dataclass(frozen=True, slots=True)
class Parcel:
    """A file, or a folder of files, as a payload carries it.

    Attributes:
        place: the last two parts of the path, which readers of errors and reports know it by.
        files: path within -> sha256; that of a single file is empty. What was not there has none.
    """

    place: str
    files: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps([self.place, self.files]).encode()).hexdigest()[:24]


class Outbox:
    """Puts what payloads name into a store, each content once."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._sent: set[str] = set()

    def pack(self, payload: Payload, outputs: tuple[str, ...]) -> dict[str, Any]:
        """The payload with its inputs as parcels; outputs are the worker's to place."""
        return {name: value if name in outputs else self._pack(value) for name, value in payload.items()}

    def _pack(self, value: Any) -> Any:
        if isinstance(value, Path):
            return self._parcel(value)
        if isinstance(value, Served):  # of earlier versions only the probe is read
            earlier = tuple(self._parcel(folder, PROBE) for folder in value.earlier)
            return replace(value, folder=self._parcel(value.folder), earlier=earlier)  # type: ignore[arg-type]
        if isinstance(value, Mapping):
            return {key: self._pack(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._pack(item) for item in value]
        return value

    def _parcel(self, path: Path, pattern: str = "*") -> Parcel:
        if path.is_dir():
            within = {
                file.relative_to(path).as_posix(): file for file in path.rglob(pattern) if file.is_file()
            }
        else:
            within = {"": path} if path.is_file() else {}
        files = tuple((name, self._send(file)) for name, file in sorted(within.items()))
        return Parcel(f"{path.parent.name}/{path.name}", files)

    def _send(self, file: Path) -> str:
        sha256 = file_sha256(file)
        if sha256 not in self._sent:
            sha256 = self._store.put(file)
            self._sent.add(sha256)
        return sha256


class Inbox:
    """Parcels as files again, in a folder of this machine; what the newest payload does not name goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def unpack(self, payload: Payload, store: ObjectStore) -> dict[str, Any]:
        """The payload with paths in place of parcels; what is here from the last one is not fetched again.

        Raises:
            ArtifactError: the store lacks an object, or it is damaged.
        """
        used: set[str] = set()
        opened = {name: self._unpack(value, store, used) for name, value in payload.items()}
        for folder in self._folder.iterdir():
            if folder.name not in used:
                shutil.rmtree(folder, ignore_errors=True)
        return opened

    def _unpack(self, value: Any, store: ObjectStore, used: set[str]) -> Any:
        if isinstance(value, Parcel):
            used.add(value.key)
            path = self._folder / value.key / value.place
            for name, sha256 in value.files:
                if not (path / name).is_file():
                    store.fetch(sha256, path / name)
            return path
        if isinstance(value, Served):
            folders = [self._unpack(parcel, store, used) for parcel in (value.folder, *value.earlier)]
            return replace(value, folder=folders[0], earlier=tuple(folders[1:]))
        if isinstance(value, Mapping):
            return {key: self._unpack(item, store, used) for key, item in value.items()}
        if isinstance(value, list):
            return [self._unpack(item, store, used) for item in value]
        return value
