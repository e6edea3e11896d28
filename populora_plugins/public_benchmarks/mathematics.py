"""The seven mathematics benchmarks: AIME 24 and 25, AMC 23, MATH-500, Minerva, GSM8K, OlympiadBench.

Each is a published schema, and how question, answer and tolerance are read from its rows. The last boxed answer of
a completion is compared with the published one by math-verify (`math_judge`).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from types import NoneType
from typing import Any

from populora_core.benchmarks.benchmark import Item, ItemScore, Response, Schema, check_rows
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import Sandbox
from populora_core.support.errors import BenchmarkError
from populora_plugins.public_benchmarks import prompts
from populora_plugins.public_benchmarks.answers import cut_at, mathematics_answer, signs_as_latex
from populora_plugins.public_benchmarks.math_judge import EXTRA, PACKAGES, Comparison, Finding, compare
from populora_plugins.public_benchmarks.packages import version_of

PublishedRow = Mapping[str, Any]
NEXT_PROBLEM = ("\nProblem:", "\n# Problem", "\nQuestion:")
"""Texts with which a base model that goes on after its solution begins another problem."""

_SCIENTIFIC = re.compile(r"(?<![\w\\])(-?\d+(?:\.\d+)?)\s*[eE]\s*(?:\{([+-]?\d+)\}|([+-]?\d+)(?!\w))")
_MODULUS = re.compile(r"\s*\\(?:pmod\s*\{[^{}]*\}|bmod\s*\S+)\s*$")
_POINT = re.compile(r"(?<=\d)\.(?=[/*+)-])")
_REPEATING = re.compile(r"(?<!\d)(\d{0,999})\.(\d{0,999})\\overline\{(\d{1,999})\}")
"""A repeating decimal, of so few digits that Python writes its fraction out."""
_PI = re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])")
_DOLLAR = re.compile(r"(?:\\text\s*\{\s*\\?\$\s*\}|\\\$)\s*")
_ABOUT = re.compile(r"(?:\\approx|(?:about|approximately|exactly|roughly)\b)\s*", re.I)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:\\[,;:!]|\s)\d{3})+(?![\d/])")
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))


@dataclass
class MathBenchmark:
    """A published schema, and how a row of it is read.

    Attributes:
        gold: the published answer, before `as_latex`; empty where the row has none.
        tolerance: how far a number may lie from the published one; None for equality.
        id_column: rows without an id of their own are named by what they ask.
        variant: the columns of another form in which the same rows are published; None for none.
    """

    name: str
    schema: Schema
    question: Callable[[PublishedRow], str] = itemgetter("question")
    gold: Callable[[PublishedRow], str] = lambda row: str(row["answer"])
    tolerance: Callable[[PublishedRow], float | None] = lambda row: None
    id_column: str | None = None
    stratum: Callable[[PublishedRow], str] = lambda row: ""
    variant: Schema | None = None
    version = 7
    first_keyed = 6
    votes = True
    limits = None

    def load(self, rows: Iterable[PublishedRow]) -> list[Item]:
        """See `Benchmark.load`; rows that ask the same twice are numbered in their order."""
        items: list[Item] = []
        seen: Counter[str] = Counter()
        for number, row in enumerate(self._checked(list(rows))):
            question, gold = self.question(row), self.gold(row)
            if not question.strip() or not as_latex(gold):
                raise BenchmarkError(
                    f"row {number} of {self.name} makes no problem",
                    expected="a question and an answer that are not empty",
                    got=f"question {question!r:.60}, answer {gold!r:.60}",
                    fix="fetch the file again, or take the row out of it",
                )
            name = str(row[self.id_column]) if self.id_column else _digest(question)
            seen[name] += 1
            item_id = name if seen[name] == 1 else f"{name}-{seen[name]}"
            items.append(Item(item_id, self.name, row, self.stratum(row)))
        return items

    def _checked(self, rows: list[PublishedRow]) -> list[PublishedRow]:
        """The rows, by the columns of the form that the first of them has."""
        columns = rows[0].keys() if rows else set()
        forms = [form for form in (self.schema, self.variant) if form is not None and form.keys() <= columns]
        return check_rows(rows, forms[0] if forms else self.schema, self.name)

    def prompt(self, item: Item, family: str) -> str:
        return prompts.fill(family, "mathematics", problem=self.question(item.fields).strip())

    def template(self, family: str) -> str:
        """See `Benchmark.template`. What math-verify says differs by version, so its versions are told too."""
        told = [prompts.record(family, "mathematics")]
        return ", ".join([*told, *(f"{package} {version_of(package, EXTRA)}" for package in PACKAGES)])

    def ends(self, family: str) -> tuple[str, ...]:
        return prompts.ends(family, NEXT_PROBLEM)

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox | None
    ) -> list[ItemScore]:
        """See `Benchmark.grade`. Nothing of a completion runs, so the sandbox is not used."""
        ends = self.ends(family)
        answers = [_answer(cut_at(response.text, ends)) for response in responses]
        comparisons = [
            Comparison(as_latex(self.gold(item.fields)), as_latex(answer), self.tolerance(item.fields))
            for item, answer in zip(items, answers, strict=True)
            if answer is not None
        ]
        findings = iter(compare(comparisons))
        nothing = ItemScore(AttemptVerdict.FORMAT_ERROR, None, "no answer is boxed or stated")
        return [nothing if answer is None else _score(answer, next(findings)) for answer in answers]


def _of_list(row: PublishedRow) -> str:
    """OlympiadBench: a row may have several answers, in one text or in a list."""
    return ", ".join(latex for answer in row["final_answer"] if (latex := as_latex(str(answer))))


def _answer_or_box(row: PublishedRow) -> str:
    """The answer of a row that may have it in a column of its own, or else in the box that ends its solution."""
    return str(row["answer"]) if "answer" in row else mathematics_answer(row["solution"]) or ""


def _allowed_error(row: PublishedRow) -> float | None:
    try:
        return float(row["error"])
    except (TypeError, ValueError):  # none, or one for each of several answers: then exactly equal
        return None


aime24 = (
    partial(  # math-ai/aime24: the answer stands in a box that ends the solution; or in a column of its own
        MathBenchmark,
        "aime24",
        {"id": (int, str), "problem": (str,), "solution": (str,)},
        question=itemgetter("problem"),
        gold=_answer_or_box,
        id_column="id",
    )
)
aime25 = partial(  # math-ai/aime25
    MathBenchmark,
    "aime25",
    {"id": (int, str), "problem": (str,), "answer": (str, int)},
    question=itemgetter("problem"),
    id_column="id",
)
amc23 = partial(  # math-ai/amc23: answers are numbers, some written as `27.0`
    MathBenchmark,
    "amc23",
    {"id": (int, str), "question": (str,), "answer": (str, int, float)},
    id_column="id",
)
math500 = partial(  # HuggingFaceH4/MATH-500; its strata are the five levels
    MathBenchmark,
    "math500",
    dict.fromkeys(("problem", "solution", "answer", "subject", "unique_id"), (str,)) | {"level": (int,)},
    question=itemgetter("problem"),
    id_column="unique_id",
    stratum=lambda row: f"level {row['level']}",
)
minerva = (
    partial(  # math-ai/minervamath: university science; or as it was published, with the answer in a last box
        MathBenchmark,
        "minerva",
        {"question": (str,), "answer": (str,)},
        question=lambda row: row["question"] if "question" in row else row["problem"],
        gold=_answer_or_box,
        variant={"problem": (str,), "solution": (str,)},
    )
)
gsm8k = partial(  # openai/gsm8k: the answer follows `####`, thousands separated by commas
    MathBenchmark,
    "gsm8k",
    {"question": (str,), "answer": (str,)},
    gold=lambda row: row["answer"].partition("####")[2].replace(",", ""),
)
olympiadbench = partial(  # Hothan/OlympiadBench, OE_TO_maths_en_COMP: text only; its strata are the subfields
    MathBenchmark,
    "olympiadbench",
    {
        "id": (int, str),
        "question": (str,),
        "context": (str, NoneType),
        "final_answer": (list,),
        "is_multiple_answer": (bool,),
        "unit": (str, NoneType),
        "answer_type": (str,),
        "error": (str, float, NoneType),
        "subfield": (str,),
    },
    question=lambda row: "\n\n".join(part for part in (row["context"], row["question"]) if part),
    gold=_of_list,
    tolerance=_allowed_error,
    id_column="id",
    stratum=itemgetter("subfield"),
)


def as_latex(answer: str) -> str:
    """An answer as math-verify reads it best.

    Signs of Unicode as their LaTeX; without delimiters, bold marks, the full stop, the sign of a dollar and the blanks
    between thousands; `6.02e23` as a power of ten, a repeating decimal as a fraction; and without the modulus that a
    residue is given by.
    """
    answer = (
        signs_as_latex(answer)
        .replace("~", " ")
        .replace(r"\varnothing", r"\emptyset")
        .strip()
        .strip("*")
        .strip()
    )
    answer = _MODULUS.sub("", answer)
    while answer.endswith((".", ",", ";", "\\")) and not answer.endswith(("..", r"\,", r"\;")):
        answer = answer[:-1].rstrip()
    for opening, closing in _DELIMITERS:
        inside = answer[len(opening) : -len(closing)]
        if answer.startswith(opening) and answer.endswith(closing) and inside and opening not in inside:
            answer = inside.strip()
    answer = (
        _ABOUT.sub("", _DOLLAR.sub("", answer), count=1) if _ABOUT.match(answer) else _DOLLAR.sub("", answer)
    )
    answer = _THOUSANDS.sub(lambda number: re.sub(r"\D", "", number[0]), answer)
    answer = _REPEATING.sub(_fraction, _POINT.sub("", answer))
    if "text" not in answer:
        answer = _PI.sub(r"\\pi", answer)
    return _SCIENTIFIC.sub(r"\1 \\times 10^{\2\3}", answer)


def _fraction(repeating: re.Match[str]) -> str:
    whole, once, again = repeating.groups()
    numerator = int(whole + once + again) - int(whole + once or "0")
    return rf"\frac{{{numerator}}}{{{(10 ** len(again) - 1) * 10 ** len(once)}}}"


def _answer(text: str) -> str | None:
    answer = mathematics_answer(text)
    return answer if answer and as_latex(answer) else None


def _score(answer: str, finding: Finding) -> ItemScore:
    return ItemScore(finding.verdict, finding.canonical or answer, answer)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
