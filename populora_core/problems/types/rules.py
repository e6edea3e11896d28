"""Our problem types: which drafts each refuses because they need no student, and how it judges an answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType

from populora_core.problems.model import Draft, Problem
from populora_core.problems.parsing import accepts, entry_function, ignores_arguments, parse_program
from populora_core.problems.types.protocol import AnswerForm, TypeRules
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict, attempt_verdict
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.sandbox.literals import (
    MAX_LITERAL_CHARS,
    canonical,
    canonical_text,
    canonical_texts,
    parse_arguments,
)
from populora_core.sandbox.status import Status
from populora_core.support.errors import ProblemError


class PlainType:
    """Defaults of a type: no message, the dialects' own template files."""

    has_message = False
    version = 1
    templates: Mapping[str, str] = MappingProxyType({})


class SeveralExamples(PlainType):
    """The part shared by types whose problem has as many inputs as the rules ask for, and an answer a part for each."""

    def input_count(self, rules: TypeRules) -> tuple[int, int]:
        return rules.inputs, rules.inputs

    def refuse(
        self, draft: Draft, rules: TypeRules, outputs: tuple[str, ...] | None = None
    ) -> ProposalVerdict | None:
        return refuse_examples(draft, self.input_count(rules), outputs)

    def shown(self, problem: Problem, rules: TypeRules) -> tuple[int, ...]:
        return tuple(range(len(problem.inputs)))


class OneExample(SeveralExamples):
    """The part shared by types whose problem is one program with one input and its output."""

    def input_count(self, rules: TypeRules) -> tuple[int, int]:
        return 1, 1


class CodeO(SeveralExamples):
    """Deduction: given a program and an input, or several, predict the outputs.

    The answer is a literal for each, so the sandbox has nothing to run.
    """

    title = "predict output"
    answer_form = AnswerForm.OUTPUT

    def answer_job(self, problem: Problem, answer: str, rules: TypeRules) -> Job | None:
        return None

    def judge(self, problem: Problem, answer: str, result: JobResult | None) -> AttemptVerdict:
        return compare(parts(answer), problem.outputs)


class CodeI(SeveralExamples):
    """Abduction: given a program and an output, or several, find an input that gives it.

    Any preimage counts: the program runs on the answer and must give the same outputs.
    """

    title = "find input"
    answer_form = AnswerForm.ARGUMENTS

    def answer_job(self, problem: Problem, answer: str, rules: TypeRules) -> Job | None:
        return job_for(problem, problem.program, parts(answer), answer)

    def judge(self, problem: Problem, answer: str, result: JobResult | None) -> AttemptVerdict:
        return judge_outputs(result, problem.outputs)


class CodeF(PlainType):
    """Induction: given some inputs with their outputs and a message, write the function.

    The answer is a program; it must be right on every example, those that the student did not see too.
    """

    title = "write function"
    answer_form = AnswerForm.PROGRAM
    has_message = True

    def input_count(self, rules: TypeRules) -> tuple[int, int]:
        return rules.code_f_inputs_min, rules.code_f_inputs_max

    def refuse(
        self, draft: Draft, rules: TypeRules, outputs: tuple[str, ...] | None = None
    ) -> ProposalVerdict | None:
        refused = refuse_examples(draft, self.input_count(rules), outputs)
        if refused is None and outputs is None and reveals(draft.message, draft.program):
            return ProposalVerdict.TRIVIAL
        if refused is None and outputs is not None and all(map(echoes, draft.inputs, outputs)):
            return ProposalVerdict.TRIVIAL  # whatever the program does, the identity is right
        return refused

    def shown(self, problem: Problem, rules: TypeRules) -> tuple[int, ...]:
        hidden = 1  # at least, in a dialect that shows more than the one it was written in
        return tuple(range(max(1, min(rules.code_f_shown, len(problem.inputs) - hidden))))

    def answer_job(self, problem: Problem, answer: str, rules: TypeRules) -> Job | None:
        return job_for(problem, answer, problem.inputs, answer)

    def judge(self, problem: Problem, answer: str, result: JobResult | None) -> AttemptVerdict:
        return judge_outputs(result, problem.outputs)


def refuse_examples(
    draft: Draft, input_count: tuple[int, int], outputs: tuple[str, ...] | None
) -> ProposalVerdict | None:
    """Refuse a call that cannot be made, and examples that ask for nothing: repeated, all with one output."""
    if outputs is None:
        if refused := refuse_call(draft, input_count):
            return refused
        return (
            ProposalVerdict.TRIVIAL if len(set(canonical_texts(draft.inputs))) < len(draft.inputs) else None
        )
    constant = len(outputs) > 1 and len(set(canonical_texts(outputs))) == 1
    if constant:
        return ProposalVerdict.TRIVIAL
    return refuse_long(outputs)


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


def parts(answer: str) -> tuple[str, ...]:
    """The answer to each input, in order: a line each, since no literal has a line end in it."""
    return tuple(answer.split("\n"))


def echoes(arguments: str, output: str) -> bool:
    """True if the output is the single argument, unchanged."""
    values = parse_arguments(arguments)
    return len(values) == 1 and canonical(values[0]) == canonical_text(output)


def reveals(message: str, program: str) -> bool:
    """True if the message contains the program, however its white space is set."""
    return _squeeze(program) in _squeeze(message)


def job_for(problem: Problem, program: str, inputs: tuple[str, ...], answer: str) -> Job:
    """A sandbox job whose name is one for each (problem, answer), so that equal answers can share a run."""
    digest = hashlib.sha256(answer.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return Job(f"{problem.problem_id}-{digest}", program, inputs)


def judge_outputs(result: JobResult | None, expected: tuple[str, ...]) -> AttemptVerdict:
    """Judge what a program gave; live objects never reach this side.

    Raises:
        ProblemError: there is no result.
    """
    if result is None:
        raise ProblemError(
            "an answer that had to be run came to be judged without its result",
            expected="the JobResult of answer_job",
            got="None",
            fix="run answer_job's job in the sandbox first",
        )
    if result.status is not Status.OK:
        return attempt_verdict(result.status)
    return compare(result.outputs, expected)


def compare(given: tuple[str, ...], expected: tuple[str, ...]) -> AttemptVerdict:
    """Compare values by their literals, type for type; the order of a set or of a dict's entries does not count."""
    same = canonical_texts(given) == canonical_texts(expected)
    return AttemptVerdict.CORRECT if same else AttemptVerdict.WRONG


def _squeeze(text: str) -> str:
    return "".join(text.split())
