"""Problems of this generation and of earlier ones, as a stage reads them."""

from __future__ import annotations

from collections import defaultdict
from weakref import WeakKeyDictionary

from populora_core.population.islands import island_of_problem
from populora_core.problems.archive import Graded
from populora_core.problems.buffer import Buffer, PastNgrams
from populora_core.problems.coverage import Cell
from populora_core.problems.dialects import seeds_of
from populora_core.problems.model import Problem
from populora_core.runs.session import Session
from populora_core.stages.context import StageContext
from populora_core.store.rows import ProblemRow

PROBLEM = ("problem_id", "problem_type", "program", "inputs", "outputs", "message")  # columns of a `Problem`
_past: WeakKeyDictionary[Session, defaultdict[int, PastNgrams]] = WeakKeyDictionary()
"""Island -> n-grams of its past, for as long as a run is open: every generation adds to those of the last."""


def read_buffer(ctx: StageContext, capacity: int, island: int = 0) -> Buffer:
    """The dialect's seeds and earlier generations' problems: references to show, keys to find duplicates by.

    Args:
        island: whose problems; there is one island unless the configuration says more.
    """
    buffer = Buffer(capacity, _past.setdefault(ctx.session, defaultdict(PastNgrams))[island])
    for problem_type in ctx.config.propose.types:
        for seed in seeds_of(ctx.dialect, problem_type):
            buffer.add(seed)
    for row in ctx.rows("problems", *PROBLEM, "program_key", "teacher_id"):
        if _island(ctx, row) == island:
            buffer.add(Problem.of(row), row["program_key"])
    return buffer


def read_graded(ctx: StageContext, island: int = 0) -> list[Graded]:
    """An island's problems of all earlier generations that have a solve rate, oldest first."""
    rates = {
        row["problem_id"]: row["solve_rate"]
        for row in ctx.rows("problem_results", "problem_id", "solve_rate")
    }
    return [
        Graded(Problem.of(row), Cell.parse(row["cell"]), row["lines_of_code"], rate)
        for row in ctx.rows("problems", *PROBLEM, "cell", "lines_of_code", "teacher_id")
        if (rate := rates[row["problem_id"]]) is not None and _island(ctx, row) == island
    ]


def _island(ctx: StageContext, row: ProblemRow) -> int:
    """The island of a row of `problems`."""
    return island_of_problem(row["problem_id"], row["teacher_id"], ctx.config.population.islands)
