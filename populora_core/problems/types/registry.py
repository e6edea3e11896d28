"""The registry of problem types: what a type must say about itself, and who is registered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from populora_core.problems.model import Draft, Problem
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.support.errors import ProblemError


@dataclass(frozen=True, slots=True)
class TypeRules:
    """What a dialect asks of the types: how many inputs a code_f problem has, and how many a student sees."""

    code_f_inputs_min: int
    code_f_inputs_max: int
    code_f_shown: int


class AnswerForm(StrEnum):
    """What a student writes; dialects read answers by form, so that they need not know the types."""

    OUTPUT = "output"
    """One literal."""
    ARGUMENTS = "arguments"
    """The arguments of one call."""
    PROGRAM = "program"
    """A program that defines `f`."""


class ProblemType(Protocol):
    """One kind of verifiable problem: all that depends on the kind, and nothing that runs a program."""

    @property
    def name(self) -> str:
        """The name in columns, configuration and template files."""

    @property
    def title(self) -> str:
        """What a student does, for people: two or three words."""

    @property
    def answer_form(self) -> AnswerForm:
        """What a student writes."""

    @property
    def has_message(self) -> bool:
        """Whether a teacher may tell the student something in words."""

    def input_count(self, rules: TypeRules) -> tuple[int, int]:
        """The fewest and the most inputs that a proposal may have."""

    def refuse_draft(self, draft: Draft, rules: TypeRules) -> ProposalVerdict | None:
        """Why the draft need not be run, or None."""

    def refuse_outputs(
        self, draft: Draft, outputs: tuple[str, ...], rules: TypeRules
    ) -> ProposalVerdict | None:
        """Why the draft is no problem, given its canonical outputs (one an input), or None."""

    def shown(self, problem: Problem, rules: TypeRules) -> tuple[int, ...]:
        """The indices of the examples that a student may see."""

    def answer_job(self, problem: Problem, answer: str, rules: TypeRules) -> Job | None:
        """What the sandbox must run to judge the answer; None where the text alone decides."""

    def judge(self, problem: Problem, answer: str, result: JobResult | None) -> AttemptVerdict:
        """The verdict on an answer that its dialect could read; `result` is that of `answer_job`."""


PROBLEM_TYPES: dict[str, ProblemType] = {}


def register(kind: ProblemType) -> None:
    """Make a problem type known by its name.

    Raises:
        ProblemError: the name is taken.
    """
    if kind.name in PROBLEM_TYPES:
        raise ProblemError(
            f"the problem type {kind.name!r} is registered twice",
            expected="one registration a name",
            came=f"{type(kind).__name__} after {type(PROBLEM_TYPES[kind.name]).__name__}",
            remedy="give the new type a name of its own",
        )
    PROBLEM_TYPES[kind.name] = kind


def problem_type(name: str) -> ProblemType:
    """The registered problem type of that name.

    Raises:
        ProblemError: there is none.
    """
    if name not in PROBLEM_TYPES:
        raise ProblemError(
            f"there is no problem type {name!r}",
            expected=f"one of {', '.join(sorted(PROBLEM_TYPES))}",
            came=name,
            remedy="correct propose.types, or register the type in populora_core/problems/types",
        )
    return PROBLEM_TYPES[name]
