"""HumanEval+ and MBPP+: a function is right if it agrees with the reference on the base and the plus inputs.

The reference's outputs are computed in the sandbox beside the candidates' and compared on the host; they never go
back into a sandbox. What the reference took in CPU time sets each problem's limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from populora_core.benchmarks import prompts
from populora_core.benchmarks.answers import code_blocks, cut_at, defines
from populora_core.benchmarks.benchmark import Item, ItemScore, Response, Schema, check_rows
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


Arguments = Callable[[str, Sequence[Any]], list[Any]]
"""Task id and what JSON holds of the arguments of one call -> the arguments."""


@dataclass
class EvalPlus:
    """HumanEval+ or MBPP+.

    Attributes:
        stops: where a base model that goes on after its function has begun something else.
    """

    name: str
    stops: tuple[str, ...] = STOPS
    arguments: Arguments = lambda task_id, arguments: list(arguments)
    schema = SCHEMA
    version = 2
    votes = False
    limits = code_limits(CEILING_SECONDS)

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        """See `Benchmark.load`. An empty object stands for no plus inputs in the published file."""
        items = []
        for number, row in enumerate(check_rows(rows, self.schema, self.name)):
            calls = [call for group in GROUPS for call in row[group]]
            usable = row["base_input"] and all(isinstance(call, list) for call in calls)
            if not usable or not row["entry_point"].isidentifier():
                raise BenchmarkError(
                    f"row {number} of {self.name} ({row['task_id']}) makes no problem",
                    expected="the name of a function as entry_point, base_input and plus_input as lists of argument"
                    " lists, base_input not empty",
                    came=f"{row['entry_point']!r}, {row['base_input']!r:.60} and {row['plus_input']!r:.60}",
                    remedy="give the file of the EvalPlus release (JSON lines)",
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
        program_of = partial(self._program, family=family)
        return score_programs(items, responses, program_of, partial(self._judge, sandbox))

    def _judge(self, sandbox: Sandbox, asked: Mapping[Key, Item]) -> dict[Key, ItemScore]:
        """Run the references and the candidates together, then hold each candidate to its reference."""
        jobs = {
            (item_id, source, group): self._job(item, source, group)
            for (item_id, program), item in asked.items()
            for source in (_reference(item), program)
            for group in _groups(item)
        }
        results = dict(zip(jobs, run_batch(sandbox, list(jobs.values())), strict=True))

        def ran(item: Item, program: str, group: str) -> tuple[Ran, Ran]:
            """What the reference came to, and the candidate in the time that the reference gives it."""
            expected = read_result(results[item.item_id, _reference(item), group], decoded=True)
            seconds = min(max(FLOOR_SECONDS, FACTOR * expected.cpu_seconds), sandbox.limits.cpu_seconds)
            own = item.item_id, program, group
            return expected, read_result(judge_time(sandbox, jobs[own], results[own], seconds), decoded=True)

        return {key: self._score(item, key[1], partial(ran, item, key[1])) for key, item in asked.items()}

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

    def _score(self, item: Item, program: str, ran: Callable[[str], tuple[Ran, Ran]]) -> ItemScore:
        fields = item.fields
        for group in _groups(item):
            expected, found = ran(group)
            if expected.verdict is not None:
                reason = f"the reference solution does not run here: {expected.verdict}"
                return ItemScore(AttemptVerdict.INFRASTRUCTURE, program, reason)
            if fault := found.fault(program, group):
                return fault
            for number, call in enumerate(fields[group]):
                arguments = self.arguments(fields["task_id"], call)
                answer, wanted = found.values[number], expected.values[number]
                if not right(fields["entry_point"], arguments, answer, wanted, fields["atol"]):
                    return ItemScore(AttemptVerdict.WRONG, program, f"{group} {number} is wrong")
        return ItemScore(AttemptVerdict.CORRECT, program)


def _groups(item: Item) -> list[str]:
    """The groups of inputs that the problem has."""
    return [group for group in GROUPS if item.fields[group]]


def _reference(item: Item) -> str:
    return item.fields["prompt"] + item.fields["canonical_solution"]


# v0.1.10: the prompt is the head of the function.
humaneval_plus = partial(
    EvalPlus, "humaneval_plus", stops=(*STOPS, "\ndef ", "\nclass ", "\nimport ", "\nfrom ")
)
# v0.2.0: the prompt is a docstring with one assertion.
mbpp_plus = partial(EvalPlus, "mbpp_plus", arguments=mbpp_arguments)
