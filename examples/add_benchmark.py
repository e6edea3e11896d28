"""Add a benchmark: rows in, prompts out, verdicts back; named by its place in a suite file.

    suite = "reversed"
    [[benchmarks]]
    benchmark = "add_benchmark:Reversed"
    dataset = "words"

With `export PYTHONPATH=examples`, `populora suite fetch add_benchmark:Reversed --suite SUITE.toml --from words.jsonl`
takes the rows, and `populora evaluate RUN --suite SUITE.toml` scores a run on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from populora_core import AttemptVerdict, Item, ItemScore, Response, Sandbox


class Reversed:
    """Write a word backwards; the strata are the lengths of the words."""

    name, version, schema, votes, limits = "reversed", 1, {"word": (str,)}, True, None

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        return [Item(row["word"], self.name, row, f"{len(row['word'])} letters") for row in rows]

    def prompt(self, item: Item, family: str) -> str:
        return f"{item.fields['word']} backwards is "

    def template(self, family: str) -> str:
        return "reversed/1"  # recorded with every result: raise it with the prompt

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox
    ) -> list[ItemScore]:
        answers = [response.text.strip() for response in responses]
        right = [answer == item.fields["word"][::-1] for item, answer in zip(items, answers, strict=True)]
        verdicts = [AttemptVerdict.CORRECT if each else AttemptVerdict.WRONG for each in right]
        return [ItemScore(verdict, answer or None) for verdict, answer in zip(verdicts, answers, strict=True)]
