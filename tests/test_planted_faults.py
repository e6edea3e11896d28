"""The faults that are planted in the code to see whether the tests notice."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from fault_rule import REPOSITORY, Fault, faults, listed, planted

RESULTS = REPOSITORY / "bench" / "results"
SOURCE = """
@dataclass(frozen=True)
class Limits:
    most: int | None = 3

def f(x: int = 1, known: bool = False) -> int | None:
    total = -x
    total += 2
    if known:
        return f"{x + 1} more"
    return total if 0 < x <= 9 and x is not None else "a text"
"""


def changes() -> set[tuple[str, str]]:
    return {(fault.before, fault.after) for fault in faults(SOURCE, "a.py")}


def test_what_can_be_changed_is_listed_and_declarations_and_texts_are_not() -> None:
    assert changes() == {
        *(("3", "4"), ("1", "2"), ("2", "3"), ("0", "1"), ("9", "10"), ("False", "True"), ("-x", "(x)")),
        ("total += 2", "total -= 2"),
        ("known", "(not (known))"),
        ("0 < x <= 9", "(0 <= x <= 9)"),
        ("0 < x <= 9", "(0 < x < 9)"),
        ("x is not None", "(x is None)"),
        ("0 < x <= 9 and x is not None", "(0 < x <= 9 or x is not None)"),
    }


def test_a_planted_fault_is_all_that_changes_and_can_be_run() -> None:
    for fault in faults(SOURCE, "a.py"):
        text = planted(SOURCE, fault)
        ast.parse(text)
        before, after = SOURCE.splitlines(), text.splitlines()
        assert [n for n, line in enumerate(before) if after[n] != line] == [fault.line - 1]


def test_a_fault_is_found_again_where_lines_have_moved() -> None:
    (fault,) = (each for each in faults(SOURCE, "a.py") if each.after == "total -= 2")
    assert planted(f"import b\n{SOURCE}", fault) == f"import b\n{planted(SOURCE, fault)}"
    with pytest.raises(ValueError, match=r"`total \+= 2` of a.py:8 is there 0 times by now"):
        planted(SOURCE.replace("+= 2", "+= 3"), fault)


def test_every_part_of_the_code_holds_faults_and_the_list_is_the_same_each_time() -> None:
    drawn: list[Fault] = listed()
    assert len(drawn) > 1000 and drawn == listed()
    assert {"sampler", "learner", "problems", "population", "store"} == {
        fault.file.split("/")[1] for fault in drawn
    }


@pytest.mark.parametrize("record", sorted(RESULTS.glob("planted-faults-*.json")), ids=lambda path: path.stem)
def test_a_record_names_modules_and_tests_that_are_there(record: Path) -> None:
    results = json.loads(record.read_text())["results"]
    tests = {each[key].partition("::")[0] for each in results for key in ("by", "later")} - {""}
    files = {each["fault"]["file"] for each in results} | tests
    assert [name for name in sorted(files) if not (REPOSITORY / name).is_file()] == []
