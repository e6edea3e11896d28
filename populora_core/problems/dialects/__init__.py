"""Dialects: how a base model is asked and how its text is read."""

from populora_core.problems.dialects.compact import CompactDialect
from populora_core.problems.dialects.dialect import Dialect
from populora_core.problems.dialects.instruct import InstructDialect
from populora_core.support.errors import ProblemError
from populora_core.support.registry import Registry

__all__ = ["DIALECTS", "Dialect", "dialect"]

DIALECTS = Registry(
    {known.name: known for known in (CompactDialect(), InstructDialect())},
    group="populora.dialects",
    what="dialect",
    setting="base.dialect",
    error=ProblemError,
    protocol=Dialect,
)


def dialect(name: str) -> Dialect:
    """The dialect of that name, or at that place.

    Raises:
        ProblemError: there is none, or it lacks a method.
    """
    spoken: Dialect = DIALECTS.find(name)
    return spoken
