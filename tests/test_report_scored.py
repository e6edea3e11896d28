"""Scores of a long run are read and drawn once, and those by other rules or of an earlier history are told apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from broken_off import drawn_again
from conftest import GENERATIONS, small_config
from store_run import STUDENT, commit_stage, generation_tables, item_row, member_row, write_run
from test_cli import populora

from flows.trend import trend
from populora_core.benchmarks.bundled import BundledBenchmark
from populora_core.benchmarks.metrics import paired_interval
from populora_core.benchmarks.scores import FIRST, NEWEST
from populora_core.benchmarks.suite import YARDSTICK, Entry, Suite, load_suite
from populora_core.commands import inspection
from populora_core.lifecycle.progress import evaluation_of
from populora_core.report.figures import read_figures
from populora_core.report.guard import CONFIDENCE, falls, standing
from populora_core.report.history import earlier_history
from populora_core.report.learnt import lines, lines_by_generation, score_lines
from populora_core.report.notes import headline
from populora_core.report.scored import scored
from populora_core.report.summary import generation_lines
from populora_core.report.text import in_points
from populora_core.report.write import write_report
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.redoable import all_redoable, redoable
from populora_core.store.adapters import MOMENTS
from populora_core.store.catalogue import publish
from populora_core.store.manifest import PRUNED
from populora_core.support import ids
from populora_core.support.shipped import REPOSITORY

HELD_OUT = Suite(suite="small", benchmarks=(Entry(benchmark="tiny_code_o", dataset="bundled:tiny.parquet"),))
ERAS = Suite(
    suite=YARDSTICK, benchmarks=tuple(Entry(benchmark=name, dataset="run") for name in (FIRST, NEWEST))
)
PROBLEMS = 12


def made(directory: Path, generations: int) -> Run:
    """A run of which nothing was played, with scores on two suites after each generation."""
    run = Run.create(directory, small_config(), base_digest="0" * 64)
    write_run(run.directory, generations)
    for generation in range(1, generations + 1):
        measure(run, generation, HELD_OUT)
        measure(run, generation, ERAS)
    publish(run.directory)
    return run


def measure(run: Run, generation: int, suite: Suite, solved: int = 7, rules: str = "a") -> None:
    """Commit an evaluation: the student solves so many problems of each benchmark, the base half of them."""
    items = [
        item_row(generation, member)
        | {"suite": suite.suite, "part": "test", "benchmark": entry.benchmark, "item_id": f"p{number}"}
        | {"correct": number < right, "temperature": entry.temperature}
        for entry in suite.benchmarks
        for member, right in ((STUDENT, solved), ("base", PROBLEMS // 2))
        for number in range(PROBLEMS)
    ]
    decides = {"suite": suite.model_dump(mode="json"), "problems": rules}
    key = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
    tables = {"evaluation_items": items, "evaluations": []}
    commit_stage(run.directory, generation, f"evaluate-{suite.suite}", tables, key=key, config=decides)


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[object]:
    """A list that grows by one with each call of a function."""
    calls: list[object] = []
    called = getattr(owner, name)

    def count(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        return called(*arguments, **options)

    monkeypatch.setattr(owner, name, count)
    return calls


def test_a_run_at_a_glance_is_opened_and_searched_as_often_however_long_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [made(tmp_path / str(generations), generations) for generations in (2, 7)]
    opened, searched = counted(monkeypatch, Run, "open"), counted(monkeypatch, Path, "glob")
    counts = []
    for run in runs:
        inspection.show_run(run)
        counts.append((len(opened), len(searched)))
        opened.clear()
        searched.clear()
    assert counts[0] == counts[1]
    assert capsys.readouterr().out.count("held-out (small)") == 2 + 7


def test_scores_of_all_generations_are_those_of_each(tmp_path: Path) -> None:
    run = made(tmp_path / "run", 3)
    together = lines_by_generation(run.directory)
    assert together == {generation: score_lines(run.directory, generation) for generation in (1, 2, 3)}
    assert [len(own) for own in together.values()] == [2, 2, 2]


def test_generations_that_can_be_redone_are_found_together_as_one_by_one(tmp_path: Path) -> None:
    run = made(tmp_path / "run", 6)
    for generation in range(7):
        folder = run.directory / "members" / STUDENT / f"g{generation:04d}"
        folder.mkdir(parents=True)
        (folder / (MOMENTS + PRUNED * (generation in (1, 4)))).touch()
    every = range(7)
    assert all_redoable(run, every) == [number for number in every if redoable(run, number)] == [0, 3, 6]


def test_an_interval_is_drawn_once_for_all_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page, the lines of a generation and the guard come back to every evaluation in each generation."""
    run = made(tmp_path / "run", 3)
    for generation in (1, 2, 3):
        rows = [
            item_row(generation, member) | {"item_id": f"p{number}", "correct": number < right}
            for member, right in ((STUDENT, 3), ("base", 90 + generation))
            for number in range(97)
        ]
        commit_stage(run.directory, generation, "evaluate", {"evaluation_items": rows})
    drawn = counted(monkeypatch, ids, "generator")

    def told() -> list[object]:
        page = write_report([run.directory], tmp_path / "report.html").read_text()
        return [page, falls(run.directory), generation_lines(run.directory, 3, 3), lines(run.directory)]

    before = told()
    assert len(drawn) > 3 and len(before[1]) == 2
    drawn.clear()
    assert told() == before
    assert drawn == []


def test_the_guard_draws_its_interval_as_one_that_keeps_none() -> None:
    rows = [{"benchmark": b, "score": n % 3 / 2, "base": n % 2} for b in ("a", "b") for n in range(9)]
    sides = ([[row[side] for row in rows[:9]], [row[side] for row in rows[9:]]] for side in ("score", "base"))
    drawn = paired_interval(*sides, ids.generator(4, "guard", "student"), CONFIDENCE)
    assert [standing("student", 4, rows).gap for _ in range(2)] == [drawn, drawn]


def test_scores_by_other_rules_or_draws_than_the_newest_make_no_course_with_it(tmp_path: Path) -> None:
    run = made(tmp_path / "run", 4)
    assert [item.generation for item in scored(run.directory)] == [1, 2, 3, 4]
    for generation in (3, 4):
        measure(run, generation, HELD_OUT, solved=11, rules="b")
    assert [item.generation for item in scored(run.directory)] == [3, 4]
    assert "after 1" not in " ".join(lines(run.directory))
    points = trend(run, HELD_OUT)
    assert [point.generation for point in points] == [3, 4]
    assert points[0].change is None
    (entry,) = HELD_OUT.benchmarks
    warm = (entry.model_copy(update={"temperature": 1.0}),)
    measure(run, 4, HELD_OUT.model_copy(update={"benchmarks": warm}), rules="b")
    assert [item.generation for item in scored(run.directory)] == [4]
    measure(run, 4, HELD_OUT.model_copy(update={"seed": 9}), rules="b")
    assert [item.generation for item in scored(run.directory)] == [3, 4], "another seed is no other rule"


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_scores_by_a_benchmark_whose_version_was_raised_begin_anew(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = load_suite(REPOSITORY / "configs" / "suites" / "tiny.toml").sampled(3)
    with Session(Run.open(copy_of())) as session:
        run = session.run
        for generation in (GENERATIONS - 1, GENERATIONS):
            evaluation_of(session, tiny, generation=generation).run()
        both = [GENERATIONS - 1, GENERATIONS]
        assert [point.generation for point in trend(run, tiny)] == both
        assert [item.generation for item in scored(run.directory)] == both
        monkeypatch.setattr(BundledBenchmark, "version", BundledBenchmark.first_keyed + 7)
        assert not evaluation_of(session, tiny).run().made.reused
    assert [(point.generation, point.change) for point in trend(run, tiny)] == [(GENERATIONS, None)]
    assert [item.generation for item in scored(run.directory)] == [GENERATIONS]


def test_a_generation_of_an_earlier_history_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "run", 4)
    assert earlier_history(run) == []
    again = generation_tables(2)["evolve"]
    again["population"] = [member_row(2, row["member_id"]) | {"mu": 31.0} for row in again["population"]]
    commit_stage(run.directory, 2, "evolve", again)
    publish(run.directory)
    (said,) = earlier_history(run)
    assert said.startswith("Generations 3 to 4 were not made of what lies there now: populora resume")
    assert said in headline(read_figures(run.directory))
    inspection.show_run(run)
    assert "Generations 3 to 4 were not made" in capsys.readouterr().out
    assert (
        "Generations 3 to 4 were not made"
        in write_report([run.directory], tmp_path / "page.html").read_text()
    )
    assert earlier_history(run, 2) == [] and earlier_history(run, 3) == [said]


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_an_exported_member_of_an_earlier_history_is_called_one(
    copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    run = drawn_again(copy_of())
    told = populora("export", run.directory, "best", "--to", tmp_path / "best")
    assert "Generations 1 to 3 were not made" in told.stdout, told.stderr
    before = populora("export", run.directory, "best", "--to", tmp_path / "first", "--generation", 0)
    assert before.returncode == 0 and "were not made" not in before.stdout


@pytest.mark.parametrize(
    ("share", "told"), [(0.011, "+1 point"), (-0.01, "−1 point"), (0.0, "0 points"), (0.11, "+11 points")]
)
def test_one_point_is_told_in_the_singular(share: float, told: str) -> None:
    assert in_points(share) == told
