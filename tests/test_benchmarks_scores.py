"""From judged completions to the rows of `evaluations`, and the trend over generations."""

from __future__ import annotations

from math import comb
from pathlib import Path

import pytest
from conftest import small_config, start
from store_run import commit_stage, item_row

from flows.trend import trend
from populora_core.benchmarks.scores import (
    ALL,
    by_problem,
    group_interval,
    headline_rows,
    headlines,
    metrics_of,
    score_rows,
    tells_nothing,
)
from populora_core.benchmarks.suite import Entry, Suite
from populora_core.runs.run import Run
from populora_core.store.artifacts import StageWriter
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import EVALUATION
from populora_core.store.schema import to_table

ENTRIES = tuple(
    Entry(benchmark=f"tiny_{kind}", dataset="bundled:tiny.parquet") for kind in ("code_o", "code_i")
)
SUITE = Suite(suite="small", benchmarks=ENTRIES)


def answers(member: str, benchmark: str, verdicts: str, generation: int = 1, **fields: object) -> list[dict]:
    """One completion a problem: `+` right, `-` wrong, `?` infrastructure."""
    correct = {"+": True, "-": False, "?": None}
    row = item_row(generation, member) | {"suite": "small", "benchmark": benchmark, "part": "test", **fields}
    return [
        row | {"item_id": f"{benchmark}-{place}", "correct": correct[mark]}
        for place, mark in enumerate(verdicts)
    ]


def test_scores_count_problems_and_leave_infrastructure_out() -> None:
    items = answers("student-00-g0000", "tiny_code_o", "++-?") + answers(
        "student-00-g0000", "tiny_code_i", "+---"
    )
    rows = {row["benchmark"]: row for row in score_rows(items, SUITE, base=None)}
    first = rows["tiny_code_o"]
    assert (first["n"], first["n_correct"], first["n_infrastructure"]) == (3, 2, 1)
    assert first["score"] == pytest.approx(2 / 3)
    assert rows[ALL]["score"] == pytest.approx((2 / 3 + 1 / 4) / 2), "benchmarks count alike"
    assert rows[ALL]["delta"] is None
    assert [row["benchmark"] for row in headline_rows(rows.values(), SUITE)] == [ALL]


@pytest.mark.parametrize(
    ("base", "member", "nothing"),
    [
        ("-" * 400, "-" * 400, True),
        ("-" * 400, "+" + "-" * 399, True),
        ("-" * 400, "+" * 40 + "-" * 360, False),
        ("+" * 40 + "-" * 360, "-" * 400, False),
        ("-" * 20, "-" * 20, True),
        ("+" + "-" * 19, "-" * 20, False),
    ],
)
def test_a_suite_on_which_all_score_at_the_floor_tells_nothing(base: str, member: str, nothing: bool) -> None:
    suite = Suite(suite="small", benchmarks=ENTRIES[:1])
    rows = score_rows(
        answers("base", "tiny_code_o", base) + answers("m", "tiny_code_o", member), suite, "base"
    )
    assert tells_nothing(rows, suite) is nothing
    alone = [row for row in rows if row["member_id"] == "base"]
    assert not tells_nothing(alone, suite)


def test_scores_of_a_benchmark_that_is_not_installed_here_are_read() -> None:
    entry = Entry(benchmark="somebody_elses:Exam", dataset="file:exam.parquet", k=(1,))
    suite = Suite(suite="small", benchmarks=(entry,))
    (rule,) = headlines(suite)
    assert by_problem(answers("m", entry.benchmark, "+-"), rule)["m"].n_correct == 1
    assert not tells_nothing([], suite)


def test_a_score_that_guesses_reach_tells_nothing() -> None:
    entry = Entry(benchmark="frontier_code_o", dataset="bundled:frontier.parquet")
    suite = Suite(suite="small", benchmarks=(entry,))
    for right, nothing in ((2, True), (3, False)):  # of 50; guesses get one in 25
        text = "+" * right + "-" * (50 - right)
        items = answers("base", "frontier_code_o", text) + answers("m", "frontier_code_o", text)
        assert tells_nothing(score_rows(items, suite, "base"), suite) is nothing


def test_nothing_but_infrastructure_is_no_score() -> None:
    items = answers("m", "tiny_code_o", "??") + answers("m", "tiny_code_i", "+-")
    assert [row["benchmark"] for row in score_rows(items, SUITE, base=None)] == ["tiny_code_i"]


def test_members_are_compared_with_the_base_on_the_problems_that_both_were_judged_on() -> None:
    items = answers("m", "tiny_code_o", "++?-") + answers("m", "tiny_code_i", "++++")
    items += answers("base", "tiny_code_o", "-++?") + answers("base", "tiny_code_i", "+++-")
    rows = {(row["member_id"], row["benchmark"]): row for row in score_rows(items, SUITE, base="base")}
    assert rows["m", "tiny_code_o"]["delta"] == pytest.approx(0.5), "of two shared problems one was gained"
    assert rows["m", ALL]["delta"] == pytest.approx((0.5 + 0.25) / 2)
    assert rows["base", ALL]["delta"] is None
    for row in rows.values():
        assert row["low"] <= row["score"] <= row["high"]


def test_several_completions_give_pass_at_k_and_warm_answers_stand_apart_from_greedy_ones() -> None:
    warm = Entry(
        benchmark="tiny_code_o", dataset="bundled:tiny.parquet", attempts=4, k=(1, 2), temperature=0.6
    )
    suite = Suite(suite="small", benchmarks=(ENTRIES[0], warm))
    items = answers("m", "tiny_code_o", "+-")
    for sample, marks in enumerate(("+-", "+-", "--", "--")):
        items += answers("m", "tiny_code_o", marks, temperature=0.6, sample_index=sample)
    rows = {(row["metric"], row["temperature"]): row for row in score_rows(items, suite, base=None)}
    assert rows["pass@1", 0.0]["score"] == 0.5
    assert rows["pass@1", 0.6]["score"] == pytest.approx(0.25)
    assert rows["pass@2", 0.6]["score"] == pytest.approx((1 - 1 / 6) / 2)
    assert rows["pass@2", 0.6]["n_correct"] == 1
    assert len(headline_rows(rows.values(), suite)) == 1, "a benchmark that comes twice counts once"
    assert [metric.name for metric in metrics_of(warm)] == ["pass@1", "pass@2"]


def test_scores_of_eight_completions_stand_on_every_row_of_their_temperature(tmp_path: Path) -> None:
    warm, hot = (
        Entry(
            benchmark="tiny_code_o", dataset="bundled:tiny.parquet", attempts=10, k=k, temperature=temperature
        )
        for k, temperature in (((1, 2, 8), 0.6), ((1,), 1.0))
    )
    suite = Suite(suite="small", benchmarks=(ENTRIES[0], warm, hot))
    right = (0, 1, 3, 10)  # of the ten completions of each problem
    items = answers("m", "tiny_code_o", "+--+")
    for sample in range(10):
        marks = "".join("+" if sample < count else "-" for count in right)
        for entry in (warm, hot):
            items += answers("m", "tiny_code_o", marks, temperature=entry.temperature, sample_index=sample)
    commit_stage(tmp_path, 1, "evaluate-small", {"evaluations": score_rows(items, suite, base=None)})
    with Catalogue(tmp_path) as catalogue:
        rows = catalogue.rows("SELECT benchmark, temperature, mean_at_8, pass_at_8 FROM evaluations")
    mean = sum(right) / 40
    passed = sum(1 - comb(10 - count, 8) / comb(10, 8) for count in right) / 4
    assert len(rows) == 2 * 5, "a row a metric, and the same of `all`"
    for row in rows:
        expected = {0.0: (None, None), 0.6: (mean, passed), 1.0: (mean, None)}[row["temperature"]]
        assert (row["mean_at_8"], row["pass_at_8"]) == pytest.approx(expected)


def test_the_mean_of_a_group_is_over_problems() -> None:
    items = [
        row
        for member, marks in (("a", "++--"), ("b", "+---"))
        for entry in ENTRIES
        for row in answers(member, entry.benchmark, marks)
    ]
    found = group_interval(items, SUITE, ["a", "b"])
    assert found is not None
    assert found.value == pytest.approx(0.375)
    assert found.low < 0.375 < found.high


def commit(run: Run, generation: int, items: list[dict], suite: Suite = SUITE, members: str = "all") -> None:
    with StageWriter(run.directory, generation, EVALUATION + suite.suite) as writer:
        writer.write_table("evaluation_items", to_table("evaluation_items", items))
        writer.commit(
            writer.draft(
                key="5" * 64,
                stage_version=1,
                seed=0,
                config={"suite": suite.model_dump(mode="json")},
                inputs={},
                started=0.0,
                seconds=0.0,
                code_revision="r",
                extra={"members": members},
            )
        )


def of_population(generation: int, solved: int) -> list[dict]:
    """Two members and the base; of 40 problems a benchmark the members solve the first ones."""
    marks = "+" * solved + "-" * (40 - solved)
    return [
        row
        for member in ("student-00-g0000", "student-01-g0000", "base")
        for entry in ENTRIES
        for row in answers(member, entry.benchmark, "+" * 40 if member == "base" else marks, generation)
    ]


def test_the_trend_pairs_each_generation_with_the_one_evaluated_before(tmp_path: Path) -> None:
    run = start(tmp_path / "run", small_config())
    for generation, solved in ((1, 20), (2, 19), (3, 8), (4, 8)):
        commit(run, generation, of_population(generation, solved))
    points = trend(run, SUITE)
    assert [point.generation for point in points] == [1, 2, 3, 4]
    assert [point.members for point in points] == [2] * 4, "the base is no member"
    assert [point.mean.value for point in points] == pytest.approx([0.5, 0.475, 0.2, 0.2])
    assert points[0].change is None
    assert [point.change.high < 0.0 for point in points[1:]] == [False, True, False]
    assert trend(run, SUITE.model_copy(update={"validation": 0.5})) == [], "another suite has another trend"


def test_the_best_are_compared_with_the_best_and_all_with_all(tmp_path: Path) -> None:
    run = start(tmp_path / "run", small_config())
    for generation, members, solved in ((1, "all", 20), (2, "best", 40), (3, "all", 20), (4, "best", 39)):
        commit(run, generation, of_population(generation, solved), members=members)
    assert [point.generation for point in trend(run, SUITE)] == [1, 3]
    assert [point.generation for point in trend(run, SUITE, "best")] == [2, 4]
    changes = [point.change for of in ("all", "best") for point in trend(run, SUITE, of)[1:]]
    assert not any(change.high < 0.0 for change in changes)
