"""HumanEval+ and MBPP+: a function is right if it agrees with the reference on the base and the plus inputs.

The reference's outputs are computed in the sandbox beside the candidates' and compared on the host; they never go
back into a sandbox. What the reference took in CPU time sets each problem's limit. A group of inputs runs as one
program; where that is too much for the reference, its inputs run one by one, and so do the candidates'.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from populora_core.benchmarks.benchmark import Item, ItemScore, Response, Schema, check_rows
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import Job, JobResult, Sandbox
from populora_core.support.errors import BenchmarkError
from populora_plugins.public_benchmarks import prompts
from populora_plugins.public_benchmarks.answers import cut_at
from populora_plugins.public_benchmarks.code_tests import (
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
from populora_plugins.public_benchmarks.evalplus_rules import mbpp_arguments, right
from populora_plugins.public_benchmarks.programs import (
    code_blocks,
    defines,
    function_body,
    function_code,
    needed,
    parsed,
)

FLOOR_SECONDS = 2.0
FACTOR = 5.0
"""A candidate may take this many times the CPU time of the reference on the same inputs, and always the floor."""
CEILING_SECONDS = 20.0
MEMORY_MIB = 4096
"""EvalPlus' own memory limit: one reference solution takes more than a third of it."""
TOO_MUCH = frozenset({AttemptVerdict.TIMEOUT, AttemptVerdict.OUT_OF_MEMORY, AttemptVerdict.OUTPUT_LIMIT})

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
STOPS = ("\nif __name__", "\ndef main(", "\nprint(", '\n"""', "\nassert ", "\n```")
HEAD_STOPS = (*STOPS, "\n#", "\ndef ", "\nclass ", "\nimport ", "\nfrom ")
"""Stop texts where the prompt is the head of the function."""
_COMMENTS = re.compile(r"\n#.*+\n*+(?:#.*+\n*+)*+(?=\S|\Z)")
"""Comments at the margin that no indented line follows: where a base model begins something else."""


Arguments = Callable[[str, Sequence[Any]], list[Any]]
"""Task id and what JSON holds of the arguments of one call -> the arguments."""
Inputs = tuple[str, int, int]
"""Inputs that run as one program: their group, the first of them, and the one after the last."""


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
    version = 11
    first_keyed = 9
    votes = False
    limits = code_limits(CEILING_SECONDS, MEMORY_MIB)

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
                    got=f"{row['entry_point']!r}, {row['base_input']!r:.60} and {row['plus_input']!r:.60}",
                    fix="give the file of the EvalPlus release (JSON lines)",
                )
            items.append(Item(row["task_id"], self.name, row))
        return items

    def prompt(self, item: Item, family: str) -> str:
        prompt = item.fields["prompt"]
        return prompts.fill(
            family, "function", prompt=prompt if prompts.is_completed(family) else prompt.strip()
        )

    def template(self, family: str) -> str:
        return prompts.record(family, "function")

    def ends(self, family: str) -> tuple[str, ...]:
        return prompts.ends(family, self.stops)

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox
    ) -> list[ItemScore]:
        program_of = partial(self._program, family=family)
        return score_programs(items, responses, program_of, partial(self._judge, sandbox))

    def _judge(self, sandbox: Sandbox, asked: Mapping[Key, Item]) -> dict[Key, ItemScore]:
        """Run the references and the candidates together, then hold each candidate to its reference."""
        parts = {item.item_id: _groups(item) for item in asked.values()}
        jobs, results = self._run(sandbox, asked, parts)
        apart = {
            item.item_id: _apart(
                item, [results[item.item_id, reference(item), part] for part in _groups(item)]
            )
            for item in asked.values()
        }
        again = {key: item for key, item in asked.items() if apart[item.item_id] != parts[item.item_id]}
        parts |= apart
        more_jobs, more_results = self._run(sandbox, again, parts)
        jobs, results = jobs | more_jobs, results | more_results

        def ran(item: Item, program: str, part: Inputs) -> tuple[Ran, Ran]:
            """The reference's result, and the candidate's in the time that follows from the reference's."""
            expected = read_result(results[item.item_id, reference(item), part], decoded=True)
            seconds = min(max(FLOOR_SECONDS, FACTOR * expected.cpu_seconds), sandbox.limits.cpu_seconds)
            own = item.item_id, program, part
            return expected, read_result(judge_time(sandbox, jobs[own], results[own], seconds), decoded=True)

        return {
            key: self._score(item, parts[item.item_id], key[1], partial(ran, item, key[1]))
            for key, item in asked.items()
        }

    def _run(
        self, sandbox: Sandbox, asked: Mapping[Key, Item], parts: Mapping[str, Sequence[Inputs]]
    ) -> tuple[dict[tuple[str, str, Inputs], Job], dict[tuple[str, str, Inputs], JobResult]]:
        """Run references and candidates on the parts of each problem; jobs and results by (item, program, part)."""
        jobs = {
            (item_id, source, part): self._job(item, source, part)
            for (item_id, program), item in asked.items()
            for source in (reference(item), program)
            for part in parts[item_id]
        }
        return jobs, dict(zip(jobs, run_batch(sandbox, list(jobs.values())), strict=True))

    def _program(self, item: Item, text: str, family: str) -> str | None:
        """The candidate's program; None if the completion holds none."""
        prompt, entry_point = item.fields["prompt"], item.fields["entry_point"]
        if prompts.is_completed(family):
            text = cut_at(text, self.ends(family))
            ends = (found.start() for found in _COMMENTS.finditer(text))
            return prompt + next(
                (text[:end] for end in ends if _is_whole(prompt + text[:end], entry_point)), text
            )
        if (code := function_code(text, entry_point)) is not None:
            return code
        blocks = code_blocks(text, dedent=False)
        return needed(prompt + function_body(blocks, prompt), entry_point) if blocks else None

    def _job(self, item: Item, source: str, part: Inputs) -> Job:
        fields = item.fields
        calls = [self.arguments(fields["task_id"], call) for call in _calls(item, part)]
        program = function_program(source, f"_module.__dict__[{fields['entry_point']!r}]")
        return Job("candidate", program, tuple(map(call_input, calls)))

    def _score(
        self, item: Item, parts: Sequence[Inputs], program: str, ran: Callable[[Inputs], tuple[Ran, Ran]]
    ) -> ItemScore:
        fields = item.fields
        for part in parts:
            group, first, _ = part
            expected, found = ran(part)
            if expected.verdict is not None:
                reason = f"the reference solution does not run here: {expected.verdict}"
                return ItemScore(AttemptVerdict.INFRASTRUCTURE, program, reason)
            if fault := found.fault(program, group):
                return fault
            for number, call in enumerate(_calls(item, part)):
                arguments = self.arguments(fields["task_id"], call)
                answer, wanted = found.values[number], expected.values[number]
                if not right(fields["entry_point"], arguments, answer, wanted, fields["atol"]):
                    return ItemScore(AttemptVerdict.WRONG, program, f"{group} {first + number} is wrong")
        return ItemScore(AttemptVerdict.CORRECT, program)


def _is_whole(code: str, entry_point: str) -> bool:
    return parsed(code) is not None and defines(code, entry_point)


def _groups(item: Item) -> list[Inputs]:
    """The groups of inputs that the problem has, each as a whole."""
    return [(group, 0, len(item.fields[group])) for group in GROUPS if item.fields[group]]


def _apart(item: Item, references: Sequence[JobResult]) -> list[Inputs]:
    """The parts, those of a group one by one of which the reference says that it is too much together."""
    parts: list[Inputs] = []
    for (group, first, end), result in zip(_groups(item), references, strict=True):
        if end - first > 1 and read_result(result, decoded=True).verdict in TOO_MUCH:
            parts += [(group, number, number + 1) for number in range(first, end)]
        else:
            parts.append((group, first, end))
    return parts


def _calls(item: Item, part: Inputs) -> Sequence[Any]:
    group, first, end = part
    calls: Sequence[Any] = item.fields[group][first:end]
    return calls


def reference(item: Item) -> str:
    """The program of the published solution."""
    return item.fields["prompt"] + item.fields["canonical_solution"]


humaneval_plus = partial(EvalPlus, "humaneval_plus", stops=HEAD_STOPS)  # v0.1.10
# v0.2.0: the prompt is a docstring with one assertion.
mbpp_plus = partial(EvalPlus, "mbpp_plus", arguments=mbpp_arguments)
