"""Near misses: what a program gives without one of its statements, and how a table tells who is taken in by them."""

from __future__ import annotations

import pytest

from experiments.near_misses import near_misses, table
from populora_core.problems.model import Problem
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.verify import verify_or_raise

BASE = {"arm": "base", "seed": 0, "updates": 0, "player": "base"}


def problem(name: str, body: str, output: str) -> Problem:
    return Problem(name, "code_o", f"def f(x):\n    {body}", ("([3, 1],)",), (output,), message="")


@pytest.mark.sandbox
def test_a_near_miss_is_another_value_of_the_program_with_a_statement_less() -> None:
    asked = [
        problem("sorts", "x.sort()\n    x.append(0)\n    return x", "[1, 3, 0]"),
        problem("fails without it", "y = x[0]\n    return y", "3"),
        problem("the same without it", "x = list(x)\n    return x", "[3, 1]"),
    ]
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        found = near_misses(asked, lambda jobs: verify_or_raise(sandbox, jobs, determinism=False))
    assert found == [["[3, 1, 0]", "[1, 3]"], [], []]


def test_an_arm_is_told_beside_the_base_over_the_same_problems() -> None:
    rows = [
        {**BASE, "right": {"a": True, "b": False, "c": False, "d": False}},
        *(
            {
                **BASE,
                "arm": "self-play",
                "seed": seed,
                "player": "student-00-g0000",
                "right": {"a": True, "b": seed == 0, "c": True, "d": False},
            }
            for seed in (0, 1)
        ),
    ]
    text = table(rows)
    assert "| base |  | 0.250 of 4 problems |  |" in text
    assert "| self-play | 2 | 0.625 | +0.375 (" in text
