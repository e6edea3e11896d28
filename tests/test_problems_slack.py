"""Slack: what of a program can be left out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from populora_core.problems.chance import beginnings
from populora_core.problems.model import Problem
from populora_core.problems.slack import slacks, without_each
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job, JobResult, Limits
from populora_core.sandbox.status import Status
from populora_core.sandbox.verify import verify_or_raise

LOOP = """
def f(a):
    n = 0
    for item in a:
        n += item
        b = n
    return n
"""


def problem(program: str, arguments: str, output: str) -> Problem:
    return Problem(program, "code_o", program, (arguments,), (output,), "")


def test_each_statement_is_left_out_once_wherever_it_stands() -> None:
    shorter = list(without_each(LOOP))
    assert len(shorter) == len(set(shorter)) == 5
    gone = ["n = 0", "for", "return", "n += item", "b = n"]
    assert all(words not in text for words, text in zip(gone, shorter, strict=True))


def test_a_docstring_is_no_statement() -> None:
    bare, documented = "def f(a):\n b=a+1\n return b", "def f(a):\n 'Adds one.'\n b=a+1\n return b"
    assert len(list(without_each(documented))) == len(list(without_each(bare))) == 2
    assert len(list(beginnings(documented))) == len(list(beginnings(bare))) == 1


def test_no_more_statements_are_left_out_than_are_tried() -> None:
    lines = "".join(f" a+={number}\n" for number in range(999))
    made = list(without_each(f"def f(a):\n{lines} return a"))
    assert [text[: text.index("pass")].count("a+=") for text in made] == list(range(0, 1000, 50))


def test_a_block_that_is_left_empty_passes() -> None:
    assert list(without_each("def f(a):\n if a:\n  a = 'é'; b = 1\n return a")) == [
        "def f(a):\n pass\n return a",
        "def f(a):\n if a:\n  a = 'é'; b = 1\n pass",
        "def f(a):\n if a:\n  pass; b = 1\n return a",
        "def f(a):\n if a:\n  a = 'é'; pass\n return a",
    ]


@pytest.mark.sandbox
def test_slack_is_the_share_of_statements_that_change_nothing() -> None:
    asked = [
        problem(LOOP, "([1, 2],)", "3"),
        problem("def f(x,y):\n x=(x+y)%5\n y=(y+1)%5\n return [x,y]", "(3, 2)", "[0, 3]"),
        problem("def f(x,y):\n x=(x+y)%5\n y=(y+1)%5\n return [x,y]", "(3, 0)", "[3, 1]"),
    ]
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        found = slacks(asked, lambda jobs: verify_or_raise(sandbox, jobs, determinism=False))
    assert found == [1 / 5, 0.0, 1 / 3]


def test_no_one_knows_the_slack_of_whom_infrastructure_lost_a_run() -> None:
    asked = [problem(LOOP, "([1, 2],)", "3"), problem("def f(a):\n return a", "(3,)", "3")]

    def losing(jobs: Sequence[Job]) -> list[JobResult]:
        return [JobResult(job.job_id, Status.INFRASTRUCTURE) for job in jobs]

    assert slacks(asked, losing) == [None, None]
    assert slacks(asked[:0], losing) == []
