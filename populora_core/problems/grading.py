"""Grading: from completions to verdicts, by what a dialect reads, the sandbox runs, and a problem type decides.

Stages, benchmarks and the base model's card all judge through these two functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal, TypedDict

from populora_core.problems.dialects import Dialect, reserved_by
from populora_core.problems.model import Draft, Problem
from populora_core.problems.parsing import FormatError, ProgramSyntaxError, read_input, read_program
from populora_core.problems.types import problem_type
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict, proposal_verdict
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.sandbox.status import Status
from populora_core.support.finish import FinishReason

CutAnswers = Literal["refuse", "judge"]
RunJobs = Callable[[Sequence[Job]], list[JobResult]]
NO_END = "no end token within max_tokens"
# Where objects lay differs from run to run, and verdicts are content.
ADDRESS = re.compile(r"0x[0-9a-fA-F]+|\d{9,}")


class Completed(TypedDict):
    """The columns of a completion that judging reads; rows of `attempts` have them."""

    completion: str
    finish_reason: str


class Proposed(Completed):
    """The columns of a proposal that checking reads; rows of `proposals` have them."""

    problem_type: str


@dataclass(frozen=True, slots=True)
class ProposalCheck:
    """The check of one proposal before duplicates are decided.

    Attributes:
        draft: what the dialect read; None where it could not.
        outputs: literals of what its program gives, one an input; empty unless the verdict is valid.
        detail: why it was refused, in words.
    """

    verdict: ProposalVerdict
    draft: Draft | None = None
    outputs: tuple[str, ...] = ()
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptJudgement:
    """The verdict on one attempt, and the answer that was judged."""

    verdict: AttemptVerdict
    answer: str | None = None


def check_proposals(
    dialect: Dialect, run_jobs: RunJobs, proposals: Sequence[Proposed | Draft]
) -> list[ProposalCheck]:
    """Check proposals, in order.

    Args:
        run_jobs: runs jobs in a sandbox with the determinism check, results in order.
        proposals: drafts where no model wrote them.
    """
    checks = [_read_proposal(dialect, proposal) for proposal in proposals]
    running = {
        str(index): check.draft
        for index, check in enumerate(checks)
        if check.draft is not None and check.verdict is ProposalVerdict.VALID
    }
    jobs = [Job(index, draft.program, draft.inputs) for index, draft in running.items()]
    for result in _run_shuffled(jobs, run_jobs):
        draft = running[result.job_id]
        refused, detail = _refuse_result(dialect, draft, result)
        outputs = () if refused is not None else result.outputs
        checks[int(result.job_id)] = ProposalCheck(refused or ProposalVerdict.VALID, draft, outputs, detail)
    return checks


def judge_attempts(
    dialect: Dialect,
    run_jobs: RunJobs,
    attempts: Sequence[tuple[Problem, Completed]],
    cut_answers: CutAnswers = "refuse",
) -> list[AttemptJudgement]:
    """Judge attempts, in order; equal completions for one problem are read once, equal answers run once.

    Args:
        run_jobs: runs jobs in a sandbox, results in order.
        attempts: each with its problem.
        cut_answers: what becomes of a completion that max_tokens cut, as `grade.cut_answers`.
    """
    known: dict[tuple[str, ...], AttemptJudgement] = {}
    read: list[AttemptJudgement] = []
    for problem, attempt in attempts:
        key = (problem.problem_id, attempt["finish_reason"], attempt["completion"])
        if key not in known:
            known[key] = _read_attempt(dialect, problem, attempt, cut_answers)
        read.append(known[key])
    jobs: dict[tuple[str, str], Job] = {}
    for (problem, _), judgement in zip(attempts, read, strict=True):
        if judgement.answer is not None and (problem.problem_id, judgement.answer) not in jobs:
            job = problem_type(problem.problem_type).answer_job(problem, judgement.answer, dialect.rules)
            if job is not None:
                jobs[problem.problem_id, judgement.answer] = job
    results = dict(zip(jobs, _run_shuffled(list(jobs.values()), run_jobs), strict=True))
    return [
        judgement
        if judgement.answer is None
        else AttemptJudgement(
            problem_type(problem.problem_type).judge(
                problem, judgement.answer, results.get((problem.problem_id, judgement.answer))
            ),
            judgement.answer,
        )
        for (problem, _), judgement in zip(attempts, read, strict=True)
    ]


def _run_shuffled(jobs: Sequence[Job], run_jobs: RunJobs) -> list[JobResult]:
    """Run jobs with their inputs in an order that no program can know, so that counting calls tells it nothing."""
    orders = [
        sorted(range(len(job.inputs)), key=lambda place: sha256(f"{place} {job.program}".encode()).digest())
        for job in jobs
    ]
    results = run_jobs(
        [
            replace(job, inputs=tuple(job.inputs[place] for place in order))
            for job, order in zip(jobs, orders, strict=True)
        ]
    )
    return [
        replace(
            result, outputs=tuple(output for _, output in sorted(zip(order, result.outputs, strict=True)))
        )
        if result.outputs
        else result
        for order, result in zip(orders, results, strict=True)
    ]


def _read_proposal(dialect: Dialect, proposal: Proposed | Draft) -> ProposalCheck:
    try:
        draft = _standard(dialect, proposal) if isinstance(proposal, Draft) else _parsed(dialect, proposal)
    except FormatError as error:
        return ProposalCheck(ProposalVerdict.FORMAT_ERROR, detail=ADDRESS.sub("…", str(error)))
    except ProgramSyntaxError as error:
        return ProposalCheck(ProposalVerdict.SYNTAX_ERROR, detail=ADDRESS.sub("…", str(error)))
    refused = problem_type(draft.problem_type).refuse(draft, dialect.rules)
    return ProposalCheck(refused or ProposalVerdict.VALID, draft)


def _parsed(dialect: Dialect, proposal: Proposed) -> Draft:
    if proposal["finish_reason"] != FinishReason.STOP:
        raise FormatError(NO_END)
    return dialect.parse_proposal(proposal["problem_type"], proposal["completion"])


def _standard(dialect: Dialect, draft: Draft) -> Draft:
    """The draft as the dialect would have read it."""
    if found := [token for token in reserved_by(dialect) if token in draft.program]:
        raise FormatError(f"expected no special token inside a program, came {', '.join(found)}")
    inputs = tuple(map(read_input, draft.inputs))
    return replace(draft, program=read_program(draft.program), inputs=inputs)


def _refuse_result(
    dialect: Dialect, draft: Draft, result: JobResult
) -> tuple[ProposalVerdict | None, str | None]:
    if result.status is not Status.OK:
        return proposal_verdict(result.status), ADDRESS.sub("…", result.error)
    return problem_type(draft.problem_type).refuse(draft, dialect.rules, result.outputs), None


def _read_attempt(
    dialect: Dialect, problem: Problem, attempt: Completed, cut_answers: CutAnswers
) -> AttemptJudgement:
    """The answer; where there is none, the verdict says why."""
    endings: tuple[str, ...] = ("",)
    if attempt["finish_reason"] != FinishReason.STOP:
        # The stop text alone may be missing, as </answer> behind a closed block.
        endings = () if cut_answers == "refuse" else ("", *(f"\n{stop}" for stop in dialect.stop))
    verdict = AttemptVerdict.FORMAT_ERROR
    for ending in endings:
        try:
            answer = dialect.parse_answer(problem, attempt["completion"] + ending)
            return AttemptJudgement(AttemptVerdict.WRONG, answer)
        except FormatError:
            verdict = AttemptVerdict.FORMAT_ERROR
        except ProgramSyntaxError:
            verdict = AttemptVerdict.SYNTAX_ERROR
    return AttemptJudgement(verdict)
