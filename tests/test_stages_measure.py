"""evaluate:SUITE is a stage: made once, made again by name, looked into and told of like those of the loop."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import GENERATIONS, commits, contents

from populora_core.benchmarks.suite import Suite, load_suite
from populora_core.commands import inspection
from populora_core.lifecycle.loop import rerun
from populora_core.lifecycle.progress import evaluation_of, suite_for
from populora_core.lifecycle.run_evaluation import RunEvaluation, supersede_outdated
from populora_core.report.stage_summary import stage_summary
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.drift import drift
from populora_core.stages.engine import run_stage
from populora_core.stages.plan import plan_stage
from populora_core.stages.table import Stage
from populora_core.store.manifest import MANIFEST, read_manifest, stage_dir
from populora_core.support.errors import ConfigError, RunDirectoryError
from populora_core.support.shipped import REPOSITORY

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]

NAMES = ("evaluate:tiny-6", "evaluate:yardstick")


def suites(run: Run) -> list[Suite]:
    tiny = load_suite(REPOSITORY / "configs" / "suites" / "tiny.toml").sampled(6)
    return [tiny, suite_for(run, "yardstick", sample=4)]


@pytest.fixture(scope="module")
def scored(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with both kinds of scores; read it, never write to it."""
    directory = tmp_path_factory.mktemp("scored") / "run"
    shutil.copytree(finished, directory)
    with Session(Run.open(directory)) as session:
        for suite in suites(session.run):
            evaluation_of(session, suite).run()
    return directory


@pytest.fixture
def own(scored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(scored, tmp_path / "own"))


@pytest.mark.parametrize("name", NAMES)
def test_scores_that_are_made_again_come_out_as_they_were(own: Path, name: str) -> None:
    before, counts = contents(own), commits(own)
    with Session(Run.open(own)) as session:
        (result,) = rerun(session, GENERATIONS, name)
        assert result.reused
        assert (contents(own), commits(own)) == (before, counts)
        folder = stage_dir(own, GENERATIONS, result.stage)
        (folder / "evaluations.parquet").write_bytes(b"damaged")
        (result,) = rerun(session, GENERATIONS, name)
    assert not result.reused
    assert contents(own) == before
    assert result.manifest.extra["again"] == ["evaluations.parquet is missing or damaged"]
    assert stage_summary(own, GENERATIONS, result.stage).tables["scores"]


def test_another_seed_draws_scores_again_and_says_so(own: Path) -> None:
    with Session(Run.open(own)) as session:
        (result,) = rerun(session, GENERATIONS, NAMES[0], seed=77)
        with pytest.raises(ConfigError, match="no seed of its own"):
            rerun(session, GENERATIONS, NAMES[1], seed=77)
    assert result.manifest.seed == 77
    assert result.manifest.extra["again"][0].startswith("seed ")
    assert list((own / "superseded").glob("*/generations/*/evaluate-tiny-6"))


def test_scores_that_were_never_made_are_not_made_again(own: Path) -> None:
    with Session(Run.open(own)) as session, pytest.raises(RunDirectoryError, match="never made") as caught:
        rerun(session, GENERATIONS, "evaluate:frontier")
    assert caught.value.expected == " or ".join(NAMES)


def test_a_kind_of_stage_that_nothing_makes_is_refused_with_those_that_something_does(own: Path) -> None:
    with Session(Run.open(own)) as session, pytest.raises(RunDirectoryError, match="'guess' is no") as caught:
        rerun(session, GENERATIONS, "guess:tiny")
    assert str(caught.value.expected).startswith("one of assemble, evaluate;")


@pytest.mark.parametrize("dataset", ["file:/etc/hostname", "bundled:../../../pyproject.toml"])
def test_scores_of_a_run_that_somebody_sent_read_no_file_that_the_user_has_not_named(
    own: Path, dataset: str
) -> None:
    folder = stage_dir(own, GENERATIONS, "evaluate-tiny-6")
    manifest = read_manifest(folder)
    assert manifest is not None
    told = manifest.config["suite"]
    told["benchmarks"][0]["dataset"] = dataset
    (folder / MANIFEST).write_text(replace(manifest, config={"suite": told}).to_json())
    with Session(Run.open(own)) as session, pytest.raises(ConfigError, match="not named yourself"):
        rerun(session, GENERATIONS, NAMES[0])


def test_a_generation_shows_its_scores_beside_its_stages(
    scored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inspection.show_generation(Run.open(scored), GENERATIONS)
    shown = capsys.readouterr().out
    assert all(name.replace(":", "-", 1) in shown for name in NAMES)
    inspection.show_stage(Run.open(scored), GENERATIONS, NAMES[1])
    assert json.loads(capsys.readouterr().out)["stage"] == "evaluate-yardstick"


def test_scores_of_a_suite_that_changed_name_what_did(own: Path) -> None:
    with Session(Run.open(own)) as session:
        suite = suites(session.run)[0]
        asked = RunEvaluation(session, suite.model_copy(update={"validation": 0.25}), "solvers")
        moved = drift(session.run, plan_stage(session, asked.generation, asked.stage))
    assert moved is not None
    assert moved[0] == "members all → solvers"
    assert "suite.validation 0.5 → 0.25" in moved
    assert any(phrase.startswith("problems ") for phrase in moved)


def old(directory: Path, **changed: object) -> Path:
    """The scores on the small suite as they were committed before they were a stage."""
    folder = stage_dir(directory, GENERATIONS, "evaluate-tiny-6")
    manifest = read_manifest(folder)
    population = read_manifest(stage_dir(directory, GENERATIONS, "evolve"))
    assert manifest is not None and population is not None
    extra = {name: manifest.extra[name] for name in ("members", "sandbox")}
    before = replace(
        manifest,
        key="0" * 64,
        config={"suite": manifest.config["suite"]},
        inputs={"population": population.contents["population.parquet"]},
        extra=extra,
    )
    (folder / MANIFEST).write_text(replace(before, **changed).to_json())  # type: ignore[arg-type]
    return folder


def test_scores_from_before_they_were_stages_are_taken_as_they_are(own: Path) -> None:
    old(own)
    with Session(Run.open(own)) as session:
        assert evaluation_of(session, suites(session.run)[0]).run().made.reused
        suite = suites(session.run)[0]
        assert not evaluation_of(session, suite, "solvers").is_done, "of other members"
        assert not evaluation_of(session, suite, base=False).is_done, "the base answered, too"
    assert supersede_outdated(Run.open(own), GENERATIONS) == []


def test_such_scores_of_other_members_are_set_aside(own: Path) -> None:
    folder = old(own, inputs={"population": "1" * 64})
    with Session(Run.open(own)) as session:
        assert not evaluation_of(session, suites(session.run)[0]).is_done
    (aside,) = supersede_outdated(Run.open(own), GENERATIONS)
    assert aside.name == folder.name and not folder.exists()


def test_a_stage_of_a_package_needs_no_population_and_no_sentence(own: Path) -> None:
    mine = Stage("mine-tiny", 1, needs={}, gives=(), config=(), own={"of": "mine"}, code=lambda ctx: None)
    with Session(Run.open(own)) as session:
        made = [run_stage(session, GENERATIONS, mine) for _ in range(2)]
        assert [each.reused for each in made] == [False, True]
        assert supersede_outdated(session.run, GENERATIONS) == []
        changed = replace(mine, own={"of": "another"})
        assert not run_stage(session, GENERATIONS, changed).reused
    assert stage_summary(own, GENERATIONS, mine.name).headline == "mine:tiny is made"
