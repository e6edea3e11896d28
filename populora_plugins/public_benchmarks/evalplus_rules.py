"""EvalPlus' own rules: how MBPP+ inputs are read from JSON, and when an output is right.

Both follow EvalPlus 0.3 (github.com/evalplus/evalplus: data/mbpp.py, eval/__init__.py, eval/_special_oracle.py),
whose data would otherwise mean something else: JSON has no tuples, sets or complex numbers, so for some problems
the conversion is part of the data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from populora_plugins.public_benchmarks.codec import refuse_colliding

RELATIVE_TOLERANCE = 1e-7
FLOAT_TOLERANCE = 1e-6
"""Tolerance for floats of problems that state none."""

SETS = frozenset(
    {
        "similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
        "intersection_array", "find_dissimilar", "Diff",
    }
)  # fmt: skip
"""MBPP+ functions whose answers count as sets, by entry point."""
PRESENCE = frozenset({"check_str", "text_match_three", "text_starta_endb"})
"""MBPP+ functions of which it only counts whether they return something."""
ALWAYS_RIGHT, OR_ZERO = "are_equivalent", "sum_div"
"""MBPP+ functions whose description is ambiguous: any answer is right; 0 is right besides the reference's."""
ROOT = "find_zero"
"""The HumanEval+ function whose answer is right where the polynomial is nearly zero."""

Convert = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _tuples(value: Any) -> list[Any]:
    return [tuple(item) for item in value]


def _tuple_of_tuples(value: Any) -> tuple[Any, ...]:
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def _nested_tuples(value: Any) -> Any:
    return tuple(map(_nested_tuples, value)) if isinstance(value, list) else value


def _sets(value: Any) -> list[Any]:
    return [set(item) if isinstance(item, list) and item else {} for item in value]


def _tuple_values(value: Any) -> dict[Any, Any]:
    return {key: tuple(item) for key, item in value.items()}


def _by_problem() -> dict[int, tuple[Convert, ...]]:
    groups: tuple[tuple[str, tuple[Convert, ...]], ...] = (
        ("2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 740 744 809", (tuple,)),
        ("63 64 70 94 120 237 272 299 400 409 417 438 473 614 780", (_tuples,)),
        ("75 413 444 753", (_tuples, _same)),
        ("106 750", (_same, tuple)),
        ("115", (_sets,)),
        ("124", (float, complex)),
        ("250 307 405 446 617 720 763 808", (tuple, _same)),
        ("252", (complex,)),
        ("259 278 401 445", (_tuple_of_tuples,)),
        ("580 615 791", (_nested_tuples,)),
        ("722", (_tuple_values, _same)),
    )
    return {int(number): converts for numbers, converts in groups for number in numbers.split()}


MBPP_ARGUMENTS = _by_problem()
"""Number of an MBPP+ problem -> how each argument is read; the last entry holds for all that follow it."""


def mbpp_arguments(task_id: str, arguments: Sequence[Any]) -> list[Any]:
    """The arguments of one call as MBPP means them."""
    converts = MBPP_ARGUMENTS.get(int(task_id.rpartition("/")[2]), (_same,))
    return [converts[min(place, len(converts) - 1)](value) for place, value in enumerate(arguments)]


def right(entry_point: str, arguments: Sequence[Any], answer: Any, expected: Any, atol: float) -> bool:
    """True if an answer is right by EvalPlus' rules.

    Args:
        expected: what the reference returned for the same arguments.
        atol: the problem's absolute tolerance; 0 for none.
    """
    try:
        if entry_point == ROOT:
            coefficients = arguments[0]
            value = sum(c * math.pow(answer, power) for power, c in enumerate(coefficients))
            return bool(abs(value) <= atol)
        if entry_point == ALWAYS_RIGHT:
            return True
        if entry_point in PRESENCE:
            if isinstance(answer, bool):
                return answer == (expected is not None)
            return (answer is not None) == (expected is not None)
        if entry_point in SETS:
            refuse_colliding(list(answer))
            return set(answer) == set(expected)
        if answer == expected or (entry_point == OR_ZERO and answer == 0):
            return True
        if atol == 0 and _is_floats(expected):
            atol = FLOAT_TOLERANCE
        return (
            atol != 0
            and type(answer) is type(expected)
            and (not isinstance(expected, (list, tuple)) or len(answer) == len(expected))
            and bool(np.allclose(answer, expected, rtol=RELATIVE_TOLERANCE, atol=atol))
        )
    except (TypeError, ValueError, ArithmeticError):  # values that do not compare at all
        return False


def _is_floats(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, float) for item in value)
    return isinstance(value, float)
