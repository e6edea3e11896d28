"""HumanEval as it was published: a function is right if the row's own `check` accepts it.

Model-written code never meets the check, nor the answers in it. The reference goes through the check once, which tells
the arguments; the candidate gets them; then the check runs again, with the candidate's answers as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from populora_core.benchmarks.benchmark import Item, ItemScore, Schema, check_rows
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import Job, Sandbox
from populora_core.support.errors import BenchmarkError
from populora_plugins.public_benchmarks.code_tests import (
    Key,
    call_input,
    code_limits,
    function_program,
    judge_time,
    read_result,
    run_batch,
)
from populora_plugins.public_benchmarks.evalplus import FACTOR, HEAD_STOPS, EvalPlus, reference

FLOOR_SECONDS = 3.0
"""HumanEval's time limit of a program; raised to five times the reference's time where that is more."""
CEILING_SECONDS = 15.0

_CHECK = """
{reference}

{test}

def ask_check(answers):
    import copy, random
    random.seed(0)  # some checks draw their arguments
    calls = []
    def candidate(*arguments):
        calls.append(copy.deepcopy(arguments))
        return {entry_point}(*arguments) if answers is None else answers[len(calls) - 1]
    try:
        check(candidate)
    except Exception:
        return False, calls
    return True, calls
"""

_CALLS = """
{candidate}

def ask_candidate(calls):
    return [{entry_point}(*arguments) for arguments in calls]
"""


class HumanEval(EvalPlus):
    """openai/human-eval: 164 rows whose prompt is the head of the function."""

    version = 9
    first_keyed = 7
    schema: Schema = {  # noqa: RUF012
        "task_id": (str,),
        "prompt": (str,),
        "entry_point": (str,),
        "canonical_solution": (str,),
        "test": (str,),
    }
    limits = code_limits(CEILING_SECONDS)

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        items = []
        for number, row in enumerate(check_rows(rows, self.schema, self.name)):
            if not row["entry_point"].isidentifier() or "def check(" not in row["test"]:
                raise BenchmarkError(
                    f"row {number} of {self.name} ({row['task_id']}) makes no problem",
                    expected="the name of a function as entry_point, and a test that defines check",
                    got=f"{row['entry_point']!r} and {row['test']!r:.60}",
                    fix="give the file of the release (HumanEval.jsonl.gz)",
                )
            items.append(Item(row["task_id"], self.name, row))
        return items

    def _judge(self, sandbox: Sandbox, asked: Mapping[Key, Item]) -> dict[Key, ItemScore]:
        items = {item.item_id: item for item in asked.values()}
        checked = run_batch(sandbox, [_check_job(item, None) for item in items.values()])
        known = {name: read_result(result, decoded=True) for name, result in zip(items, checked, strict=True)}
        scores, calling = dict[Key, ItemScore](), dict[Key, Job]()
        for key, item in asked.items():
            own = known[item.item_id]
            if own.verdict is None and own.values[0][0] is True:
                calling[key] = _calls_job(item, key[1], own.values[0][1])
            else:
                reason = f"the reference solution does not run here: {own.verdict or AttemptVerdict.WRONG}"
                scores[key] = ItemScore(AttemptVerdict.INFRASTRUCTURE, key[1], reason)
        answering = dict[Key, Job]()
        for (key, job), result in zip(calling.items(), run_batch(sandbox, [*calling.values()]), strict=True):
            seconds = min(max(FLOOR_SECONDS, FACTOR * known[key[0]].cpu_seconds), sandbox.limits.cpu_seconds)
            ran = read_result(judge_time(sandbox, job, result, seconds), decoded=True)
            if fault := ran.fault(key[1], "its calls"):
                scores[key] = fault
            else:
                answering[key] = _check_job(asked[key], ran.values[0])
        for key, result in zip(answering, run_batch(sandbox, [*answering.values()]), strict=True):
            ran = read_result(result, decoded=True)
            right = ran.verdict is None and ran.values[0][0] is True
            verdict = AttemptVerdict.CORRECT if right else AttemptVerdict.WRONG
            scores[key] = ran.fault(key[1], "check") or ItemScore(verdict, key[1])
        return scores


def _check_job(item: Item, answers: Any) -> Job:
    """The row's check with the reference where there are no answers, else with them, in the order of its calls."""
    source = _CHECK.format(
        reference=reference(item), test=item.fields["test"], entry_point=item.fields["entry_point"]
    )
    return Job("check", function_program(source, "_module.ask_check"), (call_input([answers]),))


def _calls_job(item: Item, program: str, calls: Any) -> Job:
    source = _CALLS.format(candidate=program, entry_point=item.fields["entry_point"])
    return Job("candidate", function_program(source, "_module.ask_candidate"), (call_input([calls]),))


humaneval = partial(HumanEval, "humaneval", stops=HEAD_STOPS)
