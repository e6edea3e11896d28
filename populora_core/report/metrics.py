"""The figures that a report follows over generations, each defined once: for one run's plots and for comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Literal

from populora_core.report.figures import Figures
from populora_core.report.series import (
    Points,
    SampleMean,
    column,
    first_generations,
    last_generations,
    role_means,
    sample_mean,
    standard_error,
    where,
)
from populora_core.report.text import Format, number, percent, seconds, signed
from populora_core.support.aliases import Row


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure with one value per generation.

    Attributes:
        key: its column in the views `figures_*`; trackers name it by this too.
        says: one sentence for a reader who sees the plot for the first time.
        unit: the label of its axis.
        parts: the kinds of parts that it has figures for.
        faceted: whether a comparison shows each part by itself.
        over: the column that counts what it is a mean or a share of, each between 0 and 1; None where its standard
            error is not known.
        spread: the column of their standard deviation; None for a share.
        counted: it grows with the number of proposals, so runs are compared by 100 of them.
        since: the first generation in which it means something.
    """

    key: str
    title: str
    says: str
    unit: str
    form: Format = number
    parts: Literal["types", "roles", "none"] = "types"
    faceted: bool = False
    zero: bool = True
    cumulative: bool = False
    over: str | None = None
    spread: str | None = None
    counted: bool = False
    since: int = 0

    def points(self, figures: Figures, part: str | None) -> Points:
        """(generation, value) of a part, a type or a role; None as the part means all of them together."""
        if self.parts == "roles":
            return role_means(figures, part, self.key)
        found = column(self._rows(figures, part), self.key)
        return [(generation, value if generation >= self.since else None) for generation, value in found]

    def errors(self, figures: Figures, part: str | None) -> Mapping[int, float]:
        """generation -> standard error, where it is known."""
        counted = self._counted(figures, part)
        return {generation: error for generation, (_, error) in counted.items() if error is not None}

    def mean(
        self, figures: Figures, part: str | None, generations: range, rates: bool = False
    ) -> SampleMean | None:
        """The mean over some generations, each weighted by what it counts; of what is counted so far, the last.

        Args:
            rates: take `rates` in place of `points`.
        """
        points = self.rates(figures, part) if rates else self.points(figures, part)
        known = [(int(x), y) for x, y in points if y is not None and x in generations]
        counted = self._counted(figures, part)
        return sample_mean(
            (y, *counted.get(x, (1, None))) for x, y in (known[-1:] if self.cumulative else known)
        )

    def ends(self, figures: Figures, part: str | None) -> tuple[SampleMean | None, SampleMean | None]:
        """The means over a run's first and over its last generations."""
        first, last = first_generations(figures), last_generations(figures)
        return self.mean(figures, part, first), self.mean(figures, part, last)

    def rates(self, figures: Figures, part: str | None) -> Points:
        """The points; of what is counted, by 100 proposals (of so many so far, where it is)."""
        if not self.counted:
            return self.points(figures, part)
        rows = figures["figures_generation"]
        asked = [row["proposals"] for row in rows]
        over = list(accumulate(asked)) if self.cumulative else asked
        return [
            (row["generation"], None if row[self.key] is None or not n else 100 * row[self.key] / n)
            for row, n in zip(rows, over, strict=True)
        ]

    def _counted(self, figures: Figures, part: str | None) -> dict[int, tuple[float, float | None]]:
        """generation -> how many it is a mean of, and its standard error, None of one alone; where that is known."""
        found: dict[int, tuple[float, float | None]] = {}
        if self.over is None:
            return found
        for row in self._rows(figures, part):
            count, share = row[self.over], row[self.key]
            if share is not None:
                deviation = row[self.spread] if self.spread else math.sqrt(share * (1 - share))
                found[row["generation"]] = count, standard_error(share, deviation, count)
        return found

    def _rows(self, figures: Figures, part: str | None) -> list[Row]:
        if part is None:
            return list(figures["figures_generation"])
        return where(figures["figures_type"], problem_type=part)

    def parts_of(self, figures: Figures) -> list[str]:
        return {"types": figures.types, "roles": figures.learners, "none": list[str]}[self.parts]()


_of_role = partial(Metric, parts="roles", faceted=True)
_of_run = partial(Metric, parts="none")

VALID = Metric(
    "valid",
    "Valid proposals",
    "Share of the judged proposals that became problems: they run, are deterministic, new and not trivial.",
    "of proposals",
    percent,
    over="proposals_judged",
)
SOLVE_RATE = Metric(
    "solve_rate",
    "Solve rate",
    "Share of a problem's attempts that are correct: the mean over teachers' problems, anchors left out.",
    "of attempts at teachers' problems",
    percent,
    faceted=True,
    over="problems_judged",
    spread="solve_rate_spread",
)
LEARNABLE = Metric(
    "learnable",
    "Problems that teach",
    "Share of new problems that were solved sometimes but not always; others give students little contrast.",
    "of new problems",
    percent,
    faceted=True,
    over="problems_judged",
)
NEVER = Metric(
    "never_solved",
    "Never solved",
    "Share of new problems that no attempt solved: no pay for the teacher, little contrast for the student.",
    "of new problems",
    percent,
    over="problems_judged",
)
TEACHER_REWARD = Metric(
    "teacher_reward",
    "Teachers' reward",
    "Mean over proposals, invalid ones included.",
    "reward per proposal",
    signed,
)
STUDENT_REWARD = Metric(
    "student_reward",
    "Students' reward",
    "Mean over attempts.",
    "reward per attempt",
    signed,
)
COMPLEXITY = tuple(
    Metric(key, title, f"Mean {words} of the new problems' programs.", unit, zero=False)
    for key, title, words, unit in (
        ("ast_depth", "AST depth", "depth of the syntax tree", "nodes"),
        ("cyclomatic_complexity", "Cyclomatic complexity", "number of independent paths", "paths"),
        ("lines_of_code", "Lines of code", "number of statements", "statements"),
        ("variable_count", "Variables", "number of distinct names bound", "names"),
    )
)
LINES_OF_CODE = next(metric for metric in COMPLEXITY if metric.key == "lines_of_code")
CELLS = _of_run(
    "cumulative_cells",
    "Coverage of the problem space",
    "Cells reached so far, a cell being one combination of the four measures (log2 scale) and of constructs.",
    "cells so far",
    cumulative=True,
    counted=True,
)
SPREAD = _of_run(
    "cells",
    "Cells of one generation",
    "Different cells that the problems of one generation fall into.",
    "cells",
    counted=True,
)
PROGRAMS = _of_run(
    "distinct_programs",
    "Distinct programs",
    "Different programs among the new problems of a generation; a fall to few is collapse.",
    "programs",
    counted=True,
)
NOVELTY = Metric(
    "novelty",
    "Novelty",
    "Mean share of a program's n-grams that no earlier program had. It starts at generation 2: before the first "
    "there was nothing to repeat.",
    "new n-grams",
    percent,
    since=2,
)
DUPLICATES = Metric(
    "duplicates",
    "Duplicates",
    "Share of proposals that repeat an earlier problem; they are refused.",
    "of proposals",
    percent,
    over="proposals_judged",
)
ENTROPY = _of_role(
    "entropy",
    "Policy entropy",
    "Mean over members; near zero a policy says one thing only.",
    "nats per token",
)
LOSS = _of_role(
    "loss",
    "Policy-gradient loss",
    "Mean over a role's members; it does not fall as they learn, since what they sample changes with them.",
    "loss",
)
GRADIENT = _of_role(
    "grad_norm",
    "Gradient norm",
    "Mean over a role's members, before clipping.",
    "norm",
)
LENGTH = _of_role(
    "length",
    "Length of completions",
    "Mean over members of the tokens of a teacher's proposal and of a student's attempt.",
    "tokens per completion",
)
SECONDS = _of_run(
    "seconds",
    "Time of a generation",
    "Time in its stages.",
    "time",
    seconds,
    counted=True,
)
PRICE = Metric(
    "tokens_per_correct",
    "Price of a correct answer",
    "Tokens that students wrote for each attempt that was correct.",
    "tokens",
)
TOKENS = _of_run(
    "sampled_tokens",
    "Tokens of a generation",
    "Tokens read and written by teachers and students.",
    "tokens",
    counted=True,
)

LEARNING = (SOLVE_RATE, LEARNABLE, NEVER, VALID, TEACHER_REWARD, STUDENT_REWARD)
METRICS = (
    *LEARNING,
    *COMPLEXITY,
    PROGRAMS,
    NOVELTY,
    CELLS,
    SPREAD,
    DUPLICATES,
    ENTROPY,
    GRADIENT,
    LENGTH,
    SECONDS,
    PRICE,
    TOKENS,
)
