"""Errors of the project are shown by their message: a traceback helps no one who uses the UI."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from prefect import get_run_logger
from prefect.exceptions import MissingContextError
from prefect.states import Failed

from populora_core.support.errors import PopuloraError

P = ParamSpec("P")
R = TypeVar("R")


def plainly(body: Callable[P, R], reword: Callable[[str], str] = str) -> Callable[P, R]:
    """The function of a flow as one that returns a failed state where it would raise an error of the project.

    The error is the state's data, so whoever called the flow still meets it. A task's caller would get the state as a
    result and go on, so tasks raise, and their log leaves the traceback out. The log has the message as an error,
    line by line: Prefect's own line on the state is no error, and shows line breaks as escapes.

    Args:
        reword: says what to do in the words of where the flow was launched.
    """

    @wraps(body)
    def run(*given: P.args, **named: P.kwargs) -> R:
        try:
            return body(*given, **named)
        except PopuloraError as error:
            error.fix = reword(error.fix)
            with suppress(MissingContextError):  # called as a plain function
                get_run_logger().error("%s", error)
            failed: Any = Failed(message=str(error), data=error)
            return failed

    # Prefect looks names of annotations up where the function is, which is here.
    run.__signature__ = signature(body, eval_str=True)  # type: ignore[attr-defined]
    return run


def without_traceback(record: logging.LogRecord) -> bool:
    """A filter that leaves the tracebacks of the project's errors out."""
    if record.exc_info and isinstance(record.exc_info[1], PopuloraError):
        record.exc_info = None
    return True


def not_said_again(record: logging.LogRecord) -> bool:
    """A filter that leaves the project's errors out: its message is in the log already."""
    return not (record.exc_info and isinstance(record.exc_info[1], PopuloraError))


logging.getLogger("prefect.task_runs").addFilter(without_traceback)
logging.getLogger("prefect.flow_runs").addFilter(not_said_again)
