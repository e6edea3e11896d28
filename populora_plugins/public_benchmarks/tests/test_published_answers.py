"""Mathematics on its published rows: every published answer is right, and its neighbours are wrong."""

from __future__ import annotations

import random

import pytest
from conftest import needs
from published_data import published
from reference_completions import FORMS, ROUNDED, answered, items

from populora_core.benchmarks.benchmark import Response, benchmark

pytestmark = [pytest.mark.thorough, needs("math_verify", "evaluation")]

FILES = {
    "aime24": ("aime24.jsonl.gz", 30),
    "aime25": ("aime25.jsonl", 30),
    "amc23": ("amc23.jsonl", 40),
    "math500": ("math500.jsonl.gz", 500),
    "minerva": ("minerva_math.jsonl.gz", 272),
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


@pytest.mark.parametrize("name", FILES)
def test_near_misses_of_published_answers_are_wrong_and_other_forms_right(name: str) -> None:
    draw, own = random.Random(0), {item.item_id: item for item in items(name)}
    some = draw.sample(items(name), min(60, len(own)))
    asked = [each for item in some for each in answered(item)]
    for item in items(name):  # of the others one miss each, for time
        missed = [each for each in answered(item) if each.kind not in FORMS]
        asked += draw.sample(missed, min(1, len(missed))) if item not in some else []
    asked = [each for each in asked if each.kind != "one more" or not ROUNDED.search(each.told)]
    responses = [Response(each.text) for each in asked]
    scores = benchmark(name).grade([own[each.item_id] for each in asked], responses, "instruct", None)  # type: ignore[arg-type]
    told = [(each.item_id, each.told, score.correct) for each, score in zip(asked, scores, strict=True)]
    wrong = [row for row, each in zip(told, asked, strict=True) if each.kind not in FORMS]
    right = [row for row, each in zip(told, asked, strict=True) if each.kind in FORMS]
    assert len(wrong) >= len(own) and len(right) >= 2 * len(some)
    passed, refused = [row for row in wrong if row[2]], [row for row in right if not row[2]]
    assert len(passed) <= 0.01 * len(wrong), passed
    assert len(refused) <= 0.01 * len(right), refused
