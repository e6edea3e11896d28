"""The copy test: its arithmetic, and what the documents say of it, from the committed rows."""

from __future__ import annotations

import pytest

from experiments.copies import FRESH, INHERITS, UNTOUCHED, loss, losses, table
from experiments.lines import read_lines
from populora_core.support.shipped import REPOSITORY

ROWS = read_lines(REPOSITORY / "bench" / "results" / "copies.jsonl")


def row(rule: str, student: int, score: float, seed: int = 0, after: int = 2) -> dict:
    return {"seed": seed, "rule": rule, "after": after, "student": student, "score": score}


def test_a_loss_is_of_one_student_by_both_ways_at_one_point() -> None:
    rows = [
        *(row(UNTOUCHED, student, 0.8 + 0.01 * student) for student in range(8)),
        *(row(FRESH, student, 0.75) for student in (7, 0, 3)),
        row(FRESH, 0, 0.1, seed=1),
        row(FRESH, 1, 0.2, after=10),
    ]
    assert losses(rows, FRESH, 2) == pytest.approx([0.05, 0.08, 0.12])


def test_of_eight_students_the_interval_is_that_of_sign_flips() -> None:
    lost = [0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09]
    rows = [
        *(row(UNTOUCHED, n, 0.8) for n in range(8)),
        *(row(FRESH, n, 0.8 - each) for n, each in enumerate(lost)),
    ]
    found = loss(rows, FRESH, 2)
    assert found.value == pytest.approx(0.055)
    assert 0.02 < found.low < 0.055 < found.high < 0.09


def test_the_page_says_what_the_rows_say() -> None:
    assert table(ROWS) in (REPOSITORY / "docs" / "study.md").read_text()


def test_a_copy_that_inherits_loses_nothing_and_a_fresh_one_points() -> None:
    assert losses(ROWS, INHERITS, 2) and set(losses(ROWS, INHERITS, 2)) == {0.0}
    inherits, fresh = (loss(ROWS, rule, 2) for rule in (INHERITS, FRESH))
    assert inherits.high < 0.015
    assert fresh.value >= 0.03 and fresh.low > 0.0
