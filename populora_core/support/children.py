"""Processes that multiprocessing starts for us: where they come from, and that they end when their starter is gone."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from functools import cache
from multiprocessing import util
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess

from populora_core.support import leftovers
from populora_core.support.errors import PopuloraError, WorkerLost, first_line
from populora_core.support.processes import Owner

SOCKET_CHARS = len("/pymp-abcdefgh/listener-abcdefgh")
POLL_SECONDS = 1.0
IMPORTED = ("torch", "transformers.models.auto.modeling_auto", "transformers.modeling_utils")
"""Modules that every process with a model imports: most of the CPU seconds of its start."""
GUARD = 'if __name__ == "__main__":'
"""The line under which a script works: every process that multiprocessing starts for it imports the script again."""


def with_models(device: str) -> ForkServerContext | SpawnContext:
    """Return the multiprocessing context that starts a process which will hold a model.

    On CPUs it is forked by a server that has imported torch and transformers, and nothing of ours: the server runs no
    thread and computes nothing. CUDA does not survive a fork, so on a GPU the process begins from nothing.
    """
    if device != "cpu":
        return multiprocessing.get_context("spawn")
    _own_sockets()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context


@cache
def _own_sockets() -> None:
    """Let multiprocessing keep its sockets where a later process sweeps, should this one be killed."""
    leftovers.sweep()
    folder = leftovers.make_folder("children", SOCKET_CHARS)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        util.get_temp_dir()  # makes its folder for the life of this process, below that of temporary files
    finally:
        tempfile.tempdir = before
    # After multiprocessing's own folder, which goes at priority -100.
    util.Finalize(None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=-200)


def begin(process: BaseProcess) -> None:
    """Start a process.

    Raises:
        WorkerLost: the system makes no more of them, or the one that should fork it is gone.
    """
    try:
        process.start()
    except (EOFError, OSError) as error:
        raise WorkerLost(
            f"the process {process.name} could not be started",
            got=f"{type(error).__name__}: {first_line(error)}",
            fix="look for memory shortage and for a limit on processes (ulimit -u), then resume: nothing committed was "
            "lost",
        ) from error


def refuse_while_imported() -> None:
    """Raise PopuloraError in a process that multiprocessing started while it imports its starter's script."""
    process = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):  # as multiprocessing's own check asks
        raise PopuloraError(
            "a worker imports the script that started it, and the script begins its work again",
            expected=f"work under {GUARD}",
            got=f"work at the script's top level, imported by {process.name}",
            fix=f"put all that begins, opens or trains a run under {GUARD}; here nothing was begun",
        )


def end(process: BaseProcess, seconds: float) -> None:
    """Ask a process to end, and kill it if it has not after so many seconds."""
    process.terminate()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()


def end_with_parent() -> None:
    """End this process, from now on, once the one that started it is gone.

    A parent that was killed cannot end its children, so they look for it themselves.
    """
    threading.Thread(target=_watch, daemon=True).start()


def end_with(owner: Owner, seconds: float) -> None:
    """Ask this process to end once another is gone, and kill it if it has not after so many seconds.

    The kernel's own signal (PR_SET_PDEATHSIG) would come when the thread that started this process ends.
    """
    threading.Thread(target=_follow, args=(owner, seconds), daemon=True).start()


def _follow(owner: Owner, seconds: float) -> None:
    while not owner.is_gone():
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def _watch() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "multiprocessing started this process"
    parent.join()
    os._exit(1)
