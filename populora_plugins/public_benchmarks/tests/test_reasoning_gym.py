"""reasoning-gym as a benchmark, with the real package: its rows are made once, and its verifiers grade."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import needs

from populora_core.benchmarks.benchmark import Response, benchmark
from populora_core.benchmarks.fetched import FOLDER_VARIABLE
from populora_core.benchmarks.items import load_items
from populora_core.benchmarks.suite import Entry
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.support.errors import BenchmarkError
from populora_plugins.public_benchmarks.fetch import fetch
from populora_plugins.public_benchmarks.reasoning_gym import generated, generator

pytestmark = needs("reasoning_gym", "reasoning")

ENTRY = Entry(benchmark="reasoning_gym", dataset="reasoning-gym:chain_sum,leg_counting", config="3@7")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))


def test_rows_are_made_once_and_the_same_seed_makes_the_same() -> None:
    first = fetch(ENTRY)
    assert first.rows == 6 and fetch(ENTRY).sha256 == first.sha256
    assert fetch(ENTRY.model_copy(update={"config": "3@8"})).sha256 != first.sha256
    with pytest.raises(BenchmarkError, match="another data set"):
        load_items(ENTRY)


@pytest.mark.parametrize("family", ["instruct", "compact"])
def test_the_verifier_of_each_generator_grades(family: str) -> None:
    fetch(ENTRY)
    items, gym = load_items(ENTRY), benchmark("reasoning_gym")
    assert [item.stratum for item in items] == ["chain_sum"] * 3 + ["leg_counting"] * 3
    assert all(item.fields["question"].strip() in gym.prompt(item, family) for item in items)

    def graded(write: str) -> set[AttemptVerdict]:
        texts = [write.format(item.fields["answer"]) for item in items]
        told = [f"so</think>\n<answer>{text}</answer>" if family == "instruct" else text for text in texts]
        return {score.verdict for score in gym.grade(items, list(map(Response, told)), family, None)}  # type: ignore[arg-type]

    assert graded("{}") == {AttemptVerdict.CORRECT}
    assert graded("{}7") == {AttemptVerdict.WRONG}
    silent = gym.grade(items[:1], [Response("")], family, None)  # type: ignore[arg-type]
    assert silent[0].verdict is AttemptVerdict.FORMAT_ERROR


def test_a_verifier_gets_the_metadata_that_its_generator_made() -> None:
    grids = ENTRY.model_copy(update={"dataset": "reasoning-gym:arc_agi,rearc", "config": "2@3"})
    fetch(grids)
    items, gym = load_items(grids), benchmark("reasoning_gym")
    for end, verdict in ((None, AttemptVerdict.CORRECT), (-1, AttemptVerdict.WRONG)):
        told = [Response(f"<answer>{item.fields['answer'][:end]}</answer>") for item in items]
        scores = gym.grade(items, told, "instruct", None)  # type: ignore[arg-type]
        assert {score.verdict for score in scores} == {verdict}


def test_a_base_model_is_read_for_as_many_lines_as_the_published_answer_has() -> None:
    entry = ENTRY.model_copy(update={"dataset": "reasoning-gym:rotate_matrix,chain_sum", "config": "2@3"})
    fetch(entry)
    items, gym = load_items(entry), benchmark("reasoning_gym")
    assert any("\n" in item.fields["answer"] for item in items)
    for more in ("\n\nProblem: another", "<|endoftext|>Human: and now?"):
        told = [Response(f" {item.fields['answer']}{more}") for item in items]
        scores = gym.grade(items, told, "compact", None)  # type: ignore[arg-type]
        assert {score.verdict for score in scores} == {AttemptVerdict.CORRECT}


def test_a_problem_that_another_process_makes_otherwise_is_graded_from_its_row() -> None:
    walking_sets = "reasoning-gym:isomorphic_strings,ransom_note,list_functions"
    fetch(entry := ENTRY.model_copy(update={"dataset": walking_sets, "config": "2@3"}))
    made = load_items(entry)
    items = [replace(item, fields={**item.fields, "question": "another"}) for item in made]
    told = [Response(f"<answer>{item.fields['answer']}</answer>") for item in items]
    scores = benchmark("reasoning_gym").grade(items, told, "instruct", None)  # type: ignore[arg-type]
    assert {score.verdict for score in scores} == {AttemptVerdict.CORRECT}


ROW = {"generator": "chain_sum", "question": "1 + 1 = ?", "answer": "2", "metadata": "{}"}


@pytest.mark.thorough
def test_every_generator_that_may_be_used_is_graded_from_its_rows() -> None:
    with pytest.raises(BenchmarkError) as refused:
        generator("no such generator")
    gym, wrong = benchmark("reasoning_gym"), set()
    for name in {*(refused.value.expected or "").split(", ")} - {"composite"}:  # it is made of others
        (item,) = gym.load(generated(f"reasoning-gym:{name}", "1@0", None))
        (score,) = gym.grade(
            [item], [Response(f"<answer>{item.fields['answer']}</answer>")], "instruct", None
        )  # type: ignore[arg-type]
        wrong |= set() if score.correct else {name}
    assert wrong == {"boxnet", "graph_color", "propositional_logic", "rush_hour"}, "they tell no answer"


def test_rows_without_what_a_verifier_needs_are_to_be_fetched_again() -> None:
    told = r"'chain_sum', has no usable metadata(.|\n)*populora suite fetch"
    with pytest.raises(BenchmarkError, match=told):
        benchmark("reasoning_gym").load([ROW | {"metadata": "{1: open('x')}"}])


def test_a_number_that_a_verifier_would_never_be_done_with_is_wrong() -> None:
    fetch(flips := ENTRY.model_copy(update={"dataset": "reasoning-gym:coin_flip", "config": "1@7"}))
    (item,), gym = load_items(flips), benchmark("reasoning_gym")
    for answer in ("1e10000000", "1E+1_0000000"):
        (score,) = gym.grade([item], [Response(f"<answer>{answer}</answer>")], "instruct", None)  # type: ignore[arg-type]
        assert score.verdict is AttemptVerdict.WRONG


def test_the_version_of_the_verifiers_is_recorded() -> None:
    assert f"reasoning-gym {version('reasoning-gym')}" in benchmark("reasoning_gym").template("instruct")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("countdown", "evaluates what a model wrote"),
        ("nothing", "no such"),
        ("composite", "at least one dataset"),
    ],
)
def test_a_generator_that_would_run_model_text_is_refused(name: str, why: str) -> None:
    with pytest.raises(BenchmarkError, match=f"{name}(.|\n)*{why}"):
        fetch(ENTRY.model_copy(update={"dataset": f"reasoning-gym:{name}"}))


def test_another_version_than_the_suite_names_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="of another version"):
        fetch(ENTRY.model_copy(update={"revision": "0.0.1"}))
