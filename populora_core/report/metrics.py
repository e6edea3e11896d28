"""The figures that a report follows over generations, each defined once: for one run's plots and for comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from populora_core.report.charts import Points
from populora_core.report.figures import Figures
from populora_core.report.series import ratio, running_sum, share_of, totals, where
from populora_core.report.text import Format, finite, number, percent, seconds, signed


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure with one value a generation.

    Attributes:
        says: one sentence for a reader who sees the plot for the first time.
        unit: the label of its axis.
        parts: what it can be told apart by; None as the part means all of them together.
        points: (run, part) -> (generation, value).
        faceted: whether a comparison shows each part by itself.
    """

    title: str
    says: str
    unit: str
    points: Callable[[Figures, str | None], Points]
    form: Format = number
    parts: Literal["types", "roles", "none"] = "types"
    faceted: bool = False
    zero: bool = True
    cumulative: bool = False

    def parts_of(self, figures: Figures) -> list[str]:
        return {"types": figures.types, "roles": figures.learners, "none": list[str]}[self.parts]()


def _ratio(table: str, over: str, under: str) -> Callable[[Figures, str | None], Points]:
    def points(figures: Figures, part: str | None) -> Points:
        rows = figures[table] if part is None else where(figures[table], problem_type=part)
        return ratio(rows, over, under)

    return points


def _proposed(verdict: str) -> Callable[[Figures, str | None], Points]:
    def points(figures: Figures, part: str | None) -> Points:
        rows = figures["proposals"] if part is None else where(figures["proposals"], problem_type=part)
        return ratio(share_of(rows, verdict), "hits", "n")

    return points


def _per_generation(table: str, *fields: str) -> Callable[[Figures, str | None], Points]:
    def points(figures: Figures, _: str | None) -> Points:
        found = totals(figures[table], "generation", *fields)
        return [(generation, sum(sums.values())) for generation, sums in sorted(found.items()) if generation]

    return points


def _cells(figures: Figures, _: str | None) -> Points:
    return running_sum((row["generation"], row["new_cells"]) for row in figures["coverage"])


def _of_role(field: str) -> Callable[[Figures, str | None], Points]:
    def points(figures: Figures, part: str | None) -> Points:
        rows = figures["updates"] if part is None else where(figures["updates"], role=part)
        return [(row["generation"], finite(row[field])) for row in rows]

    return points


def _length(figures: Figures, part: str | None) -> Points:
    return ratio(figures["proposals" if part == "teacher" else "attempts"], "completion_tokens", "n")


def _tokens(figures: Figures, _: str | None) -> Points:
    found: dict[int, float] = {}
    for table in ("proposals", "attempts"):
        for row in figures[table]:
            amount = row["prompt_tokens"] + row["completion_tokens"]
            found[row["generation"]] = found.get(row["generation"], 0.0) + amount
    return sorted(found.items())


VALID = Metric(
    "Valid proposals",
    "Share of proposals that became problems: they run, are deterministic, new and not trivial.",
    "of proposals",
    _proposed("valid"),
    percent,
)
SOLVE_RATE = Metric(
    "Solve rate",
    "Mean share of the matched students' attempts that are correct.",
    "attempts correct",
    _ratio("problems", "solved_sum", "solved_n"),
    percent,
    faceted=True,
)
LEARNABLE = Metric(
    "Problems that teach",
    "Share of new problems that were solved sometimes but not always; only there do both sides learn.",
    "of new problems",
    _ratio("problems", "learnable", "solved_n"),
    percent,
    faceted=True,
)
NEVER = Metric(
    "Never solved",
    "Share of new problems that no attempt solved: no pay for the teacher, no contrast for the student.",
    "of new problems",
    _ratio("problems", "never", "solved_n"),
    percent,
)
TEACHER_REWARD = Metric(
    "Teachers' reward",
    "Mean over proposals, invalid ones included.",
    "reward a proposal",
    _ratio("proposals", "reward", "paid"),
    signed,
)
STUDENT_REWARD = Metric(
    "Students' reward",
    "Mean over attempts.",
    "reward an attempt",
    _ratio("attempts", "reward", "paid"),
    signed,
)
COMPLEXITY = tuple(
    Metric(
        title,
        f"Mean {words} of the new problems' programs.",
        unit,
        _ratio("problems", field, "n"),
        zero=False,
    )
    for title, words, unit, field in (
        ("AST depth", "depth of the syntax tree", "nodes", "ast_depth"),
        ("Cyclomatic complexity", "number of independent paths", "paths", "cyclomatic_complexity"),
        ("Lines of code", "number of statements", "statements", "lines_of_code"),
        ("Variables", "number of distinct names bound", "names", "variable_count"),
    )
)
CELLS = Metric(
    "Coverage of the problem space",
    "Cells reached so far, a cell being one combination of the four measures (log2 scale) and of constructs.",
    "cells so far",
    _cells,
    parts="none",
    cumulative=True,
)
SPREAD = Metric(
    "Cells of one generation",
    "How many different cells a generation's problems fall into.",
    "cells",
    _per_generation("coverage", "cells"),
    parts="none",
)
PROGRAMS = Metric(
    "Distinct programs",
    "Different programs among the new problems of a generation; a fall to few is collapse.",
    "programs",
    _per_generation("coverage", "programs"),
    parts="none",
)
NOVELTY = Metric(
    "Novelty",
    "Mean share of a program's n-grams that no earlier program had.",
    "new n-grams",
    _ratio("problems", "novelty", "n"),
    percent,
)
DUPLICATES = Metric(
    "Duplicates",
    "Share of proposals that repeat an earlier problem; they are refused.",
    "of proposals",
    _proposed("duplicate"),
    percent,
)
ENTROPY = Metric(
    "Policy entropy",
    "Mean over members, the band their range; near zero a policy says one thing only.",
    "nats a token",
    _of_role("entropy"),
    parts="roles",
    faceted=True,
)
LOSS = Metric(
    "Policy-gradient loss",
    "Mean over a role's members; it does not fall as they learn, since what they sample changes with them.",
    "loss",
    _of_role("loss"),
    parts="roles",
    faceted=True,
)
GRADIENT = Metric(
    "Gradient norm",
    "Mean over a role's members, before clipping.",
    "norm",
    _of_role("grad_norm"),
    parts="roles",
    faceted=True,
)
LENGTH = Metric(
    "Length of completions",
    "Mean tokens of a teacher's proposal and of a student's attempt.",
    "tokens a completion",
    _length,
    parts="roles",
    faceted=True,
)
SECONDS = Metric(
    "Time of a generation",
    "Seconds in its stages.",
    "seconds",
    _per_generation("stages", "seconds"),
    seconds,
    parts="none",
)
TOKENS = Metric(
    "Tokens of a generation",
    "Tokens read and written by teachers and students.",
    "tokens",
    _tokens,
    parts="none",
)

METRICS = (
    SOLVE_RATE,
    LEARNABLE,
    NEVER,
    VALID,
    TEACHER_REWARD,
    STUDENT_REWARD,
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
    TOKENS,
)
