"""Shards in this process, or in one long-lived process each, on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from populora_core.compute.backend import Committed, Shard
from populora_core.sampler.spec import ModelSpec
from populora_core.support.aliases import Progress
from populora_core.support.errors import PopuloraError, WorkerLost
from populora_core.support.orphans import end_with_parent

EXIT_SECONDS = 5.0


class InlineCompute:
    """The same shards, one after another in this process: for tests and debuggers."""

    def __init__(self, shards: int, threads: int, spec: ModelSpec) -> None:
        self.shards, self._threads, self._spec = shards, threads, spec
        self._worker: Any = None

    def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
        from populora_core.compute.shards import perform
        from populora_core.compute.work import Worker

        if self._worker is None:
            self._worker = Worker(self._spec, self._threads)
        report = progress or (lambda done: None)
        return [perform(self._worker, shard, report) for shard in shards]

    @property
    def pids(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None


class LocalCompute:
    """One spawned process a shard; each keeps the frozen base resident between stages."""

    def __init__(self, shards: int, threads: int, spec: ModelSpec) -> None:
        self.shards, self._threads, self._spec = shards, threads, spec
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
        if len({shard.number for shard in shards} & set(range(self.shards))) < len(shards):
            raise ValueError(f"shards {[shard.number for shard in shards]} of {self.shards}")
        self._start()
        for shard in shards:
            self._send(self._pipes[shard.number], shard)
        results: dict[int, Committed] = {}
        try:
            while len(results) < len(shards):
                waiting = [self._pipes[shard.number] for shard in shards if shard.number not in results]
                ready = wait(waiting)
                for pipe in (pipe for pipe in waiting if pipe in ready):
                    kind, value = self._receive(pipe)
                    if kind == "progress":
                        if progress is not None:
                            progress(value)
                    elif kind == "result":
                        results[self._pipes.index(pipe)] = value
                    else:
                        raise value
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
        deadline = time.monotonic() + EXIT_SECONDS
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._pipes, self._processes = [], []

    def _start(self) -> None:
        if self._processes:
            return
        context = multiprocessing.get_context("spawn")
        for shard in range(self.shards):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(theirs, self._spec, self._threads, os.getpid()),
                name=f"populora-shard-{shard}",
                daemon=True,
            )
            process.start()
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
            came=f"exit code {process.exitcode}",
            remedy="look for memory shortage (exit code -9), then resume: nothing committed was lost",
        )


def _serve(pipe: Connection, spec: ModelSpec, threads: int, parent: int) -> None:
    """The worker process: answers requests until its pipe closes or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the worker is closed
    end_with_parent(parent)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    from populora_core.compute import work

    worker = work.Worker(spec, threads)
    try:
        with suppress(EOFError, OSError):  # the pipe is closed: nobody waits for an answer
            while True:
                _answer(worker, pipe)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending already
        worker.close()


def _answer(worker: Any, pipe: Connection) -> None:
    """Answer one request. Raises EOFError or OSError once the pipe is closed."""
    shard = pipe.recv()
    pipe.send(answer(worker, shard, lambda done: pipe.send(("progress", done))))


def answer(worker: Any, shard: Shard, progress: Progress) -> tuple[str, Any]:
    """What a worker process tells of a shard: ("result", what it committed), or ("error", why it did not)."""
    from populora_core.compute.shards import perform

    try:
        return "result", perform(worker, shard, progress)
    except PopuloraError as error:
        return "error", error
    except Exception:
        problem = f"a defect in {shard.function}, please report it:\n{traceback.format_exc()}"
        return "error", PopuloraError(problem, remedy="nothing committed was lost; resume goes on")
