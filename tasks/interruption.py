"""The Ctrl-C or termination behind an error.

Prefect turns SIGTERM into an exception of its own while a flow runs. Either signal may meet a request under way,
whose clean-up then fails in its own words, or end a worker first: what is raised last is not what happened.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from prefect.exceptions import TerminationSignal


def interruption(error: BaseException | None) -> BaseException | None:
    """Return the KeyboardInterrupt during which an error was raised, or the SystemExit of a termination; else None."""
    while error is not None and not isinstance(error, (KeyboardInterrupt, SystemExit, TerminationSignal)):
        error = error.__context__
    return SystemExit(128 + error.signal) if isinstance(error, TerminationSignal) else error


@contextmanager
def heeding_ctrl_c() -> Iterator[None]:
    """Raise a KeyboardInterrupt at the end where one was raised within and dropped.

    Prefect drops what meets a flow run between its last state and its end: the work that it called is done. Does
    nothing where Ctrl-C is somebody else's: in a thread, which can set no handler, or in a shell's background.
    """
    came = False

    def notice(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    in_a_thread = threading.current_thread() is not threading.main_thread()
    if in_a_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, notice)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt
