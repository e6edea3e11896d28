"""A sampler whose engine lives in a process of its own, which ends with ours and is replaced when it ends before.

An engine on a GPU cannot be made again in one process: what it left, its allocator and its graphs, stays until the
process ends. So an engine is never rebuilt. Its process holds nothing that is not on disk, and is ended and started
again: after so many adapters, when it needs room for more of them, and when it was killed, in mid-batch too.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from populora_core.sampler.requests import Completion, Drawn, Request, Sampler, Served, Text
from populora_core.support.aliases import Progress
from populora_core.support.errors import PopuloraError, WorkerLost, defect

STARTS = 3
"""Processes that may be lost at one call before it fails."""
END_SECONDS = 30.0
ENDED_BUSY = 3
"""Exit code of a process whose answer no one waits for any more."""

_busy = threading.Event()  # while the engine's process does what it was asked


class EngineProcess:
    """A `Sampler` that passes every call to one in another process.

    Args:
        name: of the engine.
        make: makes the sampler there; it travels by value.
        recycle_after: adapters that one process loads; then another takes its place.
        room: adapters that an engine has room for from its start.
    """

    def __init__(self, name: str, make: Callable[[], Sampler], recycle_after: int, room: int = 0) -> None:
        self.name = name
        self._make, self._recycle_after, self._room = make, recycle_after, room
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._served: list[Served] = []
        self._given: set[tuple[str, str]] = set()  # adapters that this process was given so far

    @property
    def pid(self) -> int | None:
        """The engine's process id, or None if it is not running."""
        return None if self._process is None else self._process.pid

    def load(self, adapters: Sequence[Served]) -> None:
        new = {(each.member_id, each.sha256) for each in adapters}
        if len(self._given | new) > self._recycle_after or len(adapters) > self._room:
            self.close()
        self._room = max(self._room, len(adapters))
        self._served = []  # a process that is lost while it loads has nothing to load before that
        self._call("load", list(adapters))
        self._served, self._given = list(adapters), self._given | new

    def generate(
        self,
        requests: Sequence[Request],
        progress: Progress | None = None,
        drawn: Drawn | None = None,
    ) -> list[Completion]:
        return self._call("generate", list(requests), drawn is not None, progress=progress, drawn=drawn)

    def score(self, texts: Sequence[Text]) -> list[tuple[float, ...]]:
        return self._call("score", list(texts))

    def rest(self) -> None:
        if self._process is not None and self._process.poll() is None:  # one that is not there holds nothing
            self._call("rest")

    def close(self) -> None:
        """End the engine's process; a later `load` starts another."""
        if self._pipe is not None:
            self._pipe.close()  # by which it knows that it is to end
        if self._process is not None:
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = self._pipe = None
        self._given = set()

    def _call(
        self, method: str, *arguments: Any, progress: Progress | None = None, drawn: Drawn | None = None
    ) -> Any:
        """Have it done, again by another process where one is lost; not once tokens were reported.

        Raises:
            WorkerLost: one process after the other was lost.
            PopuloraError: whatever the sampler raised.
        """
        told, started = 0, 0
        while started < STARTS:
            started += 1
            done = 0  # another process counts from the beginning
            try:
                pipe = self._started()
                pipe.send((method, arguments))
                while True:
                    kind, value = pipe.recv()
                    if kind == "result":
                        return value
                    if kind == "error":
                        raise value
                    if kind == "drawn":
                        assert drawn is not None
                        pipe.send(list(drawn(*value) or ()))
                        started = STARTS
                        continue
                    done += value
                    if progress is not None and done > told:
                        progress(done - told)
                        told = done
            except (EOFError, OSError):
                code = self._lost()
            except PopuloraError:
                raise  # the engine is well
            except BaseException:  # an interruption: what it still answers is no one's
                self.close()
                raise
        raise WorkerLost(
            f"the process of the {self.name} engine ended before it answered, and what replaced it also",
            got=f"exit code {code}",
            fix="look for memory shortage (exit code -9; see populora run --dry-run), then resume: nothing "
            "committed was lost",
        )

    def _started(self) -> Connection:
        """The pipe to the engine's process; a new one has the adapters that the last one had."""
        if self._pipe is None:
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                )
            self._pipe = Connection(ours.detach())
            self._pipe.send(self._make)
            if self._served:
                self._pipe.send(("load", (self._served,)))
                kind, value = self._pipe.recv()
                if kind == "error":  # else the next call would ask it for members that it does not have
                    self.close()
                    raise value
                self._given = {(each.member_id, each.sha256) for each in self._served}
        return self._pipe

    def _lost(self) -> int | None:
        process = self._process
        self.close()
        return None if process is None else process.returncode


def serve_engine(pipe: Connection) -> None:
    """The engine's process: performs the calls from the pipe until its other end is closed, or gone."""
    make: Callable[[], Sampler] = pipe.recv()
    sampler: Sampler | None = None
    with suppress(EOFError, OSError):  # no one waits for an answer
        while True:
            method, arguments = pipe.recv()
            _busy.set()
            try:
                sampler = sampler or make()
                if method == "generate":
                    requests, told = arguments
                    answer = sampler.generate(
                        requests,
                        lambda done: pipe.send(("progress", done)),
                        partial(_tell, pipe) if told else None,
                    )
                else:
                    answer = getattr(sampler, method)(*arguments)
            except PopuloraError as error:
                pipe.send(("error", error))
            except Exception as error:
                pipe.send(("error", defect("the engine", error)))
            else:
                pipe.send(("result", answer))
            finally:
                _busy.clear()
    if sampler is not None:
        sampler.close()


def _tell(pipe: Connection, *drawn: Sequence[float]) -> list[int]:
    """Pass on what was drawn, and hear who waits no more."""
    pipe.send(("drawn", drawn))
    left_alone: list[int] = pipe.recv()
    return left_alone


def _end_with(pipe: Connection) -> None:
    """End this process once the other end of the pipe is gone: in the middle of a batch at once.

    The GPU's lock is free as soon as its run has ended, and whoever resumes it wants the memory.
    """
    gone = select.poll()
    gone.register(pipe.fileno(), getattr(select, "POLLRDHUP", select.POLLHUP))
    gone.poll()
    if _busy.is_set():
        os._exit(ENDED_BUSY)
    if threading.main_thread().is_alive():
        threading.Timer(END_SECONDS / 2, os._exit, [1]).start()  # an engine that is idle ends in order


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; who started us ends us
    pipe = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    serve_engine(pipe)
    os._exit(0)  # what an engine leaves running would keep the process


if __name__ == "__main__":
    main()
