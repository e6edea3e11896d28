"""Outputs of programs on calls that may fail, and variants of a program that do the same as it.

Starting a program costs more than running it, so all calls of a trial are one program: some twenty blind guesses, or a
problem's five variants with a statement less. Where that does not end well they run one by one: what never ends must
not take the others with it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TypeVar

from populora_core.problems.grading import RunJobs
from populora_core.problems.model import Problem
from populora_core.problems.parsing import ENTRY, ProgramSyntaxError, name_beyond, parse_program
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.sandbox.literals import canonical_texts
from populora_core.sandbox.policy import refuse_program
from populora_core.sandbox.status import Status

ALONE = 5
"""Calls or variants of a trial that run one by one where they cannot run together: each may take a program's time."""
MOST = 20
"""Variants of a program that run at all, spread over it."""
TOGETHER = """
{made} = [{factories}]


def f(number, arguments):
    try:
        return (True, {made}[number]()(*arguments))
    except MemoryError:
        raise
    except Exception:
        return (False,)
"""
"""Calls one of the variants, made afresh: nothing is left of earlier calls. An exception is that variant's alone."""


_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Trial:
    """Calls of some programs.

    Attributes:
        name: of whose trial it is; errors name it.
        programs: each with an entry function.
        calls: number of a program and the literal of its arguments.
    """

    name: str
    programs: Sequence[str]
    calls: Sequence[tuple[int, str]]


@dataclass
class Watched:
    """Runs jobs of trials, and knows which problems lost one to infrastructure: nothing follows from what is left."""

    run_jobs: RunJobs
    _lost: set[str] = field(default_factory=set)

    def __call__(self, jobs: Sequence[Job]) -> list[JobResult]:
        results = self.run_jobs(jobs)
        for result in results:
            if result.status is Status.INFRASTRUCTURE:  # of the problem's own trial, or of a part of it
                self._lost |= {result.job_id, result.job_id.rpartition("-")[0]}
        return results

    def has_lost(self, problem: Problem) -> bool:
        """True if infrastructure lost a job of a trial that bears the problem's id."""
        return problem.problem_id in self._lost


def unchanged(
    problems: Sequence[Problem], variants: Sequence[Sequence[str]], run_jobs: RunJobs
) -> list[float]:
    """The share of each problem's variants that give its outputs on its inputs; 0 where it has none.

    Args:
        variants: of each problem, programs in the place of its own; one that fails gives other outputs.
        run_jobs: runs jobs in a sandbox, results in order.
    """
    asked = [(problem, spread(programs, MOST)) for problem, programs in zip(problems, variants, strict=True)]
    found = outputs_of(
        [
            Trial(
                problem.problem_id,
                [problem.program, *programs] if programs else [],
                [*product(range(1 + len(programs)), problem.inputs)],
            )
            for problem, programs in asked
        ],
        run_jobs,
    )
    together = [trusted(problem, outputs) for (problem, _), outputs in zip(asked, found, strict=True)]
    alone = [
        [
            Trial(f"{problem.problem_id}-{number}", [program], [(0, given) for given in problem.inputs])
            for number, program in enumerate(spread(programs, ALONE))
        ]
        if outputs is None
        else []
        for (problem, programs), outputs in zip(asked, together, strict=True)
    ]
    by_one = iter(outputs_of([trial for trials in alone for trial in trials], run_jobs))
    shares = []
    for (problem, _), outputs, trials in zip(asked, together, alone, strict=True):
        each = len(problem.inputs)
        given = (
            [next(by_one) for _ in trials]
            if outputs is None
            else [outputs[start : start + each] for start in range(0, len(outputs), each)]
        )
        same = sum(one == [*canonical_texts(problem.outputs)] for one in given)
        shares.append(same / max(1, len(given)))
    return shares


def trusted(problem: Problem, outputs: list[str | None] | None) -> list[str | None] | None:
    """Outputs of a trial after the problem's own; None if the problem's own are not reproduced.

    A program that answers otherwise beside other calls than alone looks at where it runs.
    """
    count = len(problem.inputs)
    return (
        None if outputs is None or outputs[:count] != [*canonical_texts(problem.outputs)] else outputs[count:]
    )


def spread(items: Sequence[_Item], most: int) -> list[_Item]:
    """All items, or so many of them at even distances."""
    count = min(most, len(items))
    return [items[place * len(items) // count] for place in range(count)]


def outputs_of(trials: Sequence[Trial], run_jobs: RunJobs) -> list[list[str | None] | None]:
    """The canonical output of each call of a trial, None where it raises; None of a trial that did not end in time.

    Args:
        run_jobs: runs jobs in a sandbox, results in order.
    """
    jobs = [_job(trial) for trial in trials]
    results = iter(run_jobs([job for job in jobs if job is not None]))
    return [
        None if job is None else _outputs(next(results), guarded=job.program not in trial.programs)
        for trial, job in zip(trials, jobs, strict=True)
    ]


def _job(trial: Trial) -> Job | None:
    """All calls as one job; None where the programs cannot be one."""
    program = joined(trial.programs)
    if program is not None:
        return Job(trial.name, program, tuple(f"({number}, {given})" for number, given in trial.calls))
    if len(trial.programs) == 1:
        return Job(trial.name, trial.programs[0], tuple(given for _, given in trial.calls))
    return None


def _outputs(result: JobResult, guarded: bool) -> list[str | None] | None:
    if result.status is not Status.OK:
        return None
    outputs = canonical_texts(result.outputs)
    if not guarded:
        return [*outputs]
    return [None if output == "(False,)" else output[len("(True, ") : -1] for output in outputs]


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
    made = name_beyond("".join(programs))
    names = [f"{made}_{number}" for number in range(len(trees))]
    scopes = [
        ast.FunctionDef(name, _NO_ARGUMENTS, [*tree.body, _GIVE_BACK], decorator_list=[])
        for name, tree in zip(names, trees, strict=True)
    ]
    module = ast.fix_missing_locations(ast.Module([*scopes], type_ignores=[]))
    try:
        text = ast.unparse(module)
    except (
        ValueError
    ):  # Python 3.11 cannot write out every f-string that it parses, and no version every number
        return None
    return text + TOGETHER.format(made=made, factories=", ".join(names))


def _functions_alone(tree: ast.Module) -> bool:
    refused = (ast.Global, ast.ClassDef, ast.Import, ast.ImportFrom)
    return all(isinstance(each, ast.FunctionDef) for each in tree.body) and not any(
        isinstance(node, refused) for node in ast.walk(tree)
    )


_NO_ARGUMENTS = ast.arguments([], [], None, [], [], None, [])
_GIVE_BACK = ast.Return(ast.Name(ENTRY, ast.Load()))
