"""Statuses of programs that ran in the sandbox."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The status of one program after running on its inputs."""

    OK = "ok"
    """Every input gave plain data."""
    SYNTAX_ERROR = "syntax_error"
    """The program does not parse."""
    FORBIDDEN = "forbidden"
    """The static policy refuses the program; it was not run."""
    ERROR = "error"
    """The program raised, defines no callable `f`, or ended its process; or an input is not a literal."""
    TIMEOUT = "timeout"
    """The CPU time or the wall time ran out."""
    OOM = "oom"
    """The program needed more memory than its limit."""
    OUTPUT_LIMIT = "output_limit"
    """The answers, or what was printed, exceed their limit."""
    NOT_PLAIN_DATA = "not_plain_data"
    """An answer is not plain data, and so cannot be compared."""
    NONDETERMINISTIC = "nondeterministic"
    """Two runs in separate processes disagree."""
    KILLED = "killed"
    """A signal ended the program, a crash of the interpreter for example."""
    INFRASTRUCTURE = "infrastructure"
    """The sandbox failed, the program is not to blame: never a wrong answer."""
