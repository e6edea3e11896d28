"""Every public benchmark takes rows of its published schema, and names the column that a wrong file lacks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from benchmark_rows import ROWS
from conftest import needs

from populora_core.benchmarks.benchmark import BENCHMARKS, Benchmark, benchmark
from populora_core.benchmarks.contamination import item_text
from populora_core.benchmarks.suite import load_suite
from populora_core.problems.dialects import NO_MORE
from populora_core.support.errors import BenchmarkError, ProblemError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.public_benchmarks.livecodebench import LiveCodeBench

PAPER = load_suite(REPOSITORY / "configs" / "suites" / "paper.toml")
FAMILIES = ("instruct", "compact")


@pytest.fixture(params=sorted(ROWS))
def measured(request: pytest.FixtureRequest) -> Benchmark:
    return benchmark(request.param)


def test_the_paper_suite_names_ten_benchmarks_that_exist_at_pinned_revisions() -> None:
    names = [entry.benchmark for entry in PAPER.benchmarks]
    assert sorted(names) == sorted(ROWS) and len(names) == 10
    assert set(names) <= set(BENCHMARKS.names())
    assert all(entry.revision for entry in PAPER.benchmarks)
    assert all(entry.temperature == 0 and entry.attempts == 1 for entry in PAPER.benchmarks)


def test_rows_of_the_published_schema_make_problems(measured: Benchmark) -> None:
    rows = ROWS[measured.name]
    items = measured.load(rows)
    assert [item.fields for item in items] == rows
    assert {item.benchmark for item in items} == {measured.name}
    assert len({item.item_id for item in items}) == len(items)


def test_ids_do_not_depend_on_the_place_of_a_row(measured: Benchmark) -> None:
    rows = ROWS[measured.name][:2]
    ids = [item.item_id for item in measured.load(rows)]
    assert [item.item_id for item in measured.load(rows[::-1])] == ids[::-1]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_file_without_a_column_is_refused_by_its_name(name: str) -> None:
    measured = benchmark(name)
    for column in measured.schema:
        rows = [dict(row) for row in ROWS[name]]
        del rows[-1][column]
        with pytest.raises(
            BenchmarkError, match=f"{name}: row {len(rows) - 1} has no usable column '{column}'"
        ):
            measured.load(rows)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_column_of_another_type_is_refused_by_its_name(name: str) -> None:
    measured = benchmark(name)
    for column in measured.schema:
        row = dict(ROWS[name][0]) | {column: object()}
        with pytest.raises(BenchmarkError, match=f"row 0 has no usable column '{column}'"):
            measured.load([row])


def test_an_empty_file_is_refused(measured: Benchmark) -> None:
    with pytest.raises(BenchmarkError, match="holds no rows"):
        measured.load([])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("math500", {"answer": " "}),
        ("math500", {"problem": ""}),
        ("aime24", {"solution": "no box"}),
        ("gsm8k", {"answer": "18"}),
        ("olympiadbench", {"final_answer": []}),
        ("humaneval_plus", {"base_input": []}),
        ("humaneval_plus", {"plus_input": [1]}),
        ("mbpp_plus", {"plus_input": {"a": 1}}),
        ("mbpp_plus", {"entry_point": "f()"}),
        ("livecodebench", {"public_test_cases": "nonsense"}),
        ("livecodebench", {"starter_code": "class Solution: ...", "metadata": "{}"}),
        ("livecodebench", {"starter_code": "class Solution: ...", "metadata": '{"func_name": "a.b()"}'}),
    ],
)
def test_a_row_that_makes_no_problem_is_refused(name: str, change: dict[str, object]) -> None:
    with pytest.raises(BenchmarkError):
        benchmark(name).load([ROWS[name][0] | change])


@pytest.mark.parametrize("family", FAMILIES)
def test_there_is_one_recorded_prompt_for_each_family(measured: Benchmark, family: str) -> None:
    for item in measured.load(ROWS[measured.name]):
        prompt = measured.prompt(item, family)
        assert prompt == prompt.rstrip("\n") or family == "compact"
        question = next(
            item.fields[c] for c in ("question_content", "question", "problem", "prompt") if c in item.fields
        )
        assert question.strip().splitlines()[0] in prompt


@needs("math_verify", "evaluation")
@pytest.mark.parametrize("family", FAMILIES)
def test_the_record_of_a_template_begins_with_its_family(measured: Benchmark, family: str) -> None:
    assert measured.template(family).startswith(f"{family}/")


def test_packed_cases_are_no_text_that_a_run_could_repeat() -> None:
    (item,) = LiveCodeBench().load([ROWS["livecodebench"][0] | {"private_test_cases": "packed"}])
    text = item_text(item, LiveCodeBench.text_columns)
    assert item.fields["question_content"] in text and "packed" not in text


@pytest.mark.parametrize("name", ["aime25", "amc23", "math500", "minerva", "gsm8k"])
@pytest.mark.parametrize("family", FAMILIES)
def test_mathematics_is_asked_for_a_box_and_never_told_the_answer(name: str, family: str) -> None:
    measured = benchmark(name)
    (item,) = measured.load([ROWS[name][0] | {"answer": "#### 918273645"}])
    prompt = measured.prompt(item, family)
    assert "\\boxed{}" in prompt and "918273645" not in prompt


@needs("math_verify", "evaluation")
@pytest.mark.parametrize(
    ("spoken", "family"), [("repl", "compact"), ("assert", "compact"), ("chat", "instruct")]
)
def test_a_dialect_without_templates_is_asked_by_the_form_of_its_prompts(
    measured: Benchmark, spoken: str, family: str
) -> None:
    (item, *_) = measured.load(ROWS[measured.name])
    assert measured.prompt(item, spoken) == measured.prompt(item, family)
    assert measured.template(spoken) == measured.template(family)
    ends: Callable[[str], tuple[str, ...]] = getattr(measured, "ends", lambda family: ())
    assert ends(spoken) == ends(family) and (NO_MORE in ends(spoken)) == (family == "compact")


def test_an_unknown_dialect_is_refused(measured: Benchmark) -> None:
    (item, *_) = measured.load(ROWS[measured.name])
    with pytest.raises(ProblemError, match="'klingon' is no dialect"):
        measured.prompt(item, "klingon")
    with pytest.raises(ProblemError, match="'klingon' is no dialect"):
        measured.template("klingon")
