"""Benchmarks on their published rows: every reference solution and every published answer is right."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmark_rows import fenced
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

FILES = {"mbpp_plus": ("MbppPlus.jsonl.gz", 378), "humaneval": ("HumanEval.jsonl.gz", 164)}
HEAVY = ("Mbpp/255", "Mbpp/599")
"""One takes more memory than others, and answers with more than a text can hold; one takes its time at every call."""

SURVIVORS = tomllib.loads((Path(__file__).parents[3] / "tests/data/published_survivors.toml").read_text())[
    "survivor"
]
"""Problems whose drawn fault no published input tells, of both whole files, with the reason."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox("auto", code_limits(CEILING_SECONDS, MEMORY_MIB), workers=2) as opened:
        yield opened


def loaded(name: str, keep: tuple[str, ...] = ()) -> list[Item]:
    file, count = FILES[name]
    items = benchmark(name).load(published(file))
    assert len(items) == count
    return [item for item in items if not keep or item.item_id in keep]


def graded(name: str, items: list[Item], programs: list[str], sandbox: Sandbox) -> list[ItemScore]:
    return benchmark(name).grade(items, [Response(fenced(text)) for text in programs], "instruct", sandbox)


@pytest.mark.thorough
@pytest.mark.sandbox
@pytest.mark.parametrize("name", FILES)
def test_every_published_solution_is_right(name: str, sandbox: Sandbox) -> None:
    items = loaded(name)
    scores = graded(name, items, list(map(reference, items)), sandbox)
    assert {item.item_id: score for item, score in zip(items, scores, strict=True) if not score.correct} == {}


@pytest.mark.thorough
@pytest.mark.sandbox
@pytest.mark.parametrize("name", FILES)
def test_a_published_solution_with_one_fault_is_wrong_but_where_it_changes_nothing(
    name: str, sandbox: Sandbox
) -> None:
    own = {item.item_id: item for item in loaded(name)[::10]}
    asked = [each for each in completions() if each.kind == "mutant" and each.item_id in own]
    responses = [Response(each.text) for each in asked]
    scores = benchmark(name).grade([own[each.item_id] for each in asked], responses, "instruct", sandbox)
    survivors = {each.item_id for each, score in zip(asked, scores, strict=True) if score.correct}
    assert len(asked) > 0.6 * len(own)
    assert survivors == {each["item"] for each in SURVIVORS} & own.keys()


@pytest.mark.thorough
@pytest.mark.sandbox
def test_heavy_problems_are_judged_and_a_wrong_answer_to_them_is_wrong(sandbox: Sandbox) -> None:
    items = loaded("mbpp_plus", HEAVY)
    spoilt = {
        "Mbpp/255": (
            "return list(combinations_with_replacement(l, n))",
            "return [*combinations_with_replacement(l, n)][1:]",
        ),
        "Mbpp/599": ("average = sum_/number", "average = (sum_ + 1)/number"),
    }
    wrong = [reference(item).replace(*spoilt[item.item_id]) for item in items]
    scores = graded("mbpp_plus", items * 2, [*map(reference, items), *wrong], sandbox)
    assert [score.verdict for score in scores] == [AttemptVerdict.CORRECT] * 2 + [AttemptVerdict.WRONG] * 2


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
    row |= {"base_input": [[12_000_000]] * 8, "plus_input": [], "atol": 0}
    (item,) = benchmark("mbpp_plus").load([row])
    monkeypatch.setattr(evalplus, "FLOOR_SECONDS", 0.01)
    off = spin.replace("return n", "return n + (n > 9)")
    with open_sandbox("auto", code_limits(1.0), workers=2) as tight:
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


@pytest.mark.parametrize(
    ("name", "file", "count"), [("aime24", "aime24.jsonl.gz", 30), ("minerva", "minerva_math.jsonl.gz", 272)]
)
def test_other_published_forms_of_a_file_are_read_by_their_columns(name: str, file: str, count: int) -> None:
    rows = published(file)
    items = benchmark(name).load(rows)
    assert len(items) == count
    if name == "aime24":
        golds = [row["answer"] for row in rows]
        texts = [f"so it is $\\boxed{{{gold}}}$" for gold in golds]
        scores = benchmark(name).grade(items, list(map(Response, texts)), "instruct", None)  # type: ignore[arg-type]
        assert all(score.correct for score in scores)
