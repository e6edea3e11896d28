"""Closed enums of what the verifier found, and how a program's status becomes one of them."""

from __future__ import annotations

from enum import StrEnum

from populora_core.sandbox.status import Status


class ProposalVerdict(StrEnum):
    """The verdict on a proposal."""

    VALID = "valid"
    """It is a problem now."""
    FORMAT_ERROR = "format_error"
    """The completion does not follow the dialect's grammar."""
    SYNTAX_ERROR = "syntax_error"
    """Its program does not parse."""
    FORBIDDEN = "forbidden"
    """The static policy refuses its program."""
    RUNTIME_ERROR = "runtime_error"
    """Its program raised or crashed."""
    NONDETERMINISTIC = "nondeterministic"
    """Two runs of its program disagree."""
    TIMEOUT = "timeout"
    """Its program ran out of time."""
    OUT_OF_MEMORY = "out_of_memory"
    """Its program ran out of memory."""
    OUTPUT_LIMIT = "output_limit"
    """Its program gave or printed too much, or the base's context has no room for it and an answer."""
    NOT_PLAIN_DATA = "not_plain_data"
    """Its program gave something that is not plain data."""
    TRIVIAL = "trivial"
    """It asks nothing: an echo, a constant, ignored arguments, or the solution in the message."""
    DUPLICATE = "duplicate"
    """The same problem, or the same program, was there before."""
    INFRASTRUCTURE = "infrastructure"
    """The sandbox failed: no reward, no gradient."""


class AttemptVerdict(StrEnum):
    """The verdict on an attempt."""

    CORRECT = "correct"
    """The answer holds."""
    WRONG = "wrong"
    """The answer was understood and does not hold."""
    FORMAT_ERROR = "format_error"
    """No answer by the dialect's grammar."""
    SYNTAX_ERROR = "syntax_error"
    """An answer that does not parse."""
    FORBIDDEN = "forbidden"
    """The static policy refuses the answer's program."""
    RUNTIME_ERROR = "runtime_error"
    """Running the answer raised or crashed."""
    TIMEOUT = "timeout"
    """Running the answer took too long."""
    OUT_OF_MEMORY = "out_of_memory"
    """Running the answer took too much memory."""
    OUTPUT_LIMIT = "output_limit"
    """Running the answer gave or printed too much."""
    NOT_PLAIN_DATA = "not_plain_data"
    """Running the answer gave something that is not plain data."""
    INFRASTRUCTURE = "infrastructure"
    """The sandbox failed: enters neither reward nor rating."""


_RENAMED = {Status.ERROR: "runtime_error", Status.KILLED: "runtime_error", Status.OOM: "out_of_memory"}


def proposal_verdict(status: Status) -> ProposalVerdict:
    """The verdict on a proposal whose program ran with this status."""
    return ProposalVerdict.VALID if status is Status.OK else ProposalVerdict(_RENAMED.get(status, status))


def attempt_verdict(status: Status) -> AttemptVerdict:
    """The verdict on an attempt whose run did not end well.

    A result that is not repeatable is a wrong answer.

    Raises:
        ValueError: for `Status.OK`, as only a comparison tells correct from wrong.
    """
    if status is Status.OK:
        raise ValueError("status ok is judged by comparing outputs, not by itself")
    if status is Status.NONDETERMINISTIC:
        return AttemptVerdict.WRONG
    return AttemptVerdict(_RENAMED.get(status, status))
