"""A control: the compact dialect without thoughts, `base.dialect = "base_model.steps.direct:Direct"`, in a clone.

A prompt of `code_o` ends with the mark that ends a thought, so the answer is what stands next. What self-play gains
with it is gained without writing a step down.
"""

from __future__ import annotations

from functools import cached_property

from populora_core.problems.dialects.compact import OUTPUT_MARK, CompactDialect
from populora_core.problems.model import Problem


class Direct(CompactDialect):
    """Every completion of `code_o` starts with its result."""

    @cached_property
    def digest(self) -> str:
        return f"{super().digest}-direct"

    def solve_prompt(self, problem: Problem) -> str:
        return super().solve_prompt(problem) + self._opening(problem)

    def parse_answer(self, problem: Problem, completion: str) -> str:
        return super().parse_answer(problem, self._opening(problem) + completion)

    @staticmethod
    def _opening(problem: Problem) -> str:
        return OUTPUT_MARK if problem.problem_type == "code_o" else ""
