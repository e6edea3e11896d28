"""code_o, deduction: given a program and an input, predict the output."""

from __future__ import annotations

from populora_core.problems.model import Problem
from populora_core.problems.types.registry import AnswerForm, TypeRules
from populora_core.problems.types.rules import OneExample
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.protocol import Job, JobResult


class CodeO(OneExample):
    """The answer is a literal, so the sandbox has nothing to run."""

    name = "code_o"
    answer_form = AnswerForm.OUTPUT

    def answer_job(self, problem: Problem, answer: str, rules: TypeRules) -> Job | None:
        return None

    def judge(self, problem: Problem, answer: str, result: JobResult | None) -> AttemptVerdict:
        return AttemptVerdict.CORRECT if answer == problem.outputs[0] else AttemptVerdict.WRONG
