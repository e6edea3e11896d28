"""Benchmarks on their published rows: reference solutions and published answers are right.

Of MBPP+ every third row is judged, and of its heavy problems the one that takes a minute is left out; POPULORA_WHOLE=1
judges all.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from benchmark_rows import fenced
from conftest import PATIENCE
from published_data import published
from reference_completions import completions

from populora_core.benchmarks.benchmark import Item, ItemScore, Response, benchmark
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Sandbox
from populora_plugins.public_benchmarks import evalplus
from populora_plugins.public_benchmarks.code_tests import code_limits
from populora_plugins.public_benchmarks.codec import decode, encode
from populora_plugins.public_benchmarks.evalplus import CEILING_SECONDS, MEMORY_MIB, reference

WHOLE = "POPULORA_WHOLE" in os.environ
FILES = {"mbpp_plus": ("MbppPlus.jsonl.gz", 378), "humaneval": ("HumanEval.jsonl.gz", 164)}
STEPS = {"mbpp_plus": 1 if WHOLE else 3, "humaneval": 1}
SPOILT = {
    "Mbpp/255": (
        "return list(combinations_with_replacement(l, n))",
        "return [*combinations_with_replacement(l, n)][1:]",
    )
}
"""Heavy problems, and what makes their solutions wrong. One takes more memory than others, and answers with more than
a text can hold; one takes its time at every call."""
LONGEST = "Mbpp/599"
if WHOLE:
    SPOILT[LONGEST] = ("average = sum_/number", "average = (sum_ + 1)/number")

SURVIVORS = tomllib.loads((Path(__file__).parents[3] / "tests/data/published_survivors.toml").read_text())[
    "survivor"
]
"""Problems whose drawn fault no published input tells, of both whole files, with the reason."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox("auto", code_limits(CEILING_SECONDS, MEMORY_MIB), workers=2) as opened:
        yield opened


class Judged(NamedTuple):
    """Scores of what was asked of a published file.

    Attributes:
        spoilt: of wrong answers to heavy problems.
        faulty: of solutions with a drawn fault, one of every tenth problem that has a place for it.
        tenth: every tenth problem.
    """

    solutions: dict[str, ItemScore]
    spoilt: dict[str, ItemScore]
    faulty: dict[str, ItemScore]
    tenth: set[str]


@pytest.fixture(scope="module")
def judged(sandbox: Sandbox) -> Callable[[str], Judged]:
    """Judges all that is asked of a file together, so that each reference solution runs once."""

    @cache
    def judge(name: str) -> Judged:
        file, count = FILES[name]
        items = benchmark(name).load(published(file))
        assert len(items) == count
        own, tenth = {item.item_id: item for item in items}, {item.item_id for item in items[::10]}
        spoilt = {key: fenced(reference(own[key])).replace(*SPOILT[key]) for key in SPOILT if key in own}
        drawn = {item.item_id for item in items[:: STEPS[name]]} - {LONGEST} | spoilt.keys()
        solutions = {key: fenced(reference(own[key])) for key in sorted(drawn)}
        mutants = [each for each in completions() if each.kind == "mutant" and each.item_id in tenth]
        faulty = {each.item_id: each.text for each in mutants}
        assert len(faulty) == len(mutants)
        asked = [*solutions.items(), *spoilt.items(), *faulty.items()]
        responses = [Response(text) for _, text in asked]
        scores = benchmark(name).grade([own[key] for key, _ in asked], responses, "instruct", sandbox)
        assert len(scores) == len(asked)
        each = iter(scores)
        return Judged(*({key: next(each) for key in part} for part in (solutions, spoilt, faulty)), tenth)

    return judge


def graded(name: str, items: list[Item], programs: list[str], sandbox: Sandbox) -> list[ItemScore]:
    return benchmark(name).grade(items, [Response(fenced(text)) for text in programs], "instruct", sandbox)


@pytest.mark.thorough
@pytest.mark.sandbox
@pytest.mark.parametrize("name", FILES)
def test_published_solutions_are_right(name: str, judged: Callable[[str], Judged]) -> None:
    assert {key: score for key, score in judged(name).solutions.items() if not score.correct} == {}


@pytest.mark.thorough
@pytest.mark.sandbox
@pytest.mark.parametrize("name", FILES)
def test_a_published_solution_with_one_fault_is_wrong_but_where_it_changes_nothing(
    name: str, judged: Callable[[str], Judged]
) -> None:
    found = judged(name)
    survivors = {key for key, score in found.faulty.items() if score.correct}
    assert len(found.faulty) > 0.6 * len(found.tenth)
    assert survivors == {each["item"] for each in SURVIVORS} & found.tenth


@pytest.mark.thorough
@pytest.mark.sandbox
def test_heavy_problems_are_judged_and_a_wrong_answer_to_them_is_wrong(
    judged: Callable[[str], Judged],
) -> None:
    found = judged("mbpp_plus")
    right = {key: found.solutions[key].verdict for key in SPOILT}
    wrong = {key: score.verdict for key, score in found.spoilt.items()}
    assert right == dict.fromkeys(SPOILT, AttemptVerdict.CORRECT)
    assert wrong == dict.fromkeys(SPOILT, AttemptVerdict.WRONG)


@pytest.mark.thorough
@pytest.mark.sandbox
def test_inputs_run_one_by_one_where_the_reference_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spin = "def spin(n):\n    for _ in range(n):\n        pass\n    return n\n"
    row = {
        "task_id": "Mbpp/1",
        "entry_point": "spin",
        "prompt": "",
        "canonical_solution": spin,
        "contract": "",
    }
    row |= {"base_input": [[8_000_000]] * 40, "plus_input": [], "atol": 0}
    (item,) = benchmark("mbpp_plus").load([row])
    monkeypatch.setattr(evalplus, "FLOOR_SECONDS", 0.01)
    off = spin.replace("return n", "return n + (n > 9)")
    limits = replace(code_limits(1.0), wall_seconds=PATIENCE)
    with open_sandbox("auto", limits, workers=2) as tight:
        scores = graded("mbpp_plus", [item] * 2, [spin, off], tight)
    assert [score.verdict for score in scores] == [AttemptVerdict.CORRECT, AttemptVerdict.WRONG]


@pytest.mark.sandbox
def test_the_check_of_a_row_judges_and_the_candidate_never_meets_it() -> None:
    row = {
        "task_id": "H/0",
        "prompt": "def twice(n):\n",
        "entry_point": "twice",
        "canonical_solution": "    return 2 * n\n",
    }
    row["test"] = (
        "def check(candidate):\n    import random\n    for _ in range(9):\n        n = random.randint(1, 99)\n"
        "        assert abs(candidate(n) - 2 * n) < 1e-6\n    assert candidate('ab') == 'abab', 'secret'\n"
    )
    benchmarked = benchmark("humaneval")
    (item,) = benchmarked.load([row])
    programs = {
        "def twice(n):\n    return n + n": AttemptVerdict.CORRECT,
        "def twice(n):\n    return 2.0 * n if n != 'ab' else 'abab'": AttemptVerdict.CORRECT,
        "def twice(n):\n    return n * 3": AttemptVerdict.WRONG,
        "def twice(n):\n    return None": AttemptVerdict.WRONG,
        "def twice(n):\n    raise SystemExit(0)": AttemptVerdict.RUNTIME_ERROR,
        "class Yes:\n    def __eq__(self, o): return True\ndef twice(n):\n    return Yes()": AttemptVerdict.WRONG,
        "import sys\ndef twice(n):\n    f = sys._getframe(1)\n    f.f_globals['check'] = print\n"
        "    sys.modules['solution'].check = lambda c: None\n    return 0": AttemptVerdict.WRONG,
    }
    with open_sandbox("auto", code_limits(2.0), workers=2) as opened:
        scores = graded("humaneval", [item] * len(programs), list(programs), opened)
        assert [score.verdict for score in scores] == list(programs.values())
        broken = benchmarked.load([row | {"canonical_solution": "    return 3 * n\n"}])
        (score,) = graded("humaneval", broken, ["def twice(n):\n    return n + n"], opened)
    assert score.correct is None and "the reference solution does not run here" in score.detail


def test_a_value_too_large_for_a_text_is_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    def through(value: object) -> object:
        return decode(encode(value))

    monkeypatch.setattr("populora_plugins.public_benchmarks.codec.LARGE", 3)
    value = [("a", 1.5), ("b", 2.5)]
    assert through(value) == through([("".join(["a"]), 1.5), ("b", 5 / 2)]) != value
    assert through(value) != through([("a", 1.5), ("b", 2.25)])
    assert through(value) != through(tuple(value))
    assert through([1, 2, 3]) == [1, 2, 3]
    assert len(json.loads(encode([1, 2, 3, object()]))) == 2  # no builtin value: as it is, equal to nothing
