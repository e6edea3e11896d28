"""Dialects: prompts of a base model, and the reading of its text."""

from populora_core.problems.dialects.compact import CompactDialect
from populora_core.problems.dialects.dialect import (
    NO_MORE,
    Dialect,
    is_templated,
    reserved_by,
    seeds_of,
    stops_of,
    thought_of,
)
from populora_core.problems.dialects.instruct import InstructDialect
from populora_core.support.errors import ProblemError
from populora_core.support.registry import Registry

__all__ = [
    "DIALECTS",
    "NO_MORE",
    "Dialect",
    "dialect",
    "is_templated",
    "reserved_by",
    "seeds_of",
    "stops_of",
    "thought_of",
]

DIALECTS = Registry(
    {known.name: known for known in (CompactDialect(), InstructDialect())},
    group="populora.dialects",
    what="dialect",
    setting="base.dialect",
    error=ProblemError,
    protocol=Dialect,
)


def dialect(name: str, inputs: int = 1) -> Dialect:
    """The dialect of that name, or at that place.

    Args:
        inputs: of a problem of a type whose answer has a part for each.

    Raises:
        ProblemError: there is none, or it lacks a method; or it asks for one input only.
    """
    spoken: Dialect = DIALECTS.find(name)
    if inputs == 1:
        return spoken
    if not hasattr(spoken, "asking"):
        raise ProblemError(
            f"the dialect {name} asks for one input a problem",
            expected="propose.inputs = 1, or a dialect with a method `asking`, such as instruct",
            got=f"propose.inputs = {inputs}",
            fix="a base that was trained on one input cannot be asked for more in a prompt; leave it at 1",
        )
    several: Dialect = spoken.asking(inputs)
    return several
