"""Which variants of a program do the same as it: with a statement less, or stopped early.

A problem has some five variants, and starting a program costs more than running it, so all variants of a problem run
as one program. Where that does not end well, each runs alone, and counts as that says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from populora_core.problems.grading import RunJobs
from populora_core.problems.model import Problem
from populora_core.problems.parsing import ENTRY, ProgramSyntaxError, parse_program
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.sandbox.policy import refuse_program
from populora_core.sandbox.status import Status

TOGETHER = """
populora_made = [{factories}]


def f(number, arguments):
    try:
        return (True, populora_made[number](*arguments))
    except MemoryError:
        raise
    except Exception:
        return (False,)
"""
"""Calls one of the variants; an exception is that variant's alone."""


def unchanged(
    problems: Sequence[Problem], variants: Sequence[Sequence[str]], run_jobs: RunJobs
) -> list[float]:
    """The share of each problem's variants that give its outputs on its inputs; 0 where it has none.

    Args:
        variants: of each problem, programs in the place of its own; one that fails gives other outputs.
        run_jobs: runs jobs in a sandbox, results in order.
    """
    asked = list(zip(problems, variants, strict=True))
    found = _together(asked, run_jobs)
    alone = [index for index, share in enumerate(found) if share is None]
    by_one = _one_by_one([asked[index] for index in alone], run_jobs)
    shares = dict(enumerate(found)) | dict(zip(alone, by_one, strict=True))
    return [shares[index] or 0.0 for index in range(len(asked))]


def _together(asked: Sequence[tuple[Problem, Sequence[str]]], run_jobs: RunJobs) -> list[float | None]:
    """The shares, by one job for all variants of a problem; None where it did not end well."""
    programs = [joined(variants) for _, variants in asked]
    jobs = [
        Job(problem.problem_id, program, tuple(_calls(problem, len(variants))))
        for (problem, variants), program in zip(asked, programs, strict=True)
        if program is not None
    ]
    results = iter(run_jobs(jobs))
    return [
        None if program is None else _share(problem, len(variants), next(results))
        for (problem, variants), program in zip(asked, programs, strict=True)
    ]


def _calls(problem: Problem, variants: int) -> Iterator[str]:
    for number in range(variants):
        yield from (f"({number}, {arguments})" for arguments in problem.inputs)


def _share(problem: Problem, variants: int, result: JobResult) -> float | None:
    if result.status is not Status.OK:
        return None
    expected, each = [f"(True, {output})" for output in problem.outputs], len(problem.inputs)
    starts = range(0, variants * each, each)
    return sum([*result.outputs[start : start + each]] == expected for start in starts) / variants


def _one_by_one(asked: Sequence[tuple[Problem, Sequence[str]]], run_jobs: RunJobs) -> list[float]:
    jobs = [
        Job(f"{problem.problem_id}-{number}", program, problem.inputs)
        for problem, programs in asked
        for number, program in enumerate(programs)
    ]
    results = iter(run_jobs(jobs))
    return [
        sum(next(results).outputs == problem.outputs for _ in programs) / max(1, len(programs))
        for problem, programs in asked
    ]


def joined(programs: Sequence[str]) -> str | None:
    """One program whose `f(number, arguments)` calls that function of one of these; each lies in a scope of its own.

    None where there are none, or where one could do otherwise in a scope, beside others or not at all: only functions
    are joined that import nothing, declare no name global, and that the policy lets run alone.
    """
    try:
        trees = [parse_program(program) for program in programs]
    except ProgramSyntaxError:  # a variant may be longer than what it was made from
        return None
    if not trees or not all(map(_functions_alone, trees)) or any(map(refuse_program, programs)):
        return None
    names = [f"populora_variant_{number}" for number in range(len(trees))]
    scopes = [
        ast.FunctionDef(name, _NO_ARGUMENTS, [*tree.body, _GIVE_BACK], decorator_list=[])
        for name, tree in zip(names, trees, strict=True)
    ]
    module = ast.fix_missing_locations(ast.Module([*scopes], type_ignores=[]))
    return ast.unparse(module) + TOGETHER.format(factories=", ".join(f"{name}()" for name in names))


def _functions_alone(tree: ast.Module) -> bool:
    refused = (ast.Global, ast.ClassDef, ast.Import, ast.ImportFrom)
    return all(isinstance(each, ast.FunctionDef) for each in tree.body) and not any(
        isinstance(node, refused) for node in ast.walk(tree)
    )


_NO_ARGUMENTS = ast.arguments([], [], None, [], [], None, [])
_GIVE_BACK = ast.Return(ast.Name(ENTRY, ast.Load()))
