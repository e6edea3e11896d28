"""code_i, abduction: given a program and an output, find an input that gives it."""

from __future__ import annotations

from populora_core.problems.model import Problem
from populora_core.problems.types.registry import AnswerForm, TypeRules
from populora_core.problems.types.rules import OneExample, job, judge_outputs
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.protocol import Job, JobResult


class CodeI(OneExample):
    """Any preimage counts: the program runs on the answer and must give the same output."""

    name = "code_i"
    answer_form = AnswerForm.ARGUMENTS

    def answer_job(self, problem: Problem, answer: str, rules: TypeRules) -> Job | None:
        return job(problem, problem.program, (answer,), answer)

    def judge(self, problem: Problem, answer: str, result: JobResult | None) -> AttemptVerdict:
        return judge_outputs(result, problem.outputs)
