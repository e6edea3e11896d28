"""Evaluating a run: the same table every time, killed or not; external fitness that selects."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command import populora
from conftest import PATIENCE, contents, small_config, start

from populora_core.benchmarks.bundled import BundledBenchmark
from populora_core.benchmarks.items import suite_items
from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Part, Suite, load_suite
from populora_core.lifecycle.loop import fork, rerun, train
from populora_core.lifecycle.progress import is_current
from populora_core.lifecycle.run_evaluation import RunEvaluation, overlap
from populora_core.problems.dialects.compact import CompactDialect
from populora_core.runs.preflight import load_runnable
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.decisive import decisive
from populora_core.stages.evaluate import learnable_shares
from populora_core.stages.following import newest_generation
from populora_core.stages.plan import deciding, key_of, plan_stage
from populora_core.stages.table import LOOP
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import stage_dir
from populora_core.support.errors import ArtifactError, ConfigError, RunDirectoryError
from populora_core.support.shipped import REPOSITORY

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]

FILE = REPOSITORY / "configs" / "suites" / "tiny.toml"

# Held-out problems in plenty make a slow test: most go to the half that is not asked.
SMALL_SUITE = FILE.read_text().replace("validation = 0.5", "validation = 0.97")

# Evaluates, and dies by SIGKILL as soon as so many blocks are answered.
KILLED = """
import os, signal, sys
from pathlib import Path
from populora_core.compute.shards import Shards
from populora_core.stages import evaluation
from populora_core.lifecycle.run_evaluation import RunEvaluation
from populora_core.benchmarks.suite import load_suite
from populora_core.runs.run import Run
from populora_core.runs.session import Session

evaluation.BLOCK_COMPLETIONS = 60
answer, left = Shards.map, [int(sys.argv[3])]

def answer_and_die(shards, *given):  # the answers to a block are finished, and not judged yet
    done = answer(shards, *given)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

Shards.map = answer_and_die
with Session(Run.open(sys.argv[1])) as session:
    RunEvaluation(session, load_suite(sys.argv[2])).run()
"""


@pytest.fixture(scope="module")
def suite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("suite") / "small.toml"
    path.write_text(SMALL_SUITE)
    return path


def evaluate(directory: Path, suite: Suite) -> list[dict]:
    with Session(Run.open(directory)) as session:
        return RunEvaluation(session, suite).run().rows


@pytest.fixture(scope="module")
def evaluated(
    finished: Path, suite_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict]]:
    """A finished run that was evaluated in several shards, and the scores; read it, never write to it."""
    directory = tmp_path_factory.mktemp("evaluated") / "run"
    shutil.copytree(finished, directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("populora_core.stages.evaluation.BLOCK_COMPLETIONS", 60)
        return directory, evaluate(directory, load_suite(suite_file))


@pytest.fixture
def copy_of_evaluated(evaluated: tuple[Path, list[dict]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(evaluated[0], tmp_path / "evaluated"))


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_table_though_killed_at_every_shard(
    evaluated: tuple[Path, list[dict]],
    copy_of_evaluated: Path,
    suite_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("populora_core.stages.evaluation.BLOCK_COMPLETIONS", 60)
    directory, suite, first = copy_of_evaluated, load_suite(suite_file), evaluated[1]
    folder = stage_dir(directory, newest_generation(Run.open(directory)), "evaluate-tiny")
    content = {name: value for name, value in contents(directory).items() if "evaluate-tiny/evaluat" in name}
    assert len(content) == 2

    with Session(Run.open(directory)) as session:
        again = RunEvaluation(session, suite).run()
        assert again.made.reused
        assert again.rows == first

    shutil.rmtree(folder)
    finished = folder.parent / ".shards-evaluate-tiny"
    for blocks in (1, 2):
        command = [sys.executable, "-c", KILLED, str(directory), str(suite_file), str(blocks)]
        ended = subprocess.run(command, cwd=REPOSITORY, timeout=PATIENCE)
        assert ended.returncode == -signal.SIGKILL
        answered = list(finished.glob("shards/*.json"))
        assert len(answered) == 2 * blocks, "what two workers have answered outlives the kill"
    damaged = max(finished.glob("objects/**/*"), key=lambda path: path.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)

    assert evaluate(directory, suite) == first
    assert {n: v for n, v in contents(directory).items() if "evaluate-tiny/evaluat" in n} == content
    assert not finished.exists()


def test_every_member_stands_beside_the_base_model_and_every_score_opens_to_its_answers(
    evaluated: tuple[Path, list[dict]], suite_file: Path
) -> None:
    (directory, rows), suite = evaluated, load_suite(suite_file)
    problems = {e.benchmark: {i.item_id for i in items} for e, items in suite_items(suite, Part.TEST)}
    with Catalogue(directory) as catalogue:
        living = [
            row["member_id"]
            for row in catalogue.rows("SELECT member_id FROM members WHERE died_generation IS NULL")
        ]
        assert {row["member_id"] for row in rows} == {*living, BASE}
        recomputed = catalogue.rows(
            "SELECT member_id, benchmark, count(*) AS n, sum(correct::INT) AS n_correct, avg(correct::DOUBLE) AS score "
            "FROM evaluation_items GROUP BY ALL"
        )
        asked = catalogue.rows("SELECT DISTINCT benchmark, item_id, part FROM evaluation_items")
        stored = catalogue.rows("SELECT * FROM evaluations WHERE benchmark <> 'all'")
    assert {(row["benchmark"], row["item_id"]) for row in asked} == {
        (name, item) for name, items in problems.items() for item in items
    }
    assert {row["part"] for row in asked} == {"test"}
    for column in ("n", "n_correct", "score"):
        told, found = (
            {(row["member_id"], row["benchmark"]): float(row[column]) for row in table}
            for table in (stored, recomputed)
        )
        assert told == pytest.approx(found)
    for row in rows:
        assert row["low"] <= row["score"] <= row["high"]
        assert (row["delta"] is None) == (row["member_id"] == BASE)
    assert any(row["n_correct"] for row in rows), "the base solves some of it"


def test_a_newborn_population_scores_exactly_as_its_base(
    finished: Path, tmp_path: Path, suite_file: Path
) -> None:
    forked = fork(Run.open(finished), 0, tmp_path / "founders", Run.open(finished).config)
    rows = evaluate(forked.directory, load_suite(suite_file))
    base = {row["benchmark"]: row["n_correct"] for row in rows if row["member_id"] == BASE}
    assert all(row["n_correct"] == base[row["benchmark"]] for row in rows)
    assert {row["delta"] for row in rows} == {0.0, None}


def test_texts_that_end_an_answer_decide_an_evaluation(
    evaluated: tuple[Path, list[dict]], suite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(Run.open(evaluated[0])) as session:

        def key() -> str:
            asked = RunEvaluation(session, load_suite(suite_file))
            return plan_stage(session, asked.generation, asked.stage).key

        before = key()
        monkeypatch.setattr(CompactDialect, "stop", ("\n\n",))
        again = key()
        assert again != before
        monkeypatch.setattr(CompactDialect, "stop", ())
        monkeypatch.setattr(CompactDialect, "stops", lambda spoken, prompt: ("\n\n",), raising=False)
        assert key() == again
        monkeypatch.setattr(BundledBenchmark, "by_dialect", False)
        assert key() == before
        monkeypatch.setattr(BundledBenchmark, "ends", lambda known, family: ("\n\n",), raising=False)
        assert key() == again


def test_a_benchmark_ends_its_answers_by_texts_of_its_own(
    copy_of: Callable[[], Path], suite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copy_of()
    monkeypatch.setattr(BundledBenchmark, "by_dialect", False)
    monkeypatch.setattr(BundledBenchmark, "ends", lambda known, family: ("=",), raising=False)
    evaluate(directory, load_suite(suite_file))
    with Catalogue(directory) as catalogue:
        found = catalogue.rows("SELECT completion FROM evaluation_items WHERE contains(completion, '=')")
    assert found and all(row["completion"].find("=") == len(row["completion"]) - 1 for row in found)


@pytest.mark.parametrize(("every", "moved"), [(2, {"evaluate"}), (0, set())])
def test_in_the_loop_they_decide_the_stage_that_evaluates_and_no_other(
    every: int, moved: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(start(tmp_path / "run", small_config(evaluate={"every": every}))) as session:

        def keys() -> dict[str, str]:
            return {stage.name: key_of(deciding(session, stage, 0, {})) for stage in LOOP}

        before = keys()
        monkeypatch.setattr(CompactDialect, "stop", ("\n\n",))
        after = keys()
    assert {name for name in before if before[name] != after[name]} == moved


def test_members_are_chosen_by_play_or_by_name(copy_of: Callable[[], Path], suite_file: Path) -> None:
    directory, suite = copy_of(), load_suite(suite_file)
    with Session(Run.open(directory)) as session:
        best = RunEvaluation(session, suite, "best").exam.players
        assert [player.member_id.partition("-")[0] for player in best] == ["student", "teacher", BASE]
        one = RunEvaluation(session, suite, best[0].member_id).exam.players
        assert [player.member_id for player in one] == [best[0].member_id, BASE]
        with pytest.raises(RunDirectoryError, match="student-77-g0000 does not live in generation 3"):
            RunEvaluation(session, suite, "student-77-g0000")
        with pytest.raises(RunDirectoryError, match="no complete generation 9"):
            RunEvaluation(session, suite, "all", 9)


def test_an_evaluation_of_all_stands_for_the_best_and_never_the_other_way_round(
    copy_of_evaluated: Path, suite_file: Path
) -> None:
    suite = load_suite(suite_file)
    with Session(Run.open(copy_of_evaluated)) as session:
        assert is_current(session, suite) and is_current(session, suite, "best")
        RunEvaluation(session, suite, "best").run()
        assert is_current(session, suite, "best")
        assert not is_current(session, suite), "the others are yet to be measured"


@pytest.mark.thorough
def test_an_evaluation_of_members_that_were_redrawn_is_set_aside(
    copy_of_evaluated: Path, suite_file: Path
) -> None:
    directory, suite = copy_of_evaluated, load_suite(suite_file)
    folder = stage_dir(directory, 3, "evaluate-tiny")
    assert folder.exists()
    with Session(Run.open(directory)) as session:
        rerun(session, 3, "solve", seed=99)
    assert not folder.exists()
    assert list((directory / "superseded").glob("*/generations/0003/evaluate-tiny"))
    assert overlap(Run.open(directory), suite_items(suite, Part.TEST), 3).documents > 0


@pytest.mark.thorough
def test_the_loop_selects_by_external_fitness_from_the_half_that_is_not_reported(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(FILE.read_text().replace("validation = 0.5", "validation = 0.08"))
    config = small_config(
        run={"generations": 2},
        evolve={"fitness": "external"},
        evaluate={"every": 2, "suite": str(path), "window": 2},
    )
    directory = tmp_path / "run"
    with Session(start(directory, config)) as session:
        train(session, 2)
    with Catalogue(directory) as catalogue:
        ratings = catalogue.rows("SELECT * FROM ratings ORDER BY ALL")
        scores = catalogue.rows("SELECT * FROM evaluations WHERE benchmark = 'all'")
        asked = catalogue.rows("SELECT DISTINCT item_id, part FROM evaluation_items")
        learnable = catalogue.rows(
            "SELECT teacher_id, avg((solve_rate > 0 AND solve_rate < 1)::DOUBLE) AS share FROM problems GROUP BY 1"
        )
        gone = catalogue.rows("SELECT removed_id, role, removed_fitness FROM evolutions")
        (drawn,) = catalogue.rows("SELECT sum(completion_tokens)::BIGINT AS tokens FROM evaluation_items")
        told = catalogue.rows(
            "SELECT round(tokens_per_second * seconds)::BIGINT AS tokens FROM stages "
            "WHERE stage = 'evaluate' AND generation = 2"
        )
    assert told == [drawn], "throughput counts what an evaluation drew"
    assert all(row["external_fitness"] is None for row in ratings if row["generation"] == 1)
    external = {row["member_id"]: row["external_fitness"] for row in ratings if row["generation"] == 2}
    expected = {row["member_id"]: row["score"] for row in scores}
    expected |= {row["teacher_id"]: row["share"] for row in learnable}
    assert external == pytest.approx(expected)
    reported = {i.item_id for _, items in suite_items(load_suite(path), Part.TEST) for i in items}
    assert {row["part"] for row in asked} == {"validation"}
    assert not reported & {row["item_id"] for row in asked}
    assert {row["role"] for row in gone} == {"student", "teacher"}
    eligible = {row["member_id"] for row in ratings if row["generation"] == 2 and row["eligible"]}
    for row in gone:
        rivals = [v for m, v in external.items() if m.startswith(row["role"]) and m in eligible]
        assert row["removed_fitness"] == external[row["removed_id"]]
        if row["removed_id"] in eligible:
            assert row["removed_fitness"] == min(rivals)


@pytest.mark.parametrize(("problems", "share"), [([], 0.0), ([0.0, 0.5], 0.5), ([None, 0.5], 1.0)])
def test_a_teacher_is_measured_by_its_judged_problems(problems: list[float | None], share: float) -> None:
    assert learnable_shares(*played(problems)) == {"teacher": share}


def test_a_teacher_whose_problems_infrastructure_failed_for_is_not_taken_for_a_bad_one() -> None:
    with pytest.raises(ArtifactError, match=r"(?s)teacher has no external fitness.*infrastructure.*rerun"):
        learnable_shares(*played([None, None]))


def played(solve_rates: list[float | None]) -> tuple[Any, list[Any]]:
    """What the stage sees of a teacher with problems of these solve rates."""
    names = [f"problem-{n}" for n in range(len(solve_rates))]
    tables = {
        "problems": [{"problem_id": name, "generation": 2, "teacher_id": "teacher"} for name in names],
        "problem_results": [
            {"problem_id": name, "solve_rate": rate} for name, rate in zip(names, solve_rates, strict=True)
        ],
    }
    stage = SimpleNamespace(generation=2, config=small_config(), rows=lambda name, *columns: tables[name])
    return stage, [SimpleNamespace(member_id="teacher")]


def test_the_loop_measures_again_by_a_benchmark_whose_version_was_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = small_config(evaluate={"every": 2})
    before = decisive(config, ("evaluate",))["evaluate"]
    monkeypatch.setattr(BundledBenchmark, "version", BundledBenchmark.first_keyed)
    names = [entry.benchmark for entry in load_suite(config.evaluate.file()).benchmarks]
    versions = dict.fromkeys(names, BundledBenchmark.first_keyed)
    assert decisive(config, ("evaluate",))["evaluate"] == before | {"versions": versions}


def test_a_loop_whose_suite_holds_nothing_back_is_refused(tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(FILE.read_text().replace("validation = 0.5", "validation = 0.0"))
    config = tmp_path / "run.toml"
    config.write_text(f"[evaluate]\nevery = 2\nsuite = '{tmp_path / 'suite.toml'}'\n")
    with pytest.raises(ConfigError, match="holds no problem of tiny_code_o back for validation"):
        load_runnable(config)
    config.write_text(config.read_text().replace("every = 2", "report_every = 2"))
    load_runnable(config)  # scores alone are of the other half


@pytest.mark.thorough
def test_the_command_prints_cost_scores_and_where_the_answers_are(
    copy_of: Callable[[], Path], suite_file: Path
) -> None:
    words = ("evaluate", copy_of(), "--suite", suite_file, "--members", "best")
    done = [populora(*words, COLUMNS="100") for _ in range(2)]
    assert [run.returncode for run in done] == [0, 0], done[0].stderr
    assert re.search(
        r"17 problems, 3 players, 51 completions of together at most [\d,]+ tokens", done[0].stdout
    )
    for part in ("95 % interval", "minus base", "base ", "contamination:", "evaluation_items"):
        assert part in done[0].stdout
    tables = [run.stdout[run.stdout.index("suite tiny, test half, after") :] for run in done]
    assert tables[0] == tables[1]
