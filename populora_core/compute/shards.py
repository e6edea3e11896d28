"""Shards of a stage: cut, done in processes of this machine, and found again by what they follow from.

    objects/<sha256>       what a shard's work returned (see `results`), and the files that it wrote
    shards/<key>.json      a small document put by the first to finish: only with it the shard is done

The commit lies in `Worker.perform`, which runs where the work is done, so that every backend leaves the same. A shard
that is done a second time, by a late worker or after a lost answer, adopts what stands there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields, is_dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from populora_core.compute.results import decode
from populora_core.compute.work import Committed, Shard, Work, Worker, committed, document
from populora_core.config.fields import Section
from populora_core.sampler.engines import TORCH
from populora_core.sampler.spec import ModelSpec
from populora_core.sharing.objects import ObjectStore, object_key
from populora_core.sharing.places import open_objects
from populora_core.support import durable, trust
from populora_core.support.aliases import Progress
from populora_core.support.children import GUARD, begin, end_with_parent, with_models
from populora_core.support.devices import CUDA, hold_device, require_gpus, take_gpus
from populora_core.support.digest import Identity, file_sha256, files_below, know, known_below
from populora_core.support.errors import ArtifactError, DamagedObject, PopuloraError, WorkerLost, defect
from populora_core.support.received import below

EXIT_SECONDS = 5.0
ENGINE_SECONDS = 35.0  # an engine in a process of its own may take 30 s, and the GPU is held until then


class Compute(Protocol):
    """Runs shards. Nothing starts before the first; what they commit comes in their order."""

    def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
        """Have every shard performed (see `Worker.perform`).

        Raises:
            WorkerLost: a worker ended before it answered, and the shard could not be done elsewhere.
            PopuloraError: whatever the work raised, as it raised it.
        """
        ...

    @property
    def pids(self) -> Sequence[int]:
        """Process ids, on this machine, of the workers that there are now."""
        ...

    def close(self) -> None:
        """End every process that this backend started."""
        ...


class Shards:
    """The shards of one stage, or of another piece of work that has a key.

    Args:
        key: of the stage; keys of shards derive from it.
        folder: for what is finished, beside the stage's own; it goes with `release`.
        url: of a store that all workers reach; empty for one in `folder`.

    Attributes:
        files: where the files that shards write go; within `folder` unless said.
        records: of each shard who did it, how long that took, and whether it was done already; for the manifest.
    """

    def __init__(
        self, compute: Compute, key: str, folder: Path, url: str = "", files: Path | None = None
    ) -> None:
        self._compute, self._key, self.folder = compute, key, folder
        self._url, self.files = url or folder.as_uri(), files or folder / "files"
        self._done: list[Committed] = []
        self.records: list[dict[str, Any]] = []

    def map(self, parts: Sequence[Work], progress: Progress | None = None) -> list[Any]:
        """Have every part done, a shard each; what is committed already is not done again.

        Returns:
            What the parts returned, in their order. What they wrote is in `files`.

        Raises:
            WorkerLost, PopuloraError: see `Compute.run`. Shards that were committed stay.
        """
        store = open_objects(self._url)
        shards = [
            Shard(work, number, self._key_of(number, work), self._url) for number, work in enumerate(parts)
        ]
        results = self._found(store, shards, progress)
        left = [shard for shard in shards if shard.number not in results]
        if left:
            for shard, done in zip(left, self._compute.run(left, progress), strict=True):
                try:
                    results[shard.number] = self._take(store, shard, done, reused=False)
                except DamagedObject:
                    # Another machine has since committed the stage and released its shards.
                    store.delete(document(shard.key))
                    (again,) = self._compute.run([shard])
                    results[shard.number] = self._take(store, shard, again, reused=False)
        return [results[shard.number] for shard in shards]

    def release(self) -> None:
        """Remove what was kept of the shards, once what was made of them is committed."""
        if self._url != self.folder.as_uri():
            store = open_objects(self._url)
            for done in self._done:
                store.delete(document(done.key))
                store.delete(object_key(done.result))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _key_of(self, number: int, work: Work) -> str:
        """sha256 over what decides the shard. Files count by content."""
        asked = [self._key, number, type(work).__name__, work]
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"), default=_plain)
        return hashlib.sha256(text.encode()).hexdigest()

    def _found(
        self, store: ObjectStore, shards: Sequence[Shard], progress: Progress | None
    ) -> dict[int, Any]:
        """The results of those that are committed; a damaged one counts as never done."""
        results = {}
        for shard in shards:
            found = committed(store, shard.key)
            if found is None:
                continue
            try:
                results[shard.number] = self._take(store, shard, found, reused=True)
            except ArtifactError as error:
                if isinstance(error.__cause__, OSError) and not isinstance(error, DamagedObject):
                    raise  # a disk of ours refused what is whole in the store
                store.delete(document(shard.key))
                continue
            if progress is not None:
                progress(found.items)
        return results

    def _take(self, store: ObjectStore, shard: Shard, done: Committed, reused: bool) -> Any:
        """The result of a committed shard, its files in place."""
        # Read first: if it is damaged, no file may take its place.
        result = decode(store.get_bytes(done.result))
        targets = {below(self.files, Path(place)): sha256 for place, sha256 in done.files.items()}
        for target, sha256 in targets.items():
            store.fetch(sha256, target)
        for folder in {target.parent for target in targets}:
            durable.fsync(folder)
        self._done.append(done)
        told = {name: getattr(done, name) for name in ("host", "pid", "seconds", "attempts")}
        self.records.append({"function": shard.name, "shard": shard.number, **told, "reused": reused})
        return result


def towards(progress: Callable[[int, int], None], total: int, done: int = 0) -> Progress:
    """Return a report of shards' partial progress as progress towards a total, of which some is done."""

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    return count


def _plain(value: object) -> object:
    """A JSON form, for a shard's key, of a value that JSON does not know."""
    if isinstance(value, Path):
        return [(place, file_sha256(path)) for place, path in files_below(value).items()]
    if isinstance(value, Section):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    raise TypeError(f"a shard's work holds a {type(value).__name__}, which no digest is known for")


class InlineCompute:
    """One worker in this process, which does shard after shard: for tests and debuggers."""

    def __init__(self, threads: int, spec: ModelSpec) -> None:
        self._threads, self._spec = threads, spec
        self._worker: Worker | None = None
        self._exit = ExitStack()

    def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
        if self._worker is None:
            self._exit.enter_context(hold_device(self._spec.base.device, self._spec.sampler.tensor_parallel))
            self._worker = Worker(self._spec, self._threads)
            self._exit.callback(self._worker.close)
        worker, report = self._worker, progress or (lambda done: None)
        return [worker.perform(shard, report) for shard in shards]

    @property
    def pids(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        self._worker = None
        self._exit.close()


class LocalCompute:
    """One process a shard, on GPUs one each; each keeps the frozen base resident between stages.

    Raises:
        ConfigError: there are more shards than GPUs.
    """

    def __init__(self, shards: int, threads: int, spec: ModelSpec) -> None:
        if spec.base.device == CUDA:
            require_gpus(shards * spec.sampler.tensor_parallel)
        self._shards, self._threads, self._spec = shards, threads, spec
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._exit = ExitStack()

    def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
        if len({shard.number for shard in shards} & set(range(self._shards))) < len(shards):
            raise ValueError(f"shards {[shard.number for shard in shards]} of {self._shards}")
        self._start()
        for shard in shards:
            self._send(self._pipes[shard.number], shard)
        waiting = {self._pipes[shard.number]: shard.number for shard in shards}
        results: dict[int, Committed] = {}
        try:
            while waiting:
                for pipe in wait(list(waiting)):
                    assert isinstance(pipe, Connection)
                    kind, value = self._receive(pipe)
                    if kind == "result":
                        results[waiting.pop(pipe)] = value
                    elif kind == "error":
                        raise value
                    elif progress is not None:
                        progress(value)
        except BaseException:
            self.close()  # answers still under way belong to a stage that is given up
            raise
        return [results[shard.number] for shard in shards]

    @property
    def pids(self) -> Sequence[int]:
        return tuple(process.pid for process in self._processes if process.pid is not None)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        own_base = self._spec.sampler.engine != TORCH
        deadline = time.monotonic() + (ENGINE_SECONDS if own_base else EXIT_SECONDS)
        for process in self._processes:
            if process.is_alive():  # the id of one that has ended may be another's by now
                process.terminate()
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._pipes, self._processes = [], []
        self._exit.close()

    def _start(self) -> None:
        if self._processes:
            return
        self._exit.enter_context(
            hold_device(self._spec.base.device, self._shards * self._spec.sampler.tensor_parallel)
        )
        context = with_models(self._spec.base.device)
        known = _hashed_once(self._spec.base.folder())
        for shard in range(self._shards):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_listen,
                args=(theirs, self._spec, self._threads, shard, known, trust.named()),
                name=f"populora-shard-{shard}",
                daemon=True,
            )
            try:
                begin(process)
            except WorkerLost:
                self.close()
                raise
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def _send(self, pipe: Connection, message: object) -> None:
        try:
            pipe.send(message)
        except OSError as error:
            raise self._lost(pipe) from error

    def _receive(self, pipe: Connection) -> tuple[str, Any]:
        try:
            return pipe.recv()
        except (EOFError, OSError) as error:
            raise self._lost(pipe) from error

    def _lost(self, pipe: Connection) -> WorkerLost:
        process = self._processes[self._pipes.index(pipe)]
        process.join(EXIT_SECONDS)
        self.close()
        return WorkerLost(
            f"the worker process of {process.name} ended before it answered",
            got=f"exit code {process.exitcode}",
            fix=f"{_remedy(process.exitcode)}, then resume: nothing committed was lost",
        )


def _remedy(code: int | None) -> str:
    """The advice where a worker ended with this exit code; Python's own for an exception is 1."""
    if code == 1:
        return f"read its own error above; a script needs {GUARD} before its work, as every worker imports it again"
    return "look for memory shortage (exit code -9)"


def _hashed_once(folder: Path) -> dict[Identity, str]:
    """The sha256 of a checkpoint's files, read by this process alone: 15 GB for a 7B, and eight workers want them."""
    from populora_core.model.base import base_digest

    if folder.is_dir():
        base_digest(folder)
    return known_below(folder)


def _listen(
    pipe: Connection,
    spec: ModelSpec,
    threads: int,
    number: int,
    known: Mapping[Identity, str],
    trusted: Sequence[str],
) -> None:
    """A worker's process: performs the calls from its pipe, until that closes or its parent is gone.

    Args:
        number: of the shard; on GPUs each has its own.
        known: hashes of the checkpoint's files.
        trusted: the places that it may import.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the worker is closed
    end_with_parent()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # before torch comes, where it has not yet
        os.environ[variable] = str(threads)
    know(known)
    trust.take(trusted)
    if spec.base.device == CUDA:
        take_gpus(number, spec.sampler.tensor_parallel)
    worker = Worker(spec, threads)
    try:
        with suppress(EOFError, OSError):  # the pipe is closed: no one waits for an answer
            while True:
                shard: Shard = pipe.recv()
                try:
                    done = worker.perform(shard, lambda more: pipe.send(("progress", more)))
                except Exception as error:
                    pipe.send(
                        ("error", error if isinstance(error, PopuloraError) else defect(shard.name, error))
                    )
                else:
                    pipe.send(("result", done))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending already
        worker.close()
