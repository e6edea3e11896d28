"""A quality-diversity archive of problems: for every cell of the problem space the best problem found there.

MAP-Elites (Mouret and Clune, arXiv 1504.04909) on the archives of pyribs. Where the buffer shows teachers what
was written often, the archive shows every occupied cell equally often, each by its elite.

The objective is learnability, p (1 - p) of the solve rate p: the variance of an attempt's success, which is 0
where a student learns nothing since all its attempts fare alike. A problem is attempted in its own generation alone,
so p is that of the student it met then and is never measured again. Problems that everybody or nobody solved
have 0 and stand only where nothing better was found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from ribs.archives import GridArchive

from populora_core.problems.coverage import Cell, Construct
from populora_core.problems.model import Problem

BINS = 8  # of each measure: a floor(log2) beyond the last one shares it


@dataclass(frozen=True, slots=True)
class Graded:
    """A problem that students have attempted."""

    problem: Problem
    cell: Cell
    solve_rate: float


class Archive:
    """The elites of every problem type, one a cell.

    The state depends on the order of the problems alone, not on how they come in calls: of equals the first
    keeps its cell.
    """

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._grids: dict[tuple[str, tuple[Construct, ...]], GridArchive] = {}
        self._elites: dict[str, list[Problem]] = {}  # as last asked for

    def add(self, batch: Iterable[Graded]) -> None:
        """Let problems compete for their cells."""
        rivals: dict[tuple[str, tuple[Construct, ...]], list[tuple[int, Graded]]] = defaultdict(list)
        for graded in batch:
            rivals[graded.problem.problem_type, graded.cell.constructs].append((len(self._problems), graded))
            self._problems.append(graded.problem)
        self._elites.clear()
        for key, found in rivals.items():
            self._grid(key).add(
                solution=np.array([[index] for index, _ in found]),
                objective=np.array([learnability(graded.solve_rate) for _, graded in found]),
                measures=np.array([graded.cell.bins for _, graded in found]) + 0.5,
            )

    def elites(self, problem_type: str) -> list[Problem]:
        """The best problem of every occupied cell of the type, oldest first."""
        if problem_type not in self._elites:
            grids = [grid for (kind, _), grid in self._grids.items() if kind == problem_type]
            places = [int(index) for grid in grids for index in grid.data("solution")[:, 0]]
            self._elites[problem_type] = [self._problems[index] for index in sorted(places)]
        return self._elites[problem_type]

    def sample(self, problem_type: str, k: int, rng: np.random.Generator) -> list[Problem]:
        """`k` different elites of the type, uniformly, in random order; fewer where there are fewer."""
        elites = self.elites(problem_type)
        chosen = rng.choice(len(elites), size=min(k, len(elites)), replace=False)
        return [elites[index] for index in chosen]

    def _grid(self, key: tuple[str, tuple[Construct, ...]]) -> GridArchive:
        """The cells of one type and set of constructs: a grid over the four sizes."""
        if key not in self._grids:
            self._grids[key] = GridArchive(
                solution_dim=1, dims=[BINS] * 4, ranges=[(0, BINS)] * 4, solution_dtype=np.int64
            )
        return self._grids[key]


def learnability(solve_rate: float) -> float:
    """p (1 - p): largest, 1/4, where half the attempts are correct; 0 where all or none are."""
    return solve_rate * (1.0 - solve_rate)
