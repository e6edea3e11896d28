"""Samples of the stepwise grammar as problems of the project, and how an answer to one of them is read."""

from __future__ import annotations

from base_model.steps.documents import answer
from base_model.steps.grammar import SolvedProgram, output
from populora_core.problems.model import Problem
from populora_core.sandbox.literals import literal

TOKENS_A_STEP = 6
TOKENS_OF_A_RESULT = 7
ROOM = 1.5


def output_problem(found: SolvedProgram, problem_id: str) -> Problem:
    """The `code_o` problem of the sample's inputs."""
    inputs = tuple(map(literal, found.inputs))
    outputs = tuple(literal(list(output)) for output in found.outputs)
    return Problem(problem_id, "code_o", found.program, inputs, outputs, message="")


def whole(found: SolvedProgram, completion: str) -> bool:
    """True if the completion is the thought and the answer that the rule gives, token for token."""
    return completion.removesuffix("<eos>") == answer(found).removesuffix("<eos>")


def there_early(found: SolvedProgram) -> float:
    """The share of the program's beginnings that give its output already; the project's `chance` counts it too."""
    given = found.inputs[0]
    begun = [output(found.statements[:length], given) for length in range(found.level)]
    return begun.count(found.outputs[0]) / len(begun)


def steps_written(completion: str) -> int:
    """Number of lines of the thought."""
    return completion.count(":")


def answer_cap(level: int) -> int:
    """Tokens that an answer may have: half as many again as a problem of the level needs."""
    return round(ROOM * (TOKENS_A_STEP * level + TOKENS_OF_A_RESULT))
