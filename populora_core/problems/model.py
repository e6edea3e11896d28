"""The records of a problem: what a teacher wrote, and what it became once the sandbox had run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposal that its dialect could read; nothing in it has been run.

    Args:
        problem_type: a name of the registry, such as `code_o`.
        program: Python source that defines the entry function `f`.
        inputs: literal of each argument tuple as it was written, such as `(3, [1, 2])`.
        message: what the teacher tells the student; empty where the type or the dialect has none.
    """

    problem_type: str
    program: str
    inputs: tuple[str, ...]
    message: str

    def problem(self, problem_id: str, outputs: tuple[str, ...]) -> Problem:
        """The problem that this draft is, given the outputs of its inputs."""
        return Problem(problem_id, self.problem_type, self.program, self.inputs, outputs, self.message)


@dataclass(frozen=True, slots=True)
class Problem:
    """A verified problem: a draft with the literal of what its program gives for every input."""

    problem_id: str
    problem_type: str
    program: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    message: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """The problem that a row of `problems` is, or one of a suite, which has no message."""
        return cls(
            row["problem_id"],
            row["problem_type"],
            row["program"],
            tuple(row["inputs"]),
            tuple(row["outputs"]),
            row.get("message", ""),
        )

    def draft(self) -> Draft:
        """The draft from before it was verified."""
        return Draft(self.problem_type, self.program, self.inputs, self.message)
