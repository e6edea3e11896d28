"""What a stage shows: every stage of a run has a headline and tables, and they say what the files say."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from conftest import small_config, start
from store_run import write_run
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.report.stage_summary import StageSummary, stage_summary
from populora_core.report.write import REPORT
from populora_core.sampler.proof import MemberProof, ProofResult
from populora_core.stages.table import stages_of
from populora_core.store.artifacts import read_table
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.errors import ArtifactError

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]
CHANGE = "change since last generation"


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_every_stage_has_a_headline_and_tables_of_equal_columns(finished: Path, generation: int) -> None:
    for stage in stages_of(generation):
        summary = stage_summary(finished, generation, stage.name)
        assert summary.headline
        for rows in summary.tables.values():
            assert rows and all(list(row) == list(rows[0]) for row in rows)


def test_verdict_counts_are_those_of_the_file_and_shares_add_up(finished: Path) -> None:
    checks = read_table(stage_dir(finished, 2, "verify"), "proposal_checks").to_pylist()
    rows = stage_summary(finished, 2, "verify").tables["verdicts"]
    assert {row["verdict"]: row["proposals"] for row in rows} == {
        verdict: sum(check["verdict"] == verdict for check in checks)
        for verdict in {check["verdict"] for check in checks}
    }
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)


def test_movement_is_from_the_generation_before_and_unknown_in_the_first(finished: Path) -> None:
    past = {row["verdict"]: row["share"] for row in stage_summary(finished, 1, "grade").tables["verdicts"]}
    for row in stage_summary(finished, 2, "grade").tables["verdicts"]:
        assert row[CHANGE] == pytest.approx(row["share"] - past.get(row["verdict"], 0.0))
    assert {row[CHANGE] for row in stage_summary(finished, 1, "grade").tables["verdicts"]} == {None}


def test_a_childs_rating_has_no_past_and_a_survivors_has(finished: Path) -> None:
    summary = stage_summary(finished, 2, "evolve")
    born = {row["child"] for row in summary.tables["replaced"]}
    assert born
    for row in summary.tables["population"]:
        assert (row[CHANGE] is None) == (row["member"] in born)


def test_a_score_tells_its_metric_and_temperature(written: Path) -> None:
    (row,) = stage_summary(written, 1, "evaluate").tables["scores"]
    assert (row["metric"], row["temperature"]) == ("pass@1", 0.0)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A written run; read it, never write to it."""
    return write_run(tmp_path_factory.mktemp("summaries") / "run", generations=2)


def summaries(directory: Path) -> dict[tuple[int, str], StageSummary]:
    """Every stage's summary of the written run."""
    return {
        (generation, stage.name): stage_summary(directory, generation, stage.name)
        for generation in (0, 1, 2)
        for stage in stages_of(generation)
    }


def test_a_summary_says_what_the_files_say_whatever_the_run_directory_is_called(
    written: Path, tmp_path: Path
) -> None:
    named = tmp_path / "it's a [b] star*" / "generation=9"
    shutil.copytree(written, named)
    assert summaries(named) == summaries(written)


def test_what_the_tokens_told_of_the_sampler_is_printed(written: Path, tmp_path: Path) -> None:
    """As in bfloat16, where a sampler of another engine is told from the learner by many tokens alone."""
    directory = start(tmp_path / "run", small_config()).directory
    shutil.copytree(written, directory, dirs_exist_ok=True)
    file = stage_dir(directory, 2, "update") / "manifest.json"
    manifest = json.loads(file.read_text())
    found = {
        "student-00-g0000": MemberProof(ProofResult.APART, 512, 0.01, 0.05, 0.2),
        "teacher-00-g0000": MemberProof(ProofResult.NOT_YET, 96, 0.02, 0.06, 0.3, ("the bare base",)),
    }
    manifest["extra"]["proof"] = {member: asdict(told) for member, told in found.items()}
    file.write_text(json.dumps(manifest))
    student, teacher = stage_summary(directory, 2, "update").tables["whether the sampler serves them"]
    assert (student["member"], student["sampler"]) == ("student-00-g0000", "told apart")
    assert (teacher["sampler"], teacher["tokens compared"]) == ("cannot tell yet", 96)
    assert teacher["cannot be told from"] == "the bare base"
    shown = CliRunner().invoke(app, ["inspect", str(directory), "--generation", "2"])
    assert shown.exit_code == 0, shown.output
    for said in ("told apart", "cannot tell yet", "the bare base"):
        assert said in shown.output
    manifest["extra"]["proof"] = {"teacher-00-g0000": {"told": 5}}
    file.write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match="update of generation 2 cannot be summarised"):
        stage_summary(directory, 2, "update")


@pytest.mark.parametrize("left", [None, b"PAR1"])
def test_a_stage_with_a_missing_or_damaged_file_is_named(tmp_path: Path, left: bytes | None) -> None:
    directory = write_run(tmp_path, generations=1)
    file = stage_dir(directory, 1, "match") / "matches.parquet"
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    with pytest.raises(ArtifactError, match="match of generation 1 cannot be summarised"):
        stage_summary(directory, 1, "match")


def test_a_generations_time_counts_the_moments_between_its_stages(finished: Path) -> None:
    manifests = [read_manifest(stage_dir(finished, 2, stage.name)) for stage in stages_of(2)]
    within = sum(each.seconds for each in manifests if each)
    between = sum(each.extra["seconds_before"] for each in manifests if each)
    with Catalogue(finished) as catalogue:
        (took,) = catalogue.rows("SELECT seconds, wall_seconds FROM figures_generation WHERE generation = 2")
    assert between > 0
    assert took == pytest.approx({"seconds": within, "wall_seconds": within + between})
    assert "between stages" in (finished / REPORT).read_text()
