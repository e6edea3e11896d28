"""The bundled bases' own grammars as sources of anchors, in a clone: `anchors.source = "base_model.anchors:tiny"`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from base_model import grammar
from base_model.steps import grammar as steps
from populora_core.problems.model import Draft
from populora_core.sandbox.literals import literal

Level = Annotated[int, Field(ge=1, le=8)]


def frontier(rng: np.random.Generator, count: int, problem_type: str, *, level: Level = 3) -> Iterator[Draft]:
    """Programs of `level` steps, each tight on its inputs."""
    for _ in range(count):
        inputs = grammar.CODE_F_INPUTS if problem_type == "code_f" else 1
        found = steps.sample(rng, level, inputs)
        yield _draft(problem_type, found.program, found.inputs)


def tiny(rng: np.random.Generator, count: int, problem_type: str, *, level: Level = 2) -> Iterator[Draft]:
    """Programs of the tiny base's grammar, by its levels."""
    for _ in range(count):
        program, inputs, _ = grammar.sample_problem(rng, problem_type, level)
        yield _draft(problem_type, program, inputs)


def _draft(problem_type: str, program: str, inputs: tuple[tuple, ...] | list[tuple]) -> Draft:
    return Draft(problem_type, program, tuple(map(literal, inputs)), message="")
