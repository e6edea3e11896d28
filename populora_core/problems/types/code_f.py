"""code_f, induction: given some inputs with their outputs and a message, write the function."""

from __future__ import annotations

from populora_core.problems.model import Draft, Problem
from populora_core.problems.types.registry import AnswerForm, TypeRules
from populora_core.problems.types.rules import (
    echoes,
    job,
    judge_outputs,
    refuse_call,
    refuse_long,
    reveals,
)
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.sandbox.protocol import Job, JobResult


class CodeF:
    """The answer is a program; it must be right on every example, those that the student did not see too."""

    name = "code_f"
    answer_form = AnswerForm.PROGRAM
    has_message = True

    def input_count(self, rules: TypeRules) -> tuple[int, int]:
        return rules.code_f_inputs_min, rules.code_f_inputs_max

    def refuse_draft(self, draft: Draft, rules: TypeRules) -> ProposalVerdict | None:
        if refused := refuse_call(draft, self.input_count(rules)):
            return refused
        repeated = len(set(draft.inputs)) < len(draft.inputs)
        return ProposalVerdict.TRIVIAL if repeated or reveals(draft.message, draft.program) else None

    def refuse_outputs(
        self, draft: Draft, outputs: tuple[str, ...], rules: TypeRules
    ) -> ProposalVerdict | None:
        if len(set(outputs)) == 1 or all(map(echoes, draft.inputs, outputs)):
            return ProposalVerdict.TRIVIAL
        return refuse_long(outputs)

    def shown(self, problem: Problem, rules: TypeRules) -> tuple[int, ...]:
        return tuple(range(min(rules.code_f_shown, len(problem.inputs))))

    def answer_job(self, problem: Problem, answer: str, rules: TypeRules) -> Job | None:
        return job(problem, answer, problem.inputs, answer)

    def judge(self, problem: Problem, answer: str, result: JobResult | None) -> AttemptVerdict:
        return judge_outputs(result, problem.outputs)
