"""Near misses: what a program gives without one of its statements, and how a table tells who is taken in by them."""

from __future__ import annotations

import pytest

from experiments.near_misses import near_misses, table
from populora_core.problems.model import Problem
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.verify import verify_or_raise
from populora_core.support.aliases import Row

BASE = {"arm": "base", "seed": 0, "updates": 0, "player": "base", "left_out": 9}


def asked_base() -> Row:
    """The base, which is right at one of four problems."""
    return {**BASE, "right": {"a": True, "b": False, "c": False, "d": False}}


def student(right: str, seed: int = 0, updates: int = 24, slot: int = 0) -> Row:
    """A student of self-play, right at these problems."""
    named = {"arm": "self-play", "seed": seed, "updates": updates, "player": f"student-{slot:02}-g0000"}
    return {**BASE, **named, "right": {name: name in right for name in "abcd"}}


def problem(name: str, body: str, output: str) -> Problem:
    return Problem(name, "code_o", f"def f(x):\n    {body}", ("([3, 1],)",), (output,), message="")


def found(*asked: Problem) -> list[list[str]]:
    with open_sandbox("auto", Limits(cpu_seconds=0.3), workers=1) as sandbox:
        return near_misses(asked, lambda jobs: verify_or_raise(sandbox, jobs, determinism=False))


@pytest.mark.sandbox
def test_a_near_miss_is_another_value_of_the_program_with_a_statement_less() -> None:
    assert found(
        problem("sorts", "x.sort()\n    x.append(0)\n    return x", "[1, 3, 0]"),
        problem("fails without it", "y = x[0]\n    return y", "3"),
        problem("the same without it", "x = list(x)\n    return x", "[3, 1]"),
    ) == [["[3, 1, 0]", "[1, 3]", "None"], ["None"], ["None"]]


@pytest.mark.sandbox
def test_of_more_than_three_near_misses_the_first_three_statements_count() -> None:
    grows = problem("grows", "x.append(7)\n    x.append(8)\n    x.append(9)\n    return x", "[3, 1, 7, 8, 9]")
    assert found(grows) == [["[3, 1, 8, 9]", "[3, 1, 7, 9]", "[3, 1, 7, 8]"]]


@pytest.mark.sandbox
def test_a_variant_that_never_ends_takes_no_other_with_it() -> None:
    shrinks = problem("shrinks", "x.append(5)\n    while len(x) > 1:\n        x.pop()\n    return x", "[3]")
    assert found(shrinks) == [["[3, 1, 5]", "None"]]


def test_an_arm_is_told_beside_the_base_over_the_same_problems() -> None:
    text = table([asked_base(), *(student("ab"[: 2 - seed] + "c", seed=seed) for seed in (0, 1))])
    assert "| base |  | 0.250 of 4 problems (9 left out) |  |" in text
    assert "| self-play | 2 | 0.625 | +0.375 (" in text


def test_a_seed_counts_once_by_the_mean_of_its_newest_students() -> None:
    """However often it was asked, and however many students it has."""
    early = student("", updates=12)
    assert "| self-play | 1 | 0.500 | +0.250 (" in table([asked_base(), early, student("ab")])
    both = [early, student("ab"), student("abcd", slot=1)]
    assert "| self-play | 1 | 0.750 | +0.500 (" in table([asked_base(), *both])
    assert "| self-play | 2 | 0.375 | +0.125 (" in table([asked_base(), *both, student("", seed=1)])
