"""Figures that a stage records beside its tables: seen by people and trackers, and part of nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import ask, small_config, start
from store_run import commit_stage, generation_tables, write_run
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.report.figures import read_figures
from populora_core.report.scalars import by_generation
from populora_core.report.stage_summary import stage_summary
from populora_core.runs.session import Session
from populora_core.stages import found
from populora_core.stages.context import StageContext
from populora_core.stages.engine import run_stage
from populora_core.stages.table import FOUND
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.errors import ArtifactError

RECORDED = {"mean_depth": 3.5, "pairs2": 2.0}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A written run whose `match` of generation 2 recorded two figures; read it, never write to it."""
    directory = start(tmp_path_factory.mktemp("recorded") / "run", small_config()).directory
    write_run(directory)
    shutil.rmtree(stage_dir(directory, 2, "match"))
    commit_stage(directory, 2, "match", generation_tables(2)["match"], {"metrics": RECORDED})
    return directory


@pytest.mark.loop
def test_a_figure_is_in_the_manifest_and_in_no_key_or_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = found.run

    def recording(ctx: StageContext) -> None:
        plain(ctx)
        ctx.record_metric("mean_depth", 3.0)
        ctx.record_metric("mean_depth", np.float32(3.5))
        ctx.record_metric("pairs2", 2)

    with Session(start(tmp_path / "run", small_config())) as session:
        monkeypatch.setattr(found, "run", recording)
        made = run_stage(session, 0, FOUND)
        monkeypatch.setattr(found, "run", plain)
        again = run_stage(session, 0, FOUND, force=True)
    assert made.manifest.extra["metrics"] == RECORDED
    assert again.reused, "it came out as it was: the same key, the same contents"
    assert read_manifest(stage_dir(tmp_path / "run", 0, "found")) == made.manifest


@pytest.mark.loop
def test_a_figure_without_a_plain_name_or_a_finite_value_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfit = [(name, 1.0) for name in ("", "Depth", "mean depth", "a/b", "2nd", "end\n", "a" * 61)]
    unfit += [("depth", value) for value in (float("nan"), float("inf"), None, "3")]

    def recording(ctx: StageContext) -> None:
        for name, value in unfit:
            with pytest.raises(ArtifactError, match="found cannot record the figure"):
                ctx.record_metric(name, value)
        assert "metrics" not in ctx.extra
        raise ArtifactError("all were refused")

    monkeypatch.setattr(found, "run", recording)
    session = Session(start(tmp_path / "run", small_config()))
    with session, pytest.raises(ArtifactError, match="all were refused"):
        run_stage(session, 0, FOUND)


def test_the_stages_summary_shows_its_figures(recorded: Path) -> None:
    rows = stage_summary(recorded, 2, "match").tables["recorded"]
    assert {row["figure"]: row["value"] for row in rows} == RECORDED
    assert "recorded" not in stage_summary(recorded, 1, "match").tables


def test_inspect_shows_them_by_stage(recorded: Path) -> None:
    shown = CliRunner().invoke(app, ["inspect", str(recorded), "--generation", "2"])
    assert shown.exit_code == 0, shown.output
    assert "mean_depth" in shown.output and "3.5" in shown.output
    assert "mean_depth" not in CliRunner().invoke(app, ["inspect", str(recorded), "--generation", "1"]).output


def test_trackers_are_given_them_by_stage(recorded: Path) -> None:
    told = by_generation(read_figures(recorded, samples=False))
    assert told[2]["recorded/match/mean_depth"] == 3.5 and told[2]["recorded/match/pairs2"] == 2.0
    assert not any(name.startswith("recorded/") for name in told[1])


def test_they_can_be_queried(recorded: Path) -> None:
    rows = ask(recorded, "SELECT name, value FROM tables.metrics WHERE generation = 2 AND stage = 'match'")
    assert {row["name"]: row["value"] for row in rows} == RECORDED
