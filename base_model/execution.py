"""Runs the grammar's own programs to learn their outputs; programs that a model wrote go to the sandbox.

The grammar makes only programs that halt (see `base_model.derivation`), so no timer is needed: a capped
``range`` and the bounds on values stop the few that would grow large.
"""

from __future__ import annotations

import builtins
import copy
import warnings
from collections.abc import Callable, Mapping

MAX_RANGE = 32
MAX_INT = 99
MAX_LIST = 8
MAX_STR = 12

_BUILTIN_NAMES = "abs len list max min ord set sorted str sum"


class OutOfBoundsError(ValueError):
    """A program made a value larger than the corpus wants."""


def _small_range(*bounds: int) -> range:
    values = range(*bounds)
    if len(values) > MAX_RANGE:
        raise OutOfBoundsError("range")
    return values


BUILTINS: dict[str, object] = {name: getattr(builtins, name) for name in _BUILTIN_NAMES.split()} | {
    "range": _small_range
}


def compile_function(program: str, extra: Mapping[str, object] | None = None) -> Callable[..., object]:
    """The function ``f`` of a program, with the grammar's builtins and nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        code = compile(program, "<grammar>", "exec")
    scope: dict[str, object] = {"__builtins__": BUILTINS, **(extra or {})}
    exec(code, scope)
    return scope["f"]  # type: ignore[return-value]


def is_small(value: object) -> bool:
    """True if the corpus may show the value: a small int, list of ints, or ASCII string."""
    if type(value) is int:
        return abs(value) <= MAX_INT
    if type(value) is str:
        return len(value) <= MAX_STR
    if type(value) is list:
        return len(value) <= MAX_LIST and all(type(item) is int and abs(item) <= MAX_INT for item in value)
    return False


def call(function: Callable[..., object], arguments: tuple) -> object:
    """The output, with the arguments protected from in-place changes.

    Raises:
        OutOfBoundsError: the output is not small.
        ArithmeticError, LookupError, TypeError, ValueError: as the program raised.
    """
    output = function(*copy.deepcopy(arguments))
    if not is_small(output):
        raise OutOfBoundsError("output")
    return output


def literal(value: object) -> str:
    """Compact text of a small value: no spaces (its strings hold none)."""
    return repr(value).replace(" ", "")


def arguments_text(arguments: tuple) -> str:
    """Arguments as the compact dialect writes them: comma-separated, no parentheses."""
    return ",".join(literal(argument) for argument in arguments)
