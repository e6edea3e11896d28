"""Programs in processes forked by a server that has imported torch and transformers: most of a run's start.

To whoever kills one it is a process as any other, with an id, threads, sockets and a server of workers of its own. Only
modules are there already, so that what a test kills often starts in a fraction of the time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing import forkserver, util
from pathlib import Path
from typing import NoReturn

from populora_core.support.children import begin, with_models

COMMAND = "from populora_core.commands.app import main; main()"


class Forked:
    """What `python -c CODE ARGUMENTS` would be, in a folder; no one hears what it prints.

    Has of `subprocess.Popen` what a test needs that kills it.
    """

    def __init__(self, code: str, *arguments: object, cwd: Path) -> None:
        words = [str(argument) for argument in arguments]
        self._process = with_models("cpu").Process(target=_run, args=(code, words, cwd, dict(os.environ)))
        begin(self._process)
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float | None = None) -> int | None:
        self._process.join(seconds)
        return self._process.exitcode


def _run(code: str, words: list[str], cwd: Path, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    sys.argv = ["-c", *words]
    _own_server()
    exec(code, {"__name__": "__main__"})


def _own_server() -> None:
    """Fork the server of this process's workers, where it would start one: there is no thread yet."""
    with_models("cpu")
    spawn = util.spawnv_passfds
    util.spawnv_passfds = _fork
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = spawn


def _fork(path: bytes, arguments: Sequence[str], kept: Iterable[int]) -> int:
    """Fork a process that does what another Python would be told by `-c`, with the same open files."""
    if child := os.fork():
        return child
    _serve(arguments[-1], {0, 1, 2, *kept})


def _serve(code: str, kept: set[int]) -> NoReturn:
    try:
        for number in map(int, os.listdir("/proc/self/fd")):
            if number not in kept:
                with suppress(OSError):  # the listing's own
                    os.close(number)
        exec(code, {"__name__": "__main__"})
    finally:
        os._exit(1)
