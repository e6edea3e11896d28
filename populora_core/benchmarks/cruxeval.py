"""CRUXEval (Gu et al., arXiv 2401.03065): the output of a function, or an input of it, as `code_o` and `code_i` ask.

A problem is asked in the run's own dialect, as students are. An answer is right by Python's `==`, as CRUXEval judges:
`1`, `1.0` and `True` are one value here. Rows whose input or output is no plain data make no problem of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from populora_core.benchmarks.benchmark import Item, ItemScore, Response, Schema, check_rows
from populora_core.benchmarks.bundled import BundledBenchmark, attempts_of, cut_detail
from populora_core.problems.dialects import dialect
from populora_core.problems.grading import ADDRESS, AttemptJudgement, judge_attempts
from populora_core.problems.model import Draft, Problem
from populora_core.problems.parsing import (
    FormatError,
    ProgramSyntaxError,
    read_arguments,
    read_output,
    read_program,
)
from populora_core.problems.types import AnswerForm, ballot, problem_type
from populora_core.problems.types.rules import parts
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import Job, JobResult, Sandbox
from populora_core.sandbox.literals import NotPlainData, parse_literal
from populora_core.sandbox.verify import verify_or_raise

SCHEMA: Schema = {"code": (str,), "input": (str,), "output": (str,), "id": (str, int)}
TYPES = ("code_o", "code_i")
NO_PROBLEM = (FormatError, ProgramSyntaxError)


class Cruxeval(BundledBenchmark):
    """The problems of one of the two types; `id` names the same program in both."""

    version = 2
    schema = SCHEMA

    def __init__(self, problem_type: str) -> None:
        super().__init__("cruxeval", problem_type)
        self.name = f"cruxeval_{problem_type.removeprefix('code_')}"

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        """See `Benchmark.load`; `left_out` says which rows make none."""
        items = []
        for row in check_rows(rows, SCHEMA, self.name):
            with suppress(*NO_PROBLEM):
                made = {"problem_type": self.problem_type, **_made(row)}
                items.append(Item(str(row["id"]), self.name, {**row, **made}))
        return items

    def left_out(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Id of each row that makes no problem -> why."""
        found = {}
        for row in check_rows(rows, SCHEMA, self.name):
            try:
                _made(row)
            except NO_PROBLEM as error:
                found[str(row["id"])] = ADDRESS.sub("…", str(error))
        return found

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox
    ) -> list[ItemScore]:
        spoken, ran = dialect(family), dict[str, JobResult]()

        def run_jobs(jobs: Sequence[Job]) -> list[JobResult]:
            results = verify_or_raise(sandbox, jobs, determinism=False)
            ran.update((job.job_id, result) for job, result in zip(jobs, results, strict=True))
            return results

        def outputs(problem: Problem, answer: str) -> tuple[str, ...]:
            """The value of each output that the answer states, or that its program computes."""
            kind = problem_type(problem.problem_type)
            if kind.answer_form is AnswerForm.OUTPUT:
                return parts(answer)
            job = kind.answer_job(problem, answer, spoken.rules)
            return ran[job.job_id].outputs if job else ()

        def score(problem: Problem, response: Response, judged: AttemptJudgement) -> ItemScore:
            """The judgement, but for answers that are equal and not of one type."""
            counted = ballot(problem.problem_type, judged.answer)
            if judged.verdict is AttemptVerdict.WRONG and judged.answer is not None:
                found = outputs(problem, judged.answer)
                if len(found) == len(problem.outputs) and all(map(same_value, found, problem.outputs)):
                    return ItemScore(AttemptVerdict.CORRECT, counted)
            return ItemScore(judged.verdict, counted, cut_detail(response, judged))

        attempts = attempts_of(items, responses)
        judged = judge_attempts(spoken, run_jobs, attempts)
        return list(map(score, [problem for problem, _ in attempts], responses, judged))


cruxeval_o = partial(Cruxeval, "code_o")
cruxeval_i = partial(Cruxeval, "code_i")


def is_row(row: Mapping[str, Any]) -> bool:
    """True if the row has CRUXEval's columns."""
    return SCHEMA.keys() <= row.keys()


def drafts(row: Mapping[str, Any]) -> list[Draft]:
    """The row as a draft of each type, for anchors; none where it makes no problem."""
    with suppress(*NO_PROBLEM):
        made = _made(row)
        return [Draft(kind, made["program"], tuple(made["inputs"]), message="") for kind in TYPES]
    return []


def _made(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the problem that a row makes; raises `NO_PROBLEM` where it makes none."""
    return {
        "program": read_program(row["code"]),
        "inputs": [read_arguments(row["input"])],
        "outputs": [read_output(row["output"])],
    }


def same_value(first: str, second: str) -> bool:
    """True if two literals of plain data are equal as Python compares values."""
    try:
        return bool(parse_literal(first) == parse_literal(second))
    except NotPlainData:
        return False
