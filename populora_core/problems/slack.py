"""Slack: the share of a program's statements that can be left out without changing its outputs.

Depth that does nothing is free: a program of ten statements with a slack of .8 is as deep as one of two.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from populora_core.problems.grading import RunJobs
from populora_core.problems.model import Problem
from populora_core.problems.parsing import blanked, blocks_of, is_string, parse_program
from populora_core.problems.variants import MOST, Watched, spread, unchanged


def slacks(problems: Sequence[Problem], run_jobs: RunJobs) -> list[float | None]:
    """The slack of each problem's program, on the problem's own inputs.

    0 where there is nothing to leave out, None where infrastructure lost a run.

    Args:
        run_jobs: runs jobs in a sandbox, results in order.
    """
    watched = Watched(run_jobs)
    found = unchanged(problems, [list(without_each(problem.program)) for problem in problems], watched)
    return [
        None if watched.has_lost(problem) else slack for problem, slack in zip(problems, found, strict=True)
    ]


def without_each(program: str) -> Iterator[str]:
    """The program with `pass` for each single statement of its functions but docstrings.

    For `MOST` of the statements, spread over the program, where there are more.

    Raises:
        ProgramSyntaxError: the program does not parse.
    """
    tree = parse_program(program)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {
        id(block): block for function in functions for node in ast.walk(function) for block in blocks_of(node)
    }
    statements = [each for block in inner.values() for each in block if not is_string(each)]
    for statement in spread(statements, MOST):
        yield blanked(program, [statement])
