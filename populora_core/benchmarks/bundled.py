"""The bundled held-out suites: fresh problems of the grammars that the bundled bases know.

They are posed and judged as a student's problems are: the dialect's own prompt and grammar, the verifier's grading.
A `code_f` answer must be right on every example, those that the prompt does not show too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from populora_core.benchmarks.benchmark import Item, ItemScore, Response, Schema, check_rows
from populora_core.problems.dialects import dialect
from populora_core.problems.grading import AttemptJudgement, Completed, judge_attempts
from populora_core.problems.model import Problem
from populora_core.problems.types import ballot
from populora_core.sandbox.jobs import Sandbox
from populora_core.sandbox.verify import verify_or_raise
from populora_core.support.finish import FinishReason

SCHEMA: Schema = {
    "item_id": (str,),
    "problem_type": (str,),
    "level": (int,),
    "program": (str,),
    "inputs": (list,),
    "outputs": (list,),
    "known_program": (bool,),
}


class BundledBenchmark:
    """The problems of one type.

    Args:
        suite: the suite whose problems they are: `tiny` (made by `base_model.suite`) or `frontier`
            (`base_model.steps.suite`).
        problem_type: a name of the registry of problem types.
        chance: how often a blind guess is right, where the suite was made so that it is known.
    """

    version = 2
    first_keyed = 3
    schema = SCHEMA
    votes = False
    limits = None
    by_dialect = True

    def __init__(self, suite: str, problem_type: str, chance: float = 0.0) -> None:
        self.problem_type, self.name = problem_type, f"{suite}_{problem_type}"
        self.chance = chance

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        checked = check_rows(rows, SCHEMA, self.name)
        return [
            Item(row["item_id"], self.name, row, stratum=f"level {row['level']}")
            for row in checked
            if row["problem_type"] == self.problem_type
        ]

    def prompt(self, item: Item, family: str) -> str:
        return dialect(family).solve_prompt(problem_of(item))

    def template(self, family: str) -> str:
        return f"{family}/solve_{self.problem_type} {dialect(family).digest[:12]}"

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox
    ) -> list[ItemScore]:
        attempts = attempts_of(items, responses)
        judged = judge_attempts(
            dialect(family), lambda jobs: verify_or_raise(sandbox, jobs, determinism=False), attempts
        )
        return [
            ItemScore(found.verdict, ballot(problem.problem_type, found.answer), cut_detail(response, found))
            for (problem, _), response, found in zip(attempts, responses, judged, strict=True)
        ]


tiny_code_o = partial(BundledBenchmark, "tiny", "code_o")
tiny_code_i = partial(BundledBenchmark, "tiny", "code_i")
tiny_code_f = partial(BundledBenchmark, "tiny", "code_f")
frontier_code_o = partial(BundledBenchmark, "frontier", "code_o", chance=0.04)


class PlayedBenchmark(BundledBenchmark):
    """Problems of a run, of any type, as rows of its table `problems`."""

    def __init__(self, name: str) -> None:
        super().__init__("played", "problems")
        self.name = name

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        return [Item(row["problem_id"], self.name, row, row["problem_type"]) for row in rows]


first_problems = partial(PlayedBenchmark, "first_problems")
newest_problems = partial(PlayedBenchmark, "newest_problems")


def problem_of(item: Item) -> Problem:
    """The item as a student's problem."""
    return Problem.of({**item.fields, "problem_id": item.item_id})


def attempts_of(items: Sequence[Item], responses: Sequence[Response]) -> list[tuple[Problem, Completed]]:
    """The responses as a student's attempts at the problems."""
    return [
        (problem_of(item), Completed(completion=response.text, finish_reason=response.finish_reason))
        for item, response in zip(items, responses, strict=True)
    ]


def cut_detail(response: Response, judged: AttemptJudgement) -> str:
    """The reason why a completion that max_tokens cut holds no answer; empty for any other."""
    return (
        "cut by max_tokens" if judged.answer is None and response.finish_reason != FinishReason.STOP else ""
    )
