"""The protocol of a benchmark: rows in, problems with prompts out, and a grader of completions.

A benchmark knows its published schema, its prompt templates and its rules of grading; where its rows lie, how
often and at which temperature they are answered stands in a suite (see `suite`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import Limits, Sandbox
from populora_core.support.errors import BenchmarkError
from populora_core.support.finish import FinishReason
from populora_core.support.registry import Registry

Schema = Mapping[str, tuple[type, ...]]
"""Column -> the Python types that its values may have; `NoneType` among them where a value may be missing."""


@dataclass(frozen=True, slots=True)
class Item:
    """One problem of a benchmark.

    Attributes:
        item_id: unique within the benchmark, stable between loads: derived from the row, never from its place
            in memory.
        fields: the row in the benchmark's own published schema, checked.
        stratum: difficulty or kind within the benchmark, for tables and stratified halves; empty for none.
    """

    item_id: str
    benchmark: str
    fields: Mapping[str, Any]
    stratum: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """One completion that is to be graded."""

    text: str
    finish_reason: FinishReason = FinishReason.STOP


@dataclass(frozen=True, slots=True)
class ItemScore:
    """The score of one completion.

    Attributes:
        answer: what was read from the completion, in a form in which equal answers are equal text as far as
            the benchmark can say (`maj` votes on it); None for no answer.
        detail: why, for a person; nothing that differs from run to run.
    """

    verdict: AttemptVerdict
    answer: str | None
    detail: str = ""

    @property
    def correct(self) -> bool | None:
        """True if the answer is right; None where infrastructure failed, which is never a wrong answer."""
        if self.verdict is AttemptVerdict.INFRASTRUCTURE:
            return None
        return self.verdict is AttemptVerdict.CORRECT


class Benchmark(Protocol):
    """One set of problems with its prompts and its rules of grading.

    Attributes:
        version: raised whenever prompts or grading change, so that old results are not taken for new ones.
        schema: the published schema; further columns are allowed.
        votes: whether the most frequent of several answers counts too: maj@k beside pass@k.
        limits: what one graded program may take; None for the limits of the run, or where nothing is run.

    A benchmark may have more: `by_dialect`, True where it asks as the dialect asks students, whose stop texts then end
    an answer; `ends(family)`, the texts that end one where it does not; `chance`, the share that blind guesses get
    right; `left_out(rows)`, id -> why of rows that it cannot use; `text_columns`, those whose text people can read,
    where not all are; `first_keyed`, the version from which on keys of the loop's `evaluate` name it (2 where there is
    none): runs made with earlier ones keep their keys.
    """

    name: str
    version: int
    schema: Schema
    votes: bool
    limits: Limits | None

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        """The problems of the published rows, in order.

        Raises:
            BenchmarkError: a column is missing or has another type (`check_rows`), or a row makes no problem.
        """
        ...

    def prompt(self, item: Item, family: str) -> str:
        """The prompt that puts an item to a model.

        Args:
            family: the dialect that the run speaks with its base, which tells the family of models. The text goes
                through the dialect's own `encode`.

        Raises:
            ProblemError: there is no such dialect.
        """
        ...

    def template(self, family: str) -> str:
        """Name and digest of the template that `prompt` fills, recorded with every result and asked for before any.

        Where packages of others grade, their versions belong to it.

        Raises:
            ProblemError: there is no such dialect.
            BenchmarkError: such a package is not installed.
        """
        ...

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox
    ) -> list[ItemScore]:
        """Judge `responses[i]` as an answer to `items[i]`; model text runs in the sandbox alone.

        Raises:
            SandboxUnavailable: the sandbox went down for good and left answers unjudged.
        """
        ...


def ends_of(known: Benchmark, family: str) -> tuple[str, ...] | None:
    """Texts that end an answer to a benchmark; None for those of the dialect."""
    if getattr(known, "by_dialect", False):
        return None
    ends: Callable[[str], tuple[str, ...]] = getattr(known, "ends", lambda family: ())
    return ends(family)


BENCHMARKS = Registry(
    {
        "tiny_code_o": "populora_core.benchmarks.bundled:tiny_code_o",
        "tiny_code_i": "populora_core.benchmarks.bundled:tiny_code_i",
        "tiny_code_f": "populora_core.benchmarks.bundled:tiny_code_f",
        "frontier_code_o": "populora_core.benchmarks.bundled:frontier_code_o",
        "first_problems": "populora_core.benchmarks.bundled:first_problems",
        "newest_problems": "populora_core.benchmarks.bundled:newest_problems",
        "newest_prompts": "populora_core.benchmarks.proposed:NewestPrompts",
        "cruxeval_o": "populora_core.benchmarks.cruxeval:cruxeval_o",
        "cruxeval_i": "populora_core.benchmarks.cruxeval:cruxeval_i",
    },
    group="populora.benchmarks",
    what="benchmark",
    setting="the suite file",
    error=BenchmarkError,
    protocol=Benchmark,
)
"""Name -> place "package.module:name" of what makes the benchmark, imported on first use."""


def benchmark(name: str) -> Benchmark:
    """The benchmark of this name, or at this place "package.module:name"; its `grade` is the grader.

    Raises:
        BenchmarkError: there is none, or it lacks a method.
    """
    made: Benchmark = BENCHMARKS.find(name)
    return made


def check_rows(rows: Iterable[Mapping[str, Any]], schema: Schema, source: str) -> list[Mapping[str, Any]]:
    """The rows, once every one has the columns of the schema.

    Args:
        source: what the rows are, for the error.

    Raises:
        BenchmarkError: names the first column that is missing or has another type, and its row.
    """
    checked = list(rows)
    if not checked:
        raise BenchmarkError(f"{source} holds no rows", fix="fetch it again, or give the right file")
    for number, row in enumerate(checked):
        for column, types in schema.items():
            if column not in row or not isinstance(row[column], types):
                raise BenchmarkError(
                    f"{source}: row {number} has no usable column {column!r}",
                    expected=" or ".join(kind.__name__ for kind in types),
                    got=f"{row[column]!r:.60}"
                    if column in row
                    else f"the columns {', '.join(map(str, row))}",
                    fix="give the file in the benchmark's own published schema",
                )
    return checked
