"""Counting programs run the given one and return how many statements it executed."""

from __future__ import annotations

import pytest

from populora_core.problems.parsing import ProgramSyntaxError
from populora_core.sandbox.policy import refuse_program
from populora_plugins.study.steps import counting


def steps(program: str, *arguments: object) -> int:
    """Runs programs of this file alone; those of models run in a sandbox."""
    names: dict = {}
    exec(counting(program), names)
    return names["f"](*arguments)


@pytest.mark.parametrize(
    ("program", "arguments", "count"),
    [
        ("def f(x):\n return x", (1,), 1),
        ("def f(x):\n t = 0\n for i in range(x):\n  t += i\n return t", (3,), 1 + 1 + 3 + 1),
        ("def f(x):\n if x > 1:\n  x = 1\n else:\n  x = 2\n  x = 3\n return x", (5,), 3),
        ("def f(x):\n if x > 1:\n  x = 1\n else:\n  x = 2\n  x = 3\n return x", (0,), 4),
        ("def f(x):\n return sum(v for v in range(x) if v > 1)", (4,), 1 + 4),
        ("def f(x):\n return 1 if x < 1 else x * f(x - 1)", (3,), 4),
        ("def g(x):\n y = x\n return y\ndef f(x):\n return g(x) + g(x)", (3,), 5),
        ("def f(x, y=[i for i in range(2)]):\n return y", (3,), 1),
        ("from __future__ import annotations\ndef f(x: 'f') -> int:\n f = x\n return f", (3,), 2),
        ("def f(x):\n try:\n  return 1 // x\n except ZeroDivisionError as f:\n  return str(f)", (0,), 3),
    ],
)
def test_what_is_executed_is_counted(program: str, arguments: tuple, count: int) -> None:
    assert steps(program, *arguments) == count
    assert refuse_program(counting(program)) is None, "the sandbox's policy lets it run"


def test_each_call_counts_from_nothing() -> None:
    names: dict = {}
    exec(counting("def f(x):\n for i in range(x):\n  pass\n return x"), names)
    assert [names["f"](n) for n in (3, 0, 3)] == [5, 2, 5]


def test_what_does_not_parse_is_refused() -> None:
    with pytest.raises(ProgramSyntaxError):
        counting("def f(:")
