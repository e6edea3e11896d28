"""The generators of reasoning-gym as a benchmark: a hundred kinds of problems, each with its own verifier.

A suite names generators, and how many problems of each are made from which seed:

    [[benchmarks]]
    benchmark = "reasoning_gym"
    dataset = "reasoning-gym:chain_sum,leg_counting"
    config = "50@7"
    revision = "0.1.25"

`populora suite fetch` makes the rows once; they are kept and checked as those of a download are. A verifier gets the
problem as its generator makes it again: JSON would give it lists in place of tuples. Some verifiers
evaluate what a model wrote; those generators are refused, as model text runs nowhere but in the sandbox.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from populora_core.benchmarks.benchmark import Item, ItemScore, Response, Schema, check_rows
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import Limits, Sandbox
from populora_core.support.errors import BenchmarkError
from populora_plugins.public_benchmarks import prompts

PREFIX = "reasoning-gym:"
EVALUATES = re.compile(r"\b(?:eval|exec|compile)\(|\bsympy\b")
ANSWER = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.S)


class ReasoningGym:
    """Problems of some generators; a problem's stratum is its generator."""

    name = "reasoning_gym"
    version = 2
    schema: Schema = {"generator": (str,), "question": (str,), "answer": (str,), "metadata": (str,)}  # noqa: RUF012
    votes = True
    limits: Limits | None = None

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        checked = check_rows(rows, self.schema, self.name)
        return [
            Item(f"{row['generator']}-{_digest(row['question'])}-{number}", self.name, row, row["generator"])
            for number, row in enumerate(checked)
        ]

    def prompt(self, item: Item, family: str) -> str:
        return prompts.fill(family, "reasoning", problem=item.fields["question"].strip())

    def template(self, family: str) -> str:
        return prompts.record(family, "reasoning")

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox
    ) -> list[ItemScore]:
        """See `Benchmark.grade`. The generator's verifier decides: a score of 1 is right, anything less is wrong."""
        makers = {_maker(item): generator(_maker(item)[0], **dict(_maker(item)[1])) for item in items}
        return [
            _score(makers[_maker(item)], item, _answer(response.text, family))
            for item, response in zip(items, responses, strict=True)
        ]


def generated(dataset: str, config: str | None, revision: str | None) -> Iterator[dict[str, str | int]]:
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
        settings = {"seed": int(seed or 0), "size": int(size)}
        for index, entry in enumerate(generator(name.strip(), **settings)):
            yield {
                "generator": name.strip(),
                "index": index,
                **settings,
                "question": entry["question"],
                "answer": str(entry["answer"]),
                "metadata": json.dumps(entry["metadata"], default=str),
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
        raise BenchmarkError(
            f"the generator {name!r} of reasoning-gym cannot be used",
            expected=", ".join(safe),
            got="its verifier evaluates what a model wrote" if name in DATASETS else "no such generator",
            fix="name others in the suite file's dataset",
        )
    try:
        return create_dataset(name, **settings)
    except Exception as error:  # of a hundred authors: one wants settings that a suite cannot give
        raise BenchmarkError(
            f"the generator {name!r} of reasoning-gym cannot be used",
            expected="one that needs nothing but a seed and a size",
            got=f"{type(error).__name__}: {error}",
            fix="name others in the suite file's dataset",
        ) from error


def _evaluates(kind: type) -> bool:
    module = inspect.getmodule(kind)
    return module is None or EVALUATES.search(inspect.getsource(module)) is not None


def _version() -> str:
    try:
        return version("reasoning-gym")
    except PackageNotFoundError as error:
        raise BenchmarkError(
            "reasoning-gym is not installed",
            expected="the extra `reasoning`",
            fix="pip install -e '.[reasoning]'",
        ) from error


def _answer(text: str, family: str) -> str | None:
    """The text in the last pair of answer tags, or the rest of the line for a base model; None if there is none."""
    if family == prompts.COMPLETION:
        return text.strip().partition("\n")[0].strip() or None
    found = ANSWER.findall(text)
    return found[-1] if found else None


def _maker(item: Item) -> tuple[str, tuple[tuple[str, int], ...]]:
    """The generator of an item, and the settings that it was made with."""
    fields = item.fields
    return fields["generator"], tuple((name, fields[name]) for name in ("seed", "size") if "index" in fields)


def _entry(grader: Any, item: Item) -> Mapping[str, Any]:
    """The problem with the metadata that its verifier knows.

    Raises:
        BenchmarkError: the generator makes another problem by now.
    """
    fields = item.fields
    if "index" not in fields:  # a file that does not say how it was made
        return {**fields, "metadata": json.loads(fields["metadata"])}
    entry: Mapping[str, Any] = grader[fields["index"]]
    if entry["question"] != fields["question"]:
        raise BenchmarkError(
            f"reasoning-gym makes another problem {fields['index']} of {fields['generator']} than is kept here",
            expected=f"{fields['question']!r:.80}",
            got=f"{entry['question']!r:.80}",
            fix="populora suite fetch makes the rows again, with the version that is installed",
        )
    return entry


def _score(grader: Any, item: Item, answer: str | None) -> ItemScore:
    if answer is None:
        return ItemScore(AttemptVerdict.FORMAT_ERROR, None, "no answer between <answer> and </answer>")
    entry = _entry(grader, item)
    try:
        score = float(grader.score_answer(answer, entry))
    except Exception:  # a verifier that cannot read the answer: it has a hundred authors
        score = 0.0
    right = AttemptVerdict.CORRECT if score >= 1.0 else AttemptVerdict.WRONG
    return ItemScore(right, answer, f"score {score:.2f}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
