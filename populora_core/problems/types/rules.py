"""What the problem types have in common: refusing what needs no student, and judging by canonical text."""

from __future__ import annotations

import hashlib

from populora_core.problems.model import Draft, Problem
from populora_core.problems.parsing import accepts, entry_function, ignores_arguments, parse_program
from populora_core.problems.types.registry import TypeRules
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict, attempt_verdict
from populora_core.sandbox.literals import MAX_LITERAL_CHARS, canonical, parse_arguments
from populora_core.sandbox.protocol import Job, JobResult
from populora_core.sandbox.status import Status
from populora_core.support.errors import ProblemError


class OneExample:
    """The part shared by types whose problem is one program with one input and its output."""

    has_message = False

    def input_count(self, rules: TypeRules) -> tuple[int, int]:
        return 1, 1

    def refuse_draft(self, draft: Draft, rules: TypeRules) -> ProposalVerdict | None:
        return refuse_call(draft, self.input_count(rules))

    def refuse_outputs(
        self, draft: Draft, outputs: tuple[str, ...], rules: TypeRules
    ) -> ProposalVerdict | None:
        if echoes(draft.inputs[0], outputs[0]):
            return ProposalVerdict.TRIVIAL
        return refuse_long(outputs)

    def shown(self, problem: Problem, rules: TypeRules) -> tuple[int, ...]:
        return (0,)


def refuse_call(draft: Draft, input_count: tuple[int, int]) -> ProposalVerdict | None:
    """Refuse a wrong number of inputs or of arguments, and an entry function that reads no argument."""
    fewest, most = input_count
    if not fewest <= len(draft.inputs) <= most:
        return ProposalVerdict.FORMAT_ERROR
    function = entry_function(parse_program(draft.program))
    if function is None or not all(accepts(function, len(parse_arguments(text))) for text in draft.inputs):
        return ProposalVerdict.FORMAT_ERROR
    return ProposalVerdict.TRIVIAL if ignores_arguments(function) else None


def refuse_long(outputs: tuple[str, ...]) -> ProposalVerdict | None:
    """Refuse an output that no student could write down, because its literal would not be read."""
    return ProposalVerdict.OUTPUT_LIMIT if any(len(text) > MAX_LITERAL_CHARS for text in outputs) else None


def echoes(arguments: str, output: str) -> bool:
    """Whether the output is the single argument, unchanged."""
    values = parse_arguments(arguments)
    return len(values) == 1 and canonical(values[0]) == output


def reveals(message: str, program: str) -> bool:
    """Whether the message contains the program, however its white space is set."""
    return _squeeze(program) in _squeeze(message)


def job(problem: Problem, program: str, inputs: tuple[str, ...], answer: str) -> Job:
    """A sandbox job whose name is one for each (problem, answer), so that equal answers can share a run."""
    digest = hashlib.sha256(answer.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return Job(f"{problem.problem_id}-{digest}", program, inputs)


def judge_outputs(result: JobResult | None, expected: tuple[str, ...]) -> AttemptVerdict:
    """Compare canonical outputs, type for type; live objects never reach this side.

    Raises:
        ProblemError: there is no result.
    """
    if result is None:
        raise ProblemError(
            "an answer that had to be run came to be judged without its result",
            expected="the JobResult of answer_job",
            came="None",
            remedy="run answer_job's job in the sandbox first",
        )
    if result.status is not Status.OK:
        return attempt_verdict(result.status)
    return AttemptVerdict.CORRECT if result.outputs == expected else AttemptVerdict.WRONG


def _squeeze(text: str) -> str:
    return "".join(text.split())
