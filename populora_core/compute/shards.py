"""Shards of a stage: each with an artifact of its own, committed once, found again after a kill, merged by the stage.

    objects/<sha256>       what the function returned (see `results`), and the files that it wrote
    shards/<key>.json      a small document put by the first to finish: only with it the shard is done

The commit lies in `perform`, which runs where the work is done, so that every backend leaves the same. A shard
that is done a second time, by a late worker or after a lost answer, adopts what stands there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from populora_core.compute import work
from populora_core.compute.backend import Committed, Compute, Payload, Shard
from populora_core.compute.results import decode, encode
from populora_core.config.sections import Section
from populora_core.sharing.objects import ObjectStore, object_key
from populora_core.sharing.places import LocalObjects, open_objects
from populora_core.sharing.shared import SHARDS
from populora_core.support import durable
from populora_core.support.aliases import Progress
from populora_core.support.digest import file_sha256
from populora_core.support.errors import ArtifactError, DamagedObject, DamagedText
from populora_core.support.received import below, validated

_COMMITTED = TypeAdapter(Committed)


class Shards:
    """The shards of one stage, or of another piece of work that has a key.

    Args:
        compute: gives the backend once there is something left to do.
        key: of the stage; keys of shards derive from it.
        folder: for what is finished, beside the stage's own; it goes with `release`.
        url: of a store that all workers reach; empty for one in `folder`.

    Attributes:
        records: of each shard who did it, how long that took, and whether it was found done; for the manifest.
    """

    def __init__(self, compute: Callable[[], Compute], key: str, folder: Path, url: str = "") -> None:
        self._compute, self._key, self.folder = compute, key, folder
        self._url = url or folder.as_uri()
        self._done: list[Committed] = []
        self.records: list[dict[str, Any]] = []

    def map(self, function: str, payloads: Sequence[Payload], progress: Progress | None = None) -> list[Any]:
        """Apply `work.<function>` to every payload; what is committed already is not done again.

        Returns:
            What the function returned, in the order of the payloads. Files are where the payloads want them.

        Raises:
            WorkerLost, PopuloraError: see `Compute.run`. Shards that were committed stay.
        """
        store = open_objects(self._url)
        shards = [
            Shard(function, number, _shard_key(self._key, function, number, payload), payload, self._url)
            for number, payload in enumerate(payloads)
        ]
        results: dict[int, Any] = {}
        for shard in shards:
            found = committed(store, shard.key)
            if found is not None:
                try:
                    results[shard.number] = self._take(store, shard, found, reused=True)
                except ArtifactError:  # damaged: as if it had not been done
                    store.delete(_document(shard.key))
                    continue
                if progress is not None:
                    progress(found.items)
        left = [shard for shard in shards if shard.number not in results]
        if left:
            for shard, done in zip(left, self._compute().run(left, progress), strict=True):
                try:
                    results[shard.number] = self._take(store, shard, done, reused=False)
                except DamagedObject:
                    # Another machine has committed the stage meanwhile, and released its shards.
                    store.delete(_document(shard.key))
                    (again,) = self._compute().run([shard], None)
                    results[shard.number] = self._take(store, shard, again, reused=False)
        return [results[shard.number] for shard in shards]

    def release(self) -> None:
        """Remove what was kept of the shards, once what was made of them is committed."""
        if self._url != self.folder.as_uri():
            store = open_objects(self._url)
            for done in self._done:
                store.delete(_document(done.key))
                store.delete(object_key(done.result))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take(self, store: ObjectStore, shard: Shard, done: Committed, reused: bool) -> Any:
        """The result of a committed shard, its files in place."""
        targets, folders = _outputs(shard.function, shard.payload), set()
        for place, sha256 in done.files.items():
            name, path = next((name, path) for name, path in targets.items() if _in(place, name))
            target = below(path.parent, Path(path.name, place[len(name) + 1 :]))
            store.fetch(sha256, target)
            folders.add(target.parent)
        for folder in folders:
            durable.fsync(folder)
        result = decode(store.get_bytes(done.result))
        self._done.append(done)
        told = {name: getattr(done, name) for name in ("host", "pid", "seconds", "attempts")}
        self.records.append({"function": shard.function, "shard": shard.number, **told, "reused": reused})
        return result


def perform(worker: work.Worker, shard: Shard, progress: Progress) -> Committed:
    """Do a shard and commit it, unless it is committed; in the process of the worker.

    Raises:
        PopuloraError: whatever the function raised; nothing was committed.
    """
    store = open_objects(shard.store)
    if (found := committed(store, shard.key)) is not None:
        return found
    started, items = time.perf_counter(), 0

    def count(more: int) -> None:
        nonlocal items
        items += more
        progress(more)

    home = store.root if isinstance(store, LocalObjects) else Path(tempfile.gettempdir())
    with durable.writing(home):
        home.mkdir(parents=True, exist_ok=True)
    with durable.temporary_folder(home, "shard") as folder:
        payload = _redirected(shard, folder)
        result = work.call(worker, shard.function, payload, count)
        files = {
            place: store.put(path, lasting=True)
            for name, target in _outputs(shard.function, payload).items()
            for place, path in _written(name, target)
        }
    done = Committed(
        key=shard.key,
        result=store.put_bytes(encode(result)),
        files=files,
        items=items,
        host=socket.gethostname(),
        pid=os.getpid(),
        seconds=time.perf_counter() - started,
    )
    store.put_if_absent(_document(shard.key), json.dumps(asdict(done)).encode())
    return committed(store, shard.key) or done  # who came first is right: sampling on a GPU is not bit-equal


def committed(store: ObjectStore, key: str) -> Committed | None:
    """What the shard of that key committed; None where it is not done, or cannot be read."""
    data = store.get(_document(key))
    try:
        return None if data is None else validated(_COMMITTED, data, _document(key))
    except DamagedText:
        return None


def _document(key: str) -> str:
    return f"{SHARDS}/{key}.json"


def _shard_key(stage_key: str, function: str, number: int, payload: Payload) -> str:
    """sha256 over what decides the shard. Files count by content; where its outputs go does not."""
    targets = _outputs(function, payload)
    inputs = {name: value for name, value in payload.items() if name not in work.OUTPUTS[function]}
    document = [stage_key, function, number, inputs, sorted(targets)]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> object:
    """What stands in a payload's digest for something that JSON does not know."""
    if isinstance(value, Path):
        return [(place, file_sha256(path)) for place, path in _written("", value)]
    if isinstance(value, Section):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    raise TypeError(f"a payload holds a {type(value).__name__}, which no digest is known for")


def _outputs(function: str, payload: Payload) -> dict[str, Path]:
    """Place -> where the payload has the function write."""
    places: dict[str, Path] = {}
    for name in work.OUTPUTS[function]:
        value = payload[name]
        if isinstance(value, Mapping):
            places |= {f"{name}/{key}": path for key, path in value.items()}
        else:
            places[name] = value
    return places


def _redirected(shard: Shard, folder: Path) -> dict[str, Any]:
    """The payload with its outputs in `folder`."""
    payload = dict(shard.payload)
    for name in work.OUTPUTS[shard.function]:
        value, own = payload[name], folder / name
        own.mkdir()
        payload[name] = {key: own / key for key in value} if isinstance(value, Mapping) else own / value.name
    return payload


def _written(place: str, path: Path) -> Iterator[tuple[str, Path]]:
    """The file, or every file in the folder, with its place."""
    if path.is_dir():
        for file in sorted(each for each in path.rglob("*") if each.is_file()):
            yield f"{place}/{file.relative_to(path).as_posix()}", file
    elif path.is_file():
        yield place, path


def _in(place: str, name: str) -> bool:
    return place == name or place.startswith(f"{name}/")
