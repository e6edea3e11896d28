"""The seven mathematics benchmarks: AIME 24 and 25, AMC 23, MATH-500, Minerva, GSM8K, OlympiadBench.

Each is a published schema, and how question, answer and tolerance are read from its rows. The last boxed answer of
a completion is compared with the published one by math-verify (`math_judge`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

from populora_core.benchmarks import prompts
from populora_core.benchmarks.answers import cut_at, mathematics_answer
from populora_core.benchmarks.benchmark import Aggregation, Item, ItemScore, Response, Schema, check_rows
from populora_core.benchmarks.math_judge import Comparison, Finding, Judgement, MathJudge
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import Sandbox
from populora_core.support.errors import BenchmarkError

PublishedRow = Mapping[str, Any]
SCHEMAS: dict[str, Schema] = {
    "aime24": {"id": (int, str), "problem": (str,), "solution": (str,)},
    "aime25": {"id": (int, str), "problem": (str,), "answer": (str, int)},
    "amc23": {"id": (int, str), "question": (str,), "answer": (str, int, float)},
    "math500": {
        "problem": (str,),
        "solution": (str,),
        "answer": (str,),
        "subject": (str,),
        "level": (int,),
        "unique_id": (str,),
    },
    "minerva": {"question": (str,), "answer": (str,)},
    "gsm8k": {"question": (str,), "answer": (str,)},
    "olympiadbench": {
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
}
"""The columns of each benchmark as published; further ones are allowed."""

NEXT_PROBLEM = ("\nProblem:", "\n# Problem", "\nQuestion:")
"""Where a base model that goes on after its solution has begun another problem."""

_SCIENTIFIC = re.compile(r"(?<![\w\\])(-?\d+(?:\.\d+)?)\s*[eE]\s*\{?([+-]?\d+)\}?(?!\w)")
_MODULUS = re.compile(r"\s*\\(?:pmod\s*\{[^{}]*\}|bmod\s*\S+)\s*$")
_POINT = re.compile(r"(?<=\d)\.(?=[/*+)-])")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\{(\d+)\}")
_PLAIN_UNIT = re.compile(r"^(\$?-?\d[\d,]*(?:\.\d+)?)\s+([A-Za-z][A-Za-z ]+)$")
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_VERDICTS = {
    Judgement.EQUAL: AttemptVerdict.CORRECT,
    Judgement.DIFFERENT: AttemptVerdict.WRONG,
    Judgement.TIMEOUT: AttemptVerdict.TIMEOUT,
    Judgement.OUT_OF_MEMORY: AttemptVerdict.OUT_OF_MEMORY,
    Judgement.INFRASTRUCTURE: AttemptVerdict.INFRASTRUCTURE,
}


class MathBenchmark:
    """What the seven have in common; a subclass says how its rows are read."""

    name = ""
    version = 1
    schema: Schema
    aggregation = Aggregation.MAJ
    limits = None

    def question(self, row: PublishedRow) -> str:
        return row["problem"]

    def gold(self, row: PublishedRow) -> str:
        """The published answer, before `as_latex`; empty where the row has none."""
        return str(row["answer"])

    def tolerance(self, row: PublishedRow) -> float | None:
        """How far a number may lie from the published one; None for equality."""
        return None

    def row_id(self, row: PublishedRow) -> str:
        """Rows without an id of their own are named by what they ask."""
        return hashlib.sha256(self.question(row).encode()).hexdigest()[:12]

    def stratum(self, row: PublishedRow) -> str:
        return ""

    def load(self, rows: Iterable[PublishedRow]) -> list[Item]:
        """See `Benchmark.load`; rows that ask the same twice are told apart by their order."""
        items: list[Item] = []
        seen: dict[str, int] = {}
        for number, row in enumerate(check_rows(rows, self.schema, self.name)):
            if not self.question(row).strip() or not as_latex(self.gold(row)):
                raise BenchmarkError(
                    f"row {number} of {self.name} makes no problem",
                    expected="a question and an answer that are not empty",
                    came=f"question {self.question(row)!r:.60}, answer {self.gold(row)!r:.60}",
                    remedy="fetch the file again, or take the row out of it",
                )
            name = self.row_id(row)
            seen[name] = seen.get(name, 0) + 1
            item_id = name if seen[name] == 1 else f"{name}-{seen[name]}"
            items.append(Item(item_id, self.name, row, self.stratum(row)))
        return items

    def prompt(self, item: Item, family: str) -> str:
        return prompts.fill(family, "mathematics", problem=self.question(item.fields).strip())

    def template(self, family: str) -> str:
        return prompts.record(family, "mathematics")

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox | None
    ) -> list[ItemScore]:
        """See `Benchmark.grade`. Nothing of a completion runs, so the sandbox is not used."""
        answers = [_answer(response.text, family) for response in responses]
        asked = [
            Comparison(as_latex(self.gold(item.fields)), as_latex(answer), self.tolerance(item.fields))
            for item, answer in zip(items, answers, strict=True)
            if answer is not None
        ]
        with MathJudge() as judge:
            findings = iter(judge.compare(asked))
            return [_score(answer, None if answer is None else next(findings)) for answer in answers]


class Aime24(MathBenchmark):
    """math-ai/aime24: the answer stands in a box that ends the solution."""

    name = "aime24"
    schema = SCHEMAS["aime24"]

    def gold(self, row: PublishedRow) -> str:
        return mathematics_answer(row["solution"]) or ""

    def row_id(self, row: PublishedRow) -> str:
        return str(row["id"])


class Aime25(MathBenchmark):
    """math-ai/aime25."""

    name = "aime25"
    schema = SCHEMAS["aime25"]

    def row_id(self, row: PublishedRow) -> str:
        return str(row["id"])


class Amc23(MathBenchmark):
    """math-ai/amc23: answers are numbers, some written as `27.0`."""

    name = "amc23"
    schema = SCHEMAS["amc23"]

    def question(self, row: PublishedRow) -> str:
        return row["question"]

    def row_id(self, row: PublishedRow) -> str:
        return str(row["id"])


class Math500(MathBenchmark):
    """HuggingFaceH4/MATH-500; its strata are the five levels."""

    name = "math500"
    schema = SCHEMAS["math500"]

    def row_id(self, row: PublishedRow) -> str:
        return row["unique_id"]

    def stratum(self, row: PublishedRow) -> str:
        return f"level {row['level']}"


class Minerva(MathBenchmark):
    """math-ai/minervamath: university science, answers with powers of ten and expressions."""

    name = "minerva"
    schema = SCHEMAS["minerva"]

    def question(self, row: PublishedRow) -> str:
        return row["question"]


class Gsm8k(MathBenchmark):
    """openai/gsm8k: the answer follows `####` at the end of the solution, thousands separated by commas."""

    name = "gsm8k"
    schema = SCHEMAS["gsm8k"]

    def question(self, row: PublishedRow) -> str:
        return row["question"]

    def gold(self, row: PublishedRow) -> str:
        return row["answer"].partition("####")[2].replace(",", "")


class OlympiadBench(MathBenchmark):
    """Hothan/OlympiadBench, OE_TO_maths_en_COMP: open-ended, text only, mathematics in English.

    A row may have several answers, in one text or in a list, and an allowed error. Its strata are the subfields.
    """

    name = "olympiadbench"
    schema = SCHEMAS["olympiadbench"]

    def question(self, row: PublishedRow) -> str:
        return "\n\n".join(part for part in (row["context"], row["question"]) if part)

    def gold(self, row: PublishedRow) -> str:
        return ", ".join(latex for answer in row["final_answer"] if (latex := as_latex(str(answer))))

    def tolerance(self, row: PublishedRow) -> float | None:
        try:
            return float(row["error"])
        except (TypeError, ValueError):  # none, or one for each of several answers: then exactly equal
            return None

    def row_id(self, row: PublishedRow) -> str:
        return str(row["id"])

    def stratum(self, row: PublishedRow) -> str:
        return row["subfield"]


def as_latex(answer: str) -> str:
    """An answer as math-verify reads it best.

    Without delimiters, bold marks and the full stop; `6.02e23` as a power of ten, a repeating decimal as a fraction, a
    plain unit as text; and without the modulus that a residue is given by.
    """
    answer = answer.replace("~", " ").replace(r"\varnothing", r"\emptyset").strip().strip("*").strip()
    answer = _MODULUS.sub("", answer)
    while answer.endswith((".", ",", ";", "\\")) and not answer.endswith(("..", r"\,", r"\;")):
        answer = answer[:-1].rstrip()
    for opening, closing in _DELIMITERS:
        inside = answer[len(opening) : -len(closing)]
        if answer.startswith(opening) and answer.endswith(closing) and inside and opening not in inside:
            answer = inside.strip()
    answer = _REPEATING.sub(_fraction, _POINT.sub("", answer))
    answer = _PLAIN_UNIT.sub(r"\1\\text{ \2}", answer)
    return _SCIENTIFIC.sub(r"\1 \\times 10^{\2}", answer)


def _fraction(repeating: re.Match[str]) -> str:
    whole, once, again = repeating.groups()
    numerator = int(whole + once + again) - int(whole + once or "0")
    return rf"\frac{{{numerator}}}{{{(10 ** len(again) - 1) * 10 ** len(once)}}}"


def _answer(text: str, family: str) -> str | None:
    if family == prompts.COMPLETION:
        text = cut_at(text, NEXT_PROBLEM)
    answer = mathematics_answer(text)
    return answer if answer and as_latex(answer) else None


def _score(answer: str | None, finding: Finding | None) -> ItemScore:
    if finding is None:
        return ItemScore(False, AttemptVerdict.FORMAT_ERROR, None, "no answer is boxed or stated")
    verdict = _VERDICTS[finding.outcome]
    correct = None if verdict is AttemptVerdict.INFRASTRUCTURE else verdict is AttemptVerdict.CORRECT
    return ItemScore(correct, verdict, finding.canonical or answer, answer or "")
