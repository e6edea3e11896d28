"""Mathematics on its published rows: every published answer is right, and its neighbours are wrong."""

from __future__ import annotations

import pytest
from conftest import needs
from published_data import published

from populora_core.benchmarks.benchmark import Response, benchmark

pytestmark = [pytest.mark.thorough, needs("math_verify", "evaluation")]

FILES = {
    "aime25": ("aime25.jsonl", 30),
    "amc23": ("amc23.jsonl", 40),
    "math500": ("math500.jsonl.gz", 500),
    "gsm8k": ("gsm8k.jsonl.gz", 1319),
    "olympiadbench": ("olympiadbench.jsonl.gz", 675),
}


@pytest.mark.parametrize("name", FILES)
def test_every_published_answer_is_right_and_a_larger_one_wrong(name: str) -> None:
    file, count = FILES[name]
    measured = benchmark(name)
    items = measured.load(published(file))
    assert len(items) == count
    golds = [measured.gold(item.fields) for item in items]  # type: ignore[attr-defined]
    for addition, right in (("", True), ("+1000003", False)):
        texts = [Response(f"So it is $\\boxed{{{gold.strip('$')}{addition}}}$.") for gold in golds]
        if not right:  # only what is a number has a larger one
            numbers = [
                place for place, gold in enumerate(golds) if gold.strip("$").replace(".", "").isdigit()
            ]
            items, texts = [items[place] for place in numbers], [texts[place] for place in numbers]
        scores = measured.grade(items, texts, "instruct", None)  # type: ignore[arg-type]
        assert [
            (item.item_id, score.verdict, score.detail)
            for item, score in zip(items, scores, strict=True)
            if score.correct is not right
        ] == []


def test_every_published_solution_of_math500_is_right() -> None:
    measured = benchmark("math500")
    rows = published("math500.jsonl.gz")
    responses = [Response(row["solution"]) for row in rows]
    scores = measured.grade(measured.load(rows), responses, "instruct", None)  # type: ignore[arg-type]
    assert [row["answer"] for row, score in zip(rows, scores, strict=True) if not score.correct] == []
