"""Dialects: how a base model is asked and how its text is read."""

from populora_core.problems.dialects.compact import CompactDialect
from populora_core.problems.dialects.dialect import Dialect
from populora_core.problems.dialects.instruct import InstructDialect
from populora_core.support.errors import ProblemError

__all__ = ["DIALECTS", "Dialect", "dialect"]

DIALECTS: dict[str, Dialect] = {known.name: known for known in (CompactDialect(), InstructDialect())}


def dialect(name: str) -> Dialect:
    """The dialect of that name.

    Raises:
        ProblemError: there is none.
    """
    if name not in DIALECTS:
        raise ProblemError(
            f"there is no dialect {name!r}",
            expected=f"one of {', '.join(sorted(DIALECTS))}",
            came=name,
            remedy="correct base.dialect",
        )
    return DIALECTS[name]
