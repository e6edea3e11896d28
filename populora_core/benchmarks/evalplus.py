"""HumanEval+ and MBPP+: a function is right if it agrees with the reference on the base and the plus inputs.

The reference's outputs are computed in the sandbox beside the candidates' and compared on the host; they never go
back into a sandbox. What the reference took in CPU time sets each problem's limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from populora_core.benchmarks import prompts
from populora_core.benchmarks.answers import code_blocks, cut_at, defines
from populora_core.benchmarks.benchmark import Aggregation, Item, ItemScore, Response, Schema, check_rows
from populora_core.benchmarks.code_tests import (
    Key,
    Ran,
    call_input,
    code_limits,
    function_program,
    judge_time,
    read_result,
    run_batch,
    score_programs,
)
from populora_core.benchmarks.evalplus_rules import mbpp_arguments, right
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import Job, Sandbox
from populora_core.support.errors import BenchmarkError

FLOOR_SECONDS = 2.0
FACTOR = 5.0
"""A candidate may take this many times the CPU time of the reference on the same inputs, and always the floor."""
CEILING_SECONDS = 10.0

SCHEMA: Schema = {
    "task_id": (str,),
    "prompt": (str,),
    "entry_point": (str,),
    "canonical_solution": (str,),
    "base_input": (list,),
    "plus_input": (list, dict),
    "atol": (int, float),
    "contract": (str,),
}

GROUPS = ("base_input", "plus_input")
STOPS = ("\nif __name__", "\ndef main(", "\nprint(", '\n"""', "\nassert ", "\n#", "\n```")


class EvalPlus:
    """What the two have in common.

    Attributes:
        stops: where a base model that goes on after its function has begun something else.
    """

    name = ""
    version = 2
    aggregation = Aggregation.PASS
    limits = code_limits(CEILING_SECONDS)
    stops: tuple[str, ...] = STOPS
    schema = SCHEMA

    def arguments(self, task_id: str, arguments: Sequence[Any]) -> list[Any]:
        """The arguments of one call, from what JSON holds of them."""
        return list(arguments)

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        """See `Benchmark.load`. An empty object stands for no plus inputs in the published file."""
        items = []
        for number, row in enumerate(check_rows(rows, self.schema, self.name)):
            calls = [call for group in GROUPS for call in row[group]]
            if not row["base_input"] or not all(isinstance(call, list) for call in calls):
                raise BenchmarkError(
                    f"row {number} of {self.name} ({row['task_id']}) makes no problem",
                    expected="base_input and plus_input as lists of argument lists, base_input not empty",
                    came=f"{row['base_input']!r:.60} and {row['plus_input']!r:.60}",
                    remedy="give the file of the EvalPlus release (JSON lines)",
                )
            if not row["entry_point"].isidentifier():
                raise BenchmarkError(
                    f"row {number} of {self.name} ({row['task_id']}) has no usable entry_point",
                    expected="the name of a function",
                    came=row["entry_point"],
                )
            items.append(Item(row["task_id"], self.name, row))
        return items

    def prompt(self, item: Item, family: str) -> str:
        prompt = item.fields["prompt"]
        return prompts.fill(
            family, "function", prompt=prompt if family == prompts.COMPLETION else prompt.strip()
        )

    def template(self, family: str) -> str:
        return prompts.record(family, "function")

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox
    ) -> list[ItemScore]:
        programs = [
            self._program(item, response.text, family)
            for item, response in zip(items, responses, strict=True)
        ]
        return score_programs(items, programs, partial(self._judge, sandbox))

    def _judge(self, sandbox: Sandbox, asked: Mapping[Key, Item]) -> dict[Key, ItemScore]:
        """Run the references and the candidates together, then hold each candidate to its reference."""
        jobs: dict[tuple[Key | str, str], Job] = {}
        for item in {item_id: item for (item_id, _), item in asked.items()}.values():
            reference = item.fields["prompt"] + item.fields["canonical_solution"]
            jobs |= {(item.item_id, group): self._job(item, reference, group) for group in _groups(item)}
        for key, item in asked.items():
            jobs |= {(key, group): self._job(item, key[1], group) for group in _groups(item)}
        results = dict(zip(jobs, run_batch(sandbox, list(jobs.values())), strict=True))
        expected = {
            (item_id, group): read_result(results[item_id, group], decoded=True)
            for item_id, group in jobs
            if isinstance(item_id, str)
        }

        scores: dict[Key, ItemScore] = {}
        for key, item in asked.items():
            found: dict[str, Ran] = {}
            for group in _groups(item):
                seconds = max(FLOOR_SECONDS, FACTOR * expected[item.item_id, group].cpu_seconds)
                seconds = min(seconds, sandbox.limits.cpu_seconds)
                timed = judge_time(sandbox, jobs[key, group], results[key, group], seconds)
                found[group] = read_result(timed, decoded=True)
            scores[key] = self._score(item, key[1], found, expected)
        return scores

    def _program(self, item: Item, text: str, family: str) -> str | None:
        """The candidate's program; None if the completion holds none."""
        prompt, entry_point = item.fields["prompt"], item.fields["entry_point"]
        if family == prompts.COMPLETION:
            return prompt + cut_at(text, self.stops)
        blocks = code_blocks(text)
        whole = [block for block in blocks if defines(block, entry_point)]
        if whole:
            return whole[-1]
        if blocks:
            return prompt + blocks[-1]  # the body alone
        return text if defines(text, entry_point) else None

    def _job(self, item: Item, source: str, group: str) -> Job:
        fields = item.fields
        calls = [self.arguments(fields["task_id"], call) for call in fields[group]]
        program = function_program(source, f"_module.__dict__[{fields['entry_point']!r}]")
        return Job("candidate", program, tuple(map(call_input, calls)))

    def _score(
        self, item: Item, program: str, found: Mapping[str, Ran], expected: Mapping[tuple[str, str], Ran]
    ) -> ItemScore:
        fields = item.fields
        for group, ran in found.items():
            reference = expected[item.item_id, group]
            if reference.verdict is not None:
                reason = f"the reference solution does not run here: {reference.verdict}"
                return ItemScore(None, AttemptVerdict.INFRASTRUCTURE, program, reason)
            if ran.verdict is AttemptVerdict.INFRASTRUCTURE:
                return ItemScore(None, ran.verdict, program, ran.detail)
            if ran.verdict is not None:
                return ItemScore(False, ran.verdict, program, f"{group}: {ran.verdict}")
            for number, (call, answer, want) in enumerate(
                zip(fields[group], ran.values, reference.values, strict=True)
            ):
                arguments = self.arguments(fields["task_id"], call)
                if not right(fields["entry_point"], arguments, answer, want, fields["atol"]):
                    return ItemScore(False, AttemptVerdict.WRONG, program, f"{group} {number} is wrong")
        return ItemScore(True, AttemptVerdict.CORRECT, program)


def _groups(item: Item) -> list[str]:
    """The groups of inputs that the problem has."""
    return [group for group in GROUPS if item.fields[group]]


class HumanEvalPlus(EvalPlus):
    """HumanEval+ v0.1.10: the prompt is the head of the function."""

    name = "humaneval_plus"
    stops = (*STOPS, "\ndef ", "\nclass ", "\nimport ", "\nfrom ")


class MbppPlus(EvalPlus):
    """MBPP+ v0.2.0: the prompt is a docstring with one assertion."""

    name = "mbpp_plus"

    def arguments(self, task_id: str, arguments: Sequence[Any]) -> list[Any]:
        return mbpp_arguments(task_id, arguments)
