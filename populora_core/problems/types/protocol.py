"""The protocol of a problem type: five methods and four facts, most of which have a default in `rules.OneExample`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from populora_core.problems.model import Draft, Problem
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.sandbox.jobs import Job, JobResult


@dataclass(frozen=True, slots=True)
class TypeRules:
    """A dialect's rules for the types: how many inputs a code_f problem has, and how many of them a student sees.

    Attributes:
        inputs: of a problem of another type whose answer has a part for each.
    """

    code_f_inputs_min: int
    code_f_inputs_max: int
    code_f_shown: int
    inputs: int = field(
        default=1, repr=False
    )  # a dialect's digest holds the rest, and this where it is not 1


class AnswerForm(StrEnum):
    """The form of an answer; dialects read answers by form, so that they need not know the types."""

    OUTPUT = "output"
    """One literal for each input that is shown, a line each."""
    ARGUMENTS = "arguments"
    """The arguments of one call for each output that is shown, a line each."""
    PROGRAM = "program"
    """A program that defines `f`."""


class ProblemType(Protocol):
    """One kind of verifiable problem: all that depends on the kind, and nothing that runs a program."""

    @property
    def answer_form(self) -> AnswerForm:
        """The form of a student's answer."""

    @property
    def has_message(self) -> bool:
        """True if a teacher may add a message to the student in words."""

    @property
    def version(self) -> int:
        """Version, to raise whenever prompts or rules change; in the stage keys if the type has its own templates."""

    @property
    def templates(self) -> Mapping[str, str]:
        """`DIALECT/propose` and `DIALECT/solve` -> the text with its marks; empty where the dialects have files."""

    def input_count(self, rules: TypeRules) -> tuple[int, int]:
        """The fewest and the most inputs that a proposal may have."""

    def refuse(
        self, draft: Draft, rules: TypeRules, outputs: tuple[str, ...] | None = None
    ) -> ProposalVerdict | None:
        """The reason why the draft is no problem, or None; called twice.

        Args:
            outputs: literals of what the program gives, one an input; None before the program has run.
        """

    def shown(self, problem: Problem, rules: TypeRules) -> tuple[int, ...]:
        """The indices of the examples that a student may see."""

    def answer_job(self, problem: Problem, answer: str, rules: TypeRules) -> Job | None:
        """The job that the sandbox must run to judge the answer; None where the text alone decides."""

    def judge(self, problem: Problem, answer: str, result: JobResult | None) -> AttemptVerdict:
        """The verdict on an answer that its dialect could read; `result` is that of `answer_job`."""
