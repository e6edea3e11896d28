"""A quality-diversity archive of problems: for every cell of the problem space its best problem.

MAP-Elites (Mouret and Clune, arXiv 1504.04909). Where the buffer shows teachers what was written often, the archive
shows every occupied cell equally often, each by its elite.

The objective is learnability, p (1 - p) of the solve rate p: the variance of an attempt's success, which is 0
where a student learns nothing since all its attempts fare alike. p is that of the student that a problem met last: in
its own generation, or where it was asked again. Problems that everybody or no one solved have 0, and keep a cell
only until something better comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from populora_core.problems.coverage import Cell
from populora_core.problems.model import Problem

BINS = 8  # of each measure: a floor(log2) beyond the last one shares it


@dataclass(frozen=True, slots=True)
class Graded:
    """A problem that students have attempted; `lines_of_code` and `solve_rate` are those of the tables."""

    problem: Problem
    cell: Cell
    lines_of_code: int
    solve_rate: float


class Archive:
    """The elites of every problem type, one a cell.

    The state depends on the order of the problems alone, not on how they come in calls: of equals the first
    keeps its cell.
    """

    def __init__(self) -> None:
        self._held: dict[str, dict[Cell, Graded]] = {}  # by problem type and cell, oldest elite first

    def add(self, batch: Iterable[Graded]) -> None:
        """Let problems compete for their cells."""
        for graded in batch:
            cells = self._held.setdefault(graded.problem.problem_type, {})
            cell = Cell(tuple(min(size, BINS - 1) for size in graded.cell.bins), graded.cell.constructs)
            elite = cells.get(cell)
            if elite is not None and _same(elite.problem, graded.problem):
                cells[cell] = graded  # asked again: the newest solve rate counts, so others may win now
            elif elite is None or learnability(graded.solve_rate) > learnability(elite.solve_rate):
                cells.pop(cell, None)  # a dict keeps a key's first place; the new elite is the youngest
                cells[cell] = graded

    def elites(self, problem_type: str) -> list[Problem]:
        """The best problem of every occupied cell of the type, oldest first."""
        return [graded.problem for graded in self._held.get(problem_type, {}).values()]

    def sample(self, problem_type: str, k: int, rng: np.random.Generator) -> list[Problem]:
        """`k` different elites of the type, uniformly, in random order; fewer where there are fewer."""
        elites = self.elites(problem_type)
        chosen = rng.choice(len(elites), size=min(k, len(elites)), replace=False)
        return [elites[index] for index in chosen]


def _same(one: Problem, other: Problem) -> bool:
    return (one.program, one.inputs) == (other.program, other.inputs)


def learnability(solve_rate: float) -> float:
    """p (1 - p): largest, 1/4, where half the attempts are correct; 0 where all or none are."""
    return solve_rate * (1.0 - solve_rate)
