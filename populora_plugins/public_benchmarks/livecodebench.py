"""LiveCodeBench, code generation, release v5: programs judged by standard input and output, or by calls.

The data set has no reference solutions. Its limit of 6 seconds a test is scaled by what a program of known work
takes in the same batch, so that a slow or busy machine does not turn right programs into wrong ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Any

from populora_core.benchmarks.benchmark import Item, ItemScore, Response, Schema, check_rows
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import Job, JobResult, Sandbox
from populora_core.sandbox.status import Status
from populora_core.support.errors import BenchmarkError
from populora_plugins.public_benchmarks import prompts
from populora_plugins.public_benchmarks.answers import cut_at
from populora_plugins.public_benchmarks.code_tests import (
    Key,
    call_input,
    code_limits,
    function_program,
    judge_time,
    read_result,
    run_batch,
    score_programs,
    stdin_input,
    stdin_program,
)
from populora_plugins.public_benchmarks.livecodebench_cases import (
    Case,
    TestType,
    arguments_of,
    metadata_of,
    read_cases,
    right_output,
    right_value,
)
from populora_plugins.public_benchmarks.programs import called_program, code_blocks, whole_program

TEST_SECONDS = 6.0
CEILING_SECONDS = 12.0
YARDSTICK = """
def f(n):
    total, seen = 0, {}
    for i in range(n):
        total = (total * 31 + i) % 1000003
        seen[total % 997] = i
    return total
"""
YARDSTICK_INPUT = "(1000000,)"
YARDSTICK_SECONDS = 0.2
"""CPU time of the yardstick on a machine on which the limit is exactly 6 seconds; see README.md."""

NEXT_PROBLEM = ("\n# Problem", "\n```")
"""Texts with which a base model that goes on after its program begins something else."""
TOGETHER = 16
"""Candidates whose tests are in memory at a time: a problem's tests can have tens of megabytes."""
FIRST_TESTS = 1
"""Tests of the first round; each round has four times as many, for those that passed so far."""

SCHEMA: Schema = {
    "question_title": (str,),
    "question_content": (str,),
    "platform": (str,),
    "question_id": (str,),
    "contest_id": (str,),
    "contest_date": (str, date),
    "starter_code": (str,),
    "difficulty": (str,),
    "public_test_cases": (str,),
    "private_test_cases": (str,),
    "metadata": (str,),
}

_MODULES = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
    "itertools", "functools", "operator", "io", "sys", "json",
)  # fmt: skip
PRELUDE = "\n".join(
    [f"from {module} import *" for module in (*_MODULES, "builtins", "typing")]
    + [f"import {module}" for module in _MODULES]
    + ["sys.setrecursionlimit(50000)", "sys.set_int_max_str_digits(50000)"]
)
"""Imports and limits that LiveCodeBench puts before every solution."""


@dataclass(slots=True)
class _Candidate:
    """A program on its way through the tests of its problem."""

    program: str
    name: str | None
    cases: list[Case]
    passed: int = 0
    score: ItemScore | None = field(default=None)


class LiveCodeBench:
    """livecodebench/code_generation_lite; its strata are the difficulties."""

    name = "livecodebench"
    version = 7
    first_keyed = 5
    votes = False
    limits = code_limits(CEILING_SECONDS)
    schema = SCHEMA
    text_columns = SCHEMA.keys() - {"private_test_cases"}  # which are packed

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        """See `Benchmark.load`. Private cases are unpacked when they are needed: they are gigabytes."""
        items = []
        for row in check_rows(rows, self.schema, self.name):
            source = f"{self.name} {row['question_id']}"
            cases = read_cases(row["public_test_cases"], source)
            if any(case.kind is TestType.FUNCTIONAL for case in cases) or row["starter_code"]:
                _function_name(row)
            items.append(Item(row["question_id"], self.name, row, row["difficulty"]))
        return items

    def prompt(self, item: Item, family: str) -> str:
        fields = item.fields
        question, starter = fields["question_content"].strip(), fields["starter_code"]
        return prompts.fill(family, self._template(item), question=question, starter_code=starter.rstrip())

    def template(self, family: str) -> str:
        return f"{prompts.record(family, 'stdin')}, {prompts.record(family, 'starter')}"

    def ends(self, family: str) -> tuple[str, ...]:
        return prompts.ends(family, NEXT_PROBLEM)

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox
    ) -> list[ItemScore]:
        program_of = partial(self._program, family=family)
        return score_programs(items, responses, program_of, partial(_judge_some, sandbox))

    def _template(self, item: Item) -> str:
        return "starter" if item.fields["starter_code"] else "stdin"

    def _program(self, item: Item, text: str, family: str) -> str | None:
        if prompts.is_completed(family):
            text = cut_at(text, self.ends(family))
            head = item.fields["starter_code"].rstrip()
            return f"{head}{text}" if text.strip() else None
        blocks = code_blocks(text)
        if not blocks:
            return None
        name = _call_name(item)
        return called_program(blocks, ("Solution", name)) if name else whole_program(blocks)


def _judge_some(sandbox: Sandbox, asked: Mapping[Key, Item]) -> dict[Key, ItemScore]:
    """Score the programs, some at a time."""
    scores: dict[Key, ItemScore] = {}
    keys = sorted(asked, key=lambda key: key[0])  # so that a problem's tests are unpacked once
    for start in range(0, len(keys), TOGETHER):
        some = keys[start : start + TOGETHER]
        cases = {key[0]: _cases(asked[key]) for key in some}
        candidates = [_Candidate(key[1], _call_name(asked[key]), cases[key[0]]) for key in some]
        _judge(sandbox, candidates)
        scores |= {
            key: candidate.score
            for key, candidate in zip(some, candidates, strict=True)
            if candidate.score is not None
        }
    return scores


def _judge(sandbox: Sandbox, candidates: Sequence[_Candidate]) -> None:
    """Score the candidates: one test first, then more for those that passed, so that loops cost little."""
    yardstick = [Job(f"yardstick {number}", YARDSTICK, (YARDSTICK_INPUT,)) for number in range(3)]
    seconds: float | None = None
    tests = FIRST_TESTS
    while waiting := [candidate for candidate in candidates if candidate.score is None]:
        jobs = [
            (candidate, case, _job(candidate, case))
            for candidate in waiting
            for case in candidate.cases[candidate.passed : candidate.passed + tests]
        ]
        measures = yardstick if seconds is None else []
        results = run_batch(sandbox, [*measures, *(job for _, _, job in jobs)])
        if seconds is None:
            seconds = min(_limit(results[: len(measures)]), sandbox.limits.cpu_seconds)
        for (candidate, case, job), result in zip(jobs, results[len(measures) :], strict=True):
            if candidate.score is None:
                candidate.score = _fault(candidate, case, judge_time(sandbox, job, result, seconds))
                candidate.passed += candidate.score is None
        for candidate in waiting:
            if candidate.score is None and candidate.passed == len(candidate.cases):
                candidate.score = ItemScore(AttemptVerdict.CORRECT, candidate.program)
        tests *= 4


def _limit(measured: Sequence[JobResult]) -> float:
    """Seconds of CPU time that a test may take on this machine, now."""
    seconds = [result.cpu_seconds for result in measured if result.status is Status.OK]
    slowness = statistics.median(seconds) / YARDSTICK_SECONDS if seconds else 1.0
    return TEST_SECONDS * max(1.0, slowness)


def _job(candidate: _Candidate, case: Case) -> Job:
    if case.kind is TestType.STDIN:
        return Job("candidate", stdin_program(candidate.program, PRELUDE), (stdin_input(case.input),))
    name = candidate.name
    target = f"_module.Solution().{name} if 'Solution' in _module.__dict__ else _module.{name}"
    return Job(
        "candidate", function_program(candidate.program, target, PRELUDE), (call_input(arguments_of(case)),)
    )


def _fault(candidate: _Candidate, case: Case, result: JobResult) -> ItemScore | None:
    """The score of a candidate that failed a case; None if it passed."""
    number = f"test {candidate.passed}"
    ran = read_result(result, decoded=case.kind is TestType.FUNCTIONAL)
    if fault := ran.fault(candidate.program, number):
        return fault
    right = right_output if case.kind is TestType.STDIN else right_value
    if right(ran.values[0], case.output):
        return None
    return ItemScore(AttemptVerdict.WRONG, candidate.program, f"{number} is wrong")


def _cases(item: Item) -> list[Case]:
    source = f"{item.benchmark} {item.item_id}"
    cases = [
        case
        for column in ("public_test_cases", "private_test_cases")
        if item.fields[column]
        for case in read_cases(item.fields[column], source)
    ]
    if not cases:
        raise BenchmarkError(f"{source} has no test case", fix="fetch the file again")
    return cases


def _call_name(item: Item) -> str | None:
    return (
        _function_name(item.fields)
        if item.fields["starter_code"]
        else metadata_of(item.fields).get("func_name")
    )


def _function_name(row: Mapping[str, Any]) -> str:
    """The function that functional tests call.

    Raises:
        BenchmarkError: metadata does not name it.
    """
    name = metadata_of(row).get("func_name")
    if isinstance(name, str) and name.isidentifier():
        return name
    raise BenchmarkError(
        f"livecodebench {row['question_id']} does not say which function is called",
        expected='metadata as JSON with the name in "func_name"',
        got=f"{row['metadata']!r:.60}",
        fix="fetch the file again",
    )
