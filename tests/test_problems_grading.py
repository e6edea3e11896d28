"""From completions to verdicts, with the sandbox at the edge replaced by a table of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from populora_core.problems.dialects import dialect
from populora_core.problems.dialects.instruct import fence
from populora_core.problems.grading import check_proposals, judge_attempts
from populora_core.problems.model import Draft, Problem
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.sandbox.status import Status

COMPACT = dialect("compact")
PROGRAM = "def f(x):\n return x+1"
FIND = Problem("p", "code_i", PROGRAM, ("(1,)",), ("2",), "")
PREDICT = Problem("q", "code_o", PROGRAM, ("(1,)",), ("2",), "")


class Table:
    """Answers jobs from their inputs and remembers what it was asked."""

    def __init__(self, status: Status = Status.OK, error: str = "") -> None:
        self.asked: list[Job] = []
        self.status, self.error = status, error

    def __call__(self, jobs: Sequence[Job]) -> list[JobResult]:
        self.asked += jobs
        outputs = [tuple(str(int(text.strip("(),")) + 1) for text in job.inputs) for job in jobs]
        good = self.status is Status.OK
        return [
            JobResult(j.job_id, self.status, o if good else (), self.error)
            for j, o in zip(jobs, outputs, strict=True)
        ]


def proposal(completion: str, finish: str = "stop", kind: str = "code_o") -> dict[str, Any]:
    return {"problem_type": kind, "completion": completion, "finish_reason": finish}


def attempt(completion: str, finish: str = "stop") -> dict[str, Any]:
    return {"completion": completion, "finish_reason": finish}


def test_a_good_proposal_is_valid_with_its_outputs() -> None:
    (check,) = check_proposals(COMPACT, Table(), [proposal(f"{PROGRAM}\n#4")])
    assert (check.verdict, check.outputs) == (ProposalVerdict.VALID, ("5",))


@pytest.mark.parametrize(
    ("name", "verdict"), [("compact", ProposalVerdict.FORMAT_ERROR), ("instruct", ProposalVerdict.VALID)]
)
def test_a_draft_may_spell_what_is_no_token_of_its_dialect(name: str, verdict: ProposalVerdict) -> None:
    """A teacher's own proposal that spells it is valid in `instruct`, and is replayed as a draft."""
    program = "def f(x):\n return x+len('<eos>')-4"
    spoken = dialect(name)
    (check,) = check_proposals(spoken, Table(), [Draft("code_o", program, ("(4,)",), "")])
    assert check.verdict is verdict
    written = answered(fence("python", program), fence("input", "4"))
    (own,) = check_proposals(dialect("instruct"), Table(), [proposal(written)])
    assert own.verdict is ProposalVerdict.VALID


def test_a_proposal_that_was_cut_off_is_a_format_error_though_it_would_parse() -> None:
    table = Table()
    (check,) = check_proposals(COMPACT, table, [proposal(f"{PROGRAM}\n#4", finish="length")])
    assert check.verdict is ProposalVerdict.FORMAT_ERROR
    assert table.asked == []


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (Status.ERROR, ProposalVerdict.RUNTIME_ERROR),
        (Status.KILLED, ProposalVerdict.RUNTIME_ERROR),
        (Status.OOM, ProposalVerdict.OUT_OF_MEMORY),
        (Status.NONDETERMINISTIC, ProposalVerdict.NONDETERMINISTIC),
        (Status.INFRASTRUCTURE, ProposalVerdict.INFRASTRUCTURE),
    ],
)
def test_what_the_sandbox_finds_becomes_the_verdict(status: Status, verdict: ProposalVerdict) -> None:
    (check,) = check_proposals(COMPACT, Table(status), [proposal(f"{PROGRAM}\n#4")])
    assert (check.verdict, check.outputs) == (verdict, ())


def test_memory_addresses_are_masked_since_verdicts_are_content() -> None:
    (check,) = check_proposals(
        COMPACT, Table(Status.ERROR, "bad <f at 0x7f00aa>"), [proposal(f"{PROGRAM}\n#4")]
    )
    assert check.detail == "bad <f at …>"


def test_what_the_parser_says_of_an_input_is_masked_too() -> None:
    found = [check_proposals(COMPACT, Table(), [proposal(f"{PROGRAM}\n#1>5")])[0] for _ in range(2)]
    assert found[0].verdict is ProposalVerdict.FORMAT_ERROR and found[0] == found[1]
    assert found[0].detail and "…" in found[0].detail


def test_checks_come_in_the_order_of_the_proposals() -> None:
    rows = [
        proposal("nonsense"),
        proposal(f"{PROGRAM}\n#4"),
        proposal("def f(x:\n#1"),
        proposal(f"{PROGRAM}\n#7"),
    ]
    checks = check_proposals(COMPACT, Table(), rows)
    assert [check.outputs for check in checks] == [(), ("5",), (), ("8",)]
    assert checks[2].verdict is ProposalVerdict.SYNTAX_ERROR


def test_equal_answers_to_one_problem_are_run_once() -> None:
    table = Table()
    judged = judge_attempts(
        COMPACT, table, [(FIND, attempt("1")), (FIND, attempt("3")), (FIND, attempt("1"))]
    )
    assert [j.verdict for j in judged] == [
        AttemptVerdict.CORRECT,
        AttemptVerdict.WRONG,
        AttemptVerdict.CORRECT,
    ]
    assert len(table.asked) == 2


@pytest.mark.parametrize("results", [[], [JobResult("a", Status.OK), JobResult("b", Status.OK)]])
def test_a_sandbox_that_answers_for_more_or_fewer_jobs_than_asked_judges_no_one(
    results: list[JobResult],
) -> None:
    with pytest.raises(ValueError, match="zip"):
        judge_attempts(COMPACT, lambda jobs: results, [(FIND, attempt("1"))])


class Counts:
    """Runs what answers by the number of its calls: the n-th call gives 2 n + 1."""

    def __call__(self, jobs: Sequence[Job]) -> list[JobResult]:
        given = [tuple(str(2 * n + 3) for n in range(len(job.inputs))) for job in jobs]
        return [JobResult(job.job_id, Status.OK, outputs) for job, outputs in zip(jobs, given, strict=True)]


def test_an_answer_that_counts_its_calls_is_wrong() -> None:
    inputs, outputs = zip(*((f"({x},)", str(2 * x + 1)) for x in range(1, 9)), strict=True)
    asked = Problem("problem", "code_f", "def f(x):\n return 2*x+1", inputs, outputs, "")
    answer = {"completion": "n=[1]\ndef f(x):\n n[0]+=2\n return n[0]", "finish_reason": "stop"}
    (judgement,) = judge_attempts(COMPACT, Counts(), [(asked, answer)])
    assert judgement.verdict is AttemptVerdict.WRONG


def test_an_output_is_judged_without_running_anything() -> None:
    table = Table()
    judged = judge_attempts(COMPACT, table, [(PREDICT, attempt("u2\n=2")), (PREDICT, attempt("\n=3"))])
    assert [j.verdict for j in judged] == [AttemptVerdict.CORRECT, AttemptVerdict.WRONG]
    assert table.asked == []


@pytest.mark.parametrize(
    ("inputs", "verdict"),
    [
        ("1 2 3", ProposalVerdict.VALID),
        ("1 2", ProposalVerdict.FORMAT_ERROR),
        ("1 2 1", ProposalVerdict.TRIVIAL),
    ],
)
def test_a_proposal_has_as_many_different_inputs_as_were_asked_for(
    inputs: str, verdict: ProposalVerdict
) -> None:
    written = answered(fence("python", PROGRAM), *(fence("input", text) for text in inputs.split()))
    (check,) = check_proposals(dialect("instruct", 3), Table(), [proposal(written)])
    assert (check.verdict, check.outputs) == (verdict, ("2", "3", "4") if verdict == "valid" else ())


@pytest.mark.parametrize(
    ("kind", "tag", "right", "wrong"),
    [("code_o", "output", "2 3 4", "2 3 3"), ("code_i", "input", "1 2 3", "1 2 4")],
)
def test_every_answer_of_several_must_be_right(kind: str, tag: str, right: str, wrong: str) -> None:
    asked = Problem("p", kind, PROGRAM, ("(1,)", "(2,)", "(3,)"), ("2", "3", "4"), "")
    written = [answered(*(fence(tag, text) for text in texts.split())) for texts in (right, wrong, "2")]
    judged = judge_attempts(dialect("instruct", 3), Table(), [(asked, attempt(text)) for text in written])
    verdicts = [AttemptVerdict.CORRECT, AttemptVerdict.WRONG, AttemptVerdict.FORMAT_ERROR]
    assert [judgement.verdict for judgement in judged] == verdicts


def answered(*blocks: str) -> str:
    return "\n".join(["</think>", "<answer>", *blocks, "</answer>"])


def test_infrastructure_failure_is_never_a_wrong_answer() -> None:
    (judged,) = judge_attempts(COMPACT, Table(Status.INFRASTRUCTURE), [(FIND, attempt("1"))])
    assert judged.verdict is AttemptVerdict.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("name", "written", "verdict"),
    [
        ("compact", "\n=2", AttemptVerdict.CORRECT),
        ("compact", "\n=3", AttemptVerdict.WRONG),
        ("compact", "2", AttemptVerdict.FORMAT_ERROR),
        ("instruct", "</think><answer>\n```output\n2\n```", AttemptVerdict.CORRECT),
        ("instruct", "</think><answer>\n```output\n3\n```", AttemptVerdict.WRONG),
        ("instruct", "</think><answer>\n```output\n2", AttemptVerdict.FORMAT_ERROR),
        ("instruct", "so far 2", AttemptVerdict.FORMAT_ERROR),
        ("repl", "2\n", AttemptVerdict.CORRECT),
        ("repl", "[2", AttemptVerdict.FORMAT_ERROR),
    ],
)
def test_an_answer_that_was_cut_off_is_judged_where_that_is_asked_for(
    name: str, written: str, verdict: AttemptVerdict
) -> None:
    asked = [(PREDICT, attempt(written, finish="length"))]
    (strict,) = judge_attempts(dialect(name), Table(), asked)
    (judged,) = judge_attempts(dialect(name), Table(), asked, "judge")
    assert (strict.verdict, strict.answer) == (AttemptVerdict.FORMAT_ERROR, None)
    assert judged.verdict is verdict
