"""The generators of reasoning-gym as a benchmark: a hundred kinds of problems, each with its own verifier.

A suite names generators, and how many problems of each are made from which seed:

    [[benchmarks]]
    benchmark = "reasoning_gym"
    dataset = "reasoning-gym:chain_sum,leg_counting"
    config = "50@7"
    revision = "0.1.25"

`populora suite fetch` makes the rows once; they are kept and checked as those of a download are. What a verifier needs
to know of a problem is kept as a Python literal: JSON would give it lists in place of tuples, and some generators make
another problem in another process. Some verifiers evaluate what a model wrote; those generators are refused, as model
text runs nowhere but in the sandbox.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from populora_core.benchmarks.benchmark import Item, ItemScore, Response, Schema, check_rows
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import Limits, Sandbox
from populora_core.sandbox.literals import NotPlainData, literal, parse_literal
from populora_core.support.errors import BenchmarkError, DamagedText
from populora_core.support.received import parse_json
from populora_plugins.public_benchmarks import prompts
from populora_plugins.public_benchmarks.answers import cut_at, tagged
from populora_plugins.public_benchmarks.packages import version_of

PREFIX = "reasoning-gym:"
EVALUATES = re.compile(r"\b(?:eval|exec|compile)\(|\bsympy\b")
HUGE = re.compile(r"[\d.]e[+-]?[\d_]{5}", re.I)
"""A number that exact arithmetic would take hours over, and verifiers have no time limit."""


class ReasoningGym:
    """Problems of some generators; a problem's stratum is its generator."""

    name = "reasoning_gym"
    version = 5
    first_keyed = 4
    schema: Schema = {"generator": (str,), "question": (str,), "answer": (str,), "metadata": (str,)}  # noqa: RUF012
    votes = True
    limits: Limits | None = None

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        checked = check_rows(rows, self.schema, self.name)
        for row in checked:
            _entry(row)
        return [
            Item(f"{row['generator']}-{_digest(row['question'])}-{number}", self.name, row, row["generator"])
            for number, row in enumerate(checked)
        ]

    def prompt(self, item: Item, family: str) -> str:
        return prompts.fill(family, "reasoning", problem=item.fields["question"].strip())

    def template(self, family: str) -> str:
        """See `Benchmark.template`. The verifiers are the package's, so its version is told too."""
        return f"{prompts.record(family, 'reasoning')}, reasoning-gym {_version()}"

    def ends(self, family: str) -> tuple[str, ...]:
        return prompts.ends(family)

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox
    ) -> list[ItemScore]:
        """See `Benchmark.grade`. The generator's verifier decides: a score of 1 is right, anything less is wrong."""
        graders = {name: generator(name, seed=0, size=1) for name in {item.stratum for item in items}}
        return [
            _score(graders[item.stratum], item, _answer(item, response.text, family))
            for item, response in zip(items, responses, strict=True)
        ]


def generated(dataset: str, config: str | None, revision: str | None) -> Iterator[dict[str, str]]:
    """The rows that an entry of a suite asks for.

    Args:
        dataset: `reasoning-gym:NAME,NAME`.
        config: how many problems of each, and where you like `@SEED`; 50@0 unless said.
        revision: the version that they must be made with; None for the one that is installed.

    Raises:
        BenchmarkError: reasoning-gym is not installed or of another version, or a generator cannot be used.
    """
    installed = _version()
    if revision not in (None, installed):
        raise BenchmarkError(
            "reasoning-gym is of another version, which may make other problems",
            expected=str(revision),
            got=installed,
            fix=f"pip install reasoning-gym=={revision}, or name the installed version as revision",
        )
    if not re.fullmatch(r"[0-9]+(@[0-9]+)?", config or "50"):
        raise BenchmarkError(
            "config of a reasoning-gym entry says how many problems",
            expected="COUNT or COUNT@SEED",
            got=repr(config),
        )
    size, _, seed = (config or "50").partition("@")
    for name in dataset.removeprefix(PREFIX).split(","):
        for entry in generator(name.strip(), seed=int(seed or 0), size=int(size)):
            yield {
                "generator": name.strip(),
                "question": entry["question"],
                "answer": str(entry["answer"]),
                "metadata": _literal(entry["metadata"], name.strip()),
            }


def generator(name: str, **settings: int) -> Any:
    """The generator of this name.

    Raises:
        BenchmarkError: there is none, its verifier evaluates model text, or it needs more settings.
    """
    _version()
    from reasoning_gym.factory import DATASETS, create_dataset

    safe = [known for known in sorted(DATASETS) if not _evaluates(DATASETS[known][0])]
    if name not in safe:
        why = "its verifier evaluates what a model wrote" if name in DATASETS else "no such generator"
        raise _unusable(name, ", ".join(safe), why)
    try:
        return create_dataset(name, **settings)
    except Exception as error:  # of a hundred authors: one wants settings that a suite cannot give
        told = f"{type(error).__name__}: {error}"
        raise _unusable(name, "one that needs nothing but a seed and a size", told) from error


def _unusable(name: str, expected: str, got: str) -> BenchmarkError:
    return BenchmarkError(
        f"the generator {name!r} of reasoning-gym cannot be used",
        expected=expected,
        got=got,
        fix="name others in the suite file's dataset",
    )


def _evaluates(kind: type) -> bool:
    module = inspect.getmodule(kind)
    return module is None or EVALUATES.search(inspect.getsource(module)) is not None


def _version() -> str:
    return version_of("reasoning-gym", "reasoning")


def _answer(item: Item, text: str, family: str) -> str | None:
    """The text in the last pair of answer tags, or for a base model as many lines as the published answer has.

    None if there is none.
    """
    if prompts.is_completed(family):
        lines = cut_at(text, prompts.ends(family)).strip().split("\n")
        return "\n".join(lines[: 1 + item.fields["answer"].count("\n")]).strip() or None
    return tagged(text)


def _literal(metadata: Any, name: str) -> str:
    """The metadata of a problem as a Python literal.

    Raises:
        BenchmarkError: it holds what is no plain data.
    """
    try:
        return literal(_plain(metadata), sys.maxsize)
    except NotPlainData as error:
        raise _unusable(name, "metadata of plain data, which its verifier needs", str(error)) from error


def _plain(value: Any) -> Any:
    """The value with Python's own numbers and texts in place of NumPy's."""
    match value:
        case dict():
            return {_plain(key): _plain(each) for key, each in value.items()}
        case list() | tuple() | set():
            return type(value)(map(_plain, value))
        case np.generic():
            return value.item()
    return value


def _entry(row: Mapping[str, Any]) -> dict[str, Any]:
    """The problem with the metadata that its verifier knows.

    Raises:
        BenchmarkError: it is neither JSON nor a Python literal.
    """
    text = row["metadata"]
    try:
        return {**row, "metadata": parse_json(text, "metadata")}
    except DamagedText:
        pass
    try:
        return {**row, "metadata": parse_literal(text, sys.maxsize)}
    except NotPlainData as error:
        raise BenchmarkError(
            f"a row of reasoning_gym, of the generator {row['generator']!r}, has no usable metadata",
            expected="a Python literal, or JSON",
            got=str(error),
            fix="populora suite fetch makes the rows again",
        ) from error


def _score(grader: Any, item: Item, answer: str | None) -> ItemScore:
    if answer is None:
        return ItemScore(AttemptVerdict.FORMAT_ERROR, None, "no answer between <answer> and </answer>")
    if HUGE.search(answer) and not HUGE.search(item.fields["answer"]):
        return ItemScore(AttemptVerdict.WRONG, answer, "an exponent of five digits")
    try:
        score = float(grader.score_answer(answer, _entry(item.fields)))
    except Exception:  # a verifier that cannot read the answer: it has a hundred authors
        score = 0.0
    right = AttemptVerdict.CORRECT if score >= 1.0 else AttemptVerdict.WRONG
    return ItemScore(right, answer, f"score {score:.2f}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
