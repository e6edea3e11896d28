"""Slack: the share of a program's statements that can be left out without changing its outputs.

Depth that does nothing is free: a program of ten statements with a slack of .8 is as deep as one of two.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from populora_core.problems.grading import RunJobs
from populora_core.problems.model import Problem
from populora_core.problems.parsing import is_string, parse_program
from populora_core.problems.variants import unchanged


def slacks(problems: Sequence[Problem], run_jobs: RunJobs) -> list[float]:
    """The slack of each problem's program, on the problem's own inputs; 0 where there is nothing to leave out.

    Args:
        run_jobs: runs jobs in a sandbox, results in order.
    """
    return unchanged(problems, [list(without_each(problem.program)) for problem in problems], run_jobs)


def without_each(program: str) -> Iterator[str]:
    """The program without each single statement of its functions but docstrings; a block that is left empty passes.

    Raises:
        ProgramSyntaxError: the program does not parse.
    """
    tree = parse_program(program)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {id(block): block for function in functions for block in _blocks(function)}
    for block in inner.values():
        whole = list(block)
        for index in (place for place, statement in enumerate(whole) if not is_string(statement)):
            block[:] = whole[:index] + whole[index + 1 :] or [ast.Pass()]
            yield ast.unparse(tree)
        block[:] = whole


def _blocks(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements inside the function, its own first."""
    for node in ast.walk(function):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value
