"""The Ctrl-C or termination behind an error.

Prefect turns SIGTERM into an exception of its own while a flow runs. Either signal may meet a request under way,
whose clean-up then fails in its own words, or end a worker first: what is raised last is not what happened.
"""

from __future__ import annotations

from prefect.exceptions import TerminationSignal


def interruption(error: BaseException | None) -> BaseException | None:
    """The KeyboardInterrupt that an error was raised in the midst of, or the SystemExit of a termination; else None."""
    while error is not None and not isinstance(error, (KeyboardInterrupt, SystemExit, TerminationSignal)):
        error = error.__context__
    return SystemExit(128 + error.signal) if isinstance(error, TerminationSignal) else error
