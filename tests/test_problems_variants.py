"""Variants of a program are held against it together as they would be one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from populora_core.problems.grading import RunJobs
from populora_core.problems.model import Problem
from populora_core.problems.variants import joined, unchanged
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job, JobResult, Limits
from populora_core.sandbox.verify import verify_or_raise

SAME = "def f(a):\n return a + 1"
FAILS = "def f(a):\n return a[0]"
RECURSIVE = "def f(a):\n return a + 1 if a < 5 else f(a - 1)"
HELPED = "step = 1\ndef g(a):\n return a + step\ndef f(a):\n return g(a)"
DATA = "from dataclasses import dataclass\n@dataclass\nclass P:\n x: int\ndef f(a):\n return P(a).x + 1"
COUNTS = "calls = []\ndef f(a):\n calls.append(a)\n return a + len(calls)"
DOCUMENTED = 'def f(a):\n """Adds\n one."""\n return a + 1'
GLOBAL = "n = 0\ndef f(a):\n global n\n n += 1\n return a + n"
ENDLESS = "def f(a):\n while a:\n  pass"
LEAVES = "def f(a):\n raise SystemExit"
NO_DATA = "def f(a):\n return f"
BROKEN = "raise ValueError\ndef f(a):\n return a + 1"
FORBIDDEN = "import os\ndef f(a):\n return a + 1"


@pytest.fixture(scope="module")
def run_jobs() -> Iterator[RunJobs]:
    with open_sandbox("auto", Limits(cpu_seconds=0.5), workers=1) as sandbox:
        yield lambda jobs: verify_or_raise(sandbox, jobs, determinism=False)


def problem(*inputs: int) -> Problem:
    outputs = tuple(str(number + 1) for number in inputs)
    return Problem("problem", "code_o", SAME, tuple(f"({number},)" for number in inputs), outputs, "")


def one_by_one(asked: Problem, programs: Sequence[str], run_jobs: RunJobs) -> float:
    results = run_jobs([Job(str(place), program, asked.inputs) for place, program in enumerate(programs)])
    return sum(result.outputs == asked.outputs for result in results) / len(programs)


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("programs", "share", "jobs"),
    [
        ([SAME, FAILS, SAME, FAILS], 0.5, [1, 0]),
        ([RECURSIVE, DOCUMENTED, FAILS, FAILS], 0.5, [1, 0]),
        ([HELPED, DATA], 1.0, [0, 2]),
        ([COUNTS, COUNTS], 0.0, [0, 2]),
        ([SAME, GLOBAL], 0.5, [0, 2]),
        ([SAME, ENDLESS], 0.5, [1, 2]),
        ([SAME, LEAVES], 0.5, [1, 2]),
        ([SAME, NO_DATA], 0.5, [1, 2]),
        ([SAME, BROKEN], 0.5, [0, 2]),
        ([SAME, FORBIDDEN], 0.5, [0, 2]),
    ],
)
def test_variants_count_together_as_they_do_one_by_one(
    run_jobs: RunJobs, programs: Sequence[str], share: float, jobs: list[int]
) -> None:
    asked, sent = problem(3, 4), list[int]()

    def counted(batch: Sequence[Job]) -> list[JobResult]:
        sent.append(len(batch))
        return run_jobs(batch)

    assert unchanged([asked], [programs], counted) == [share] == [one_by_one(asked, programs, run_jobs)]
    assert sent == jobs, "together, then one by one what did not end well"


@pytest.mark.sandbox
def test_problems_do_not_mix(run_jobs: RunJobs) -> None:
    asked = [problem(1), problem(1, 2), problem(3), problem(4)]
    found = unchanged(asked, [[SAME, FAILS], [], [SAME, ENDLESS], [SAME]], run_jobs)
    assert found == [0.5, 0.0, 0.5, 1.0]


def test_what_a_scope_would_change_is_not_joined() -> None:
    assert joined([]) is None
    for other in (GLOBAL, DATA, HELPED, BROKEN, FORBIDDEN):
        assert joined([SAME, other]) is None
    assert joined([SAME, RECURSIVE, DOCUMENTED]) is not None


def test_a_variant_that_is_too_long_to_parse_is_not_joined() -> None:
    assert joined([SAME, "def f(a):\n" + " a = a + 1\n" * 1000 + " return a"]) is None
