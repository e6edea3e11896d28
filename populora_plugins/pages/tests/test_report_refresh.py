"""Reports as files: written into their run and brought up to date, and one that fails never harms the run."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import pytest
from conftest import GENERATIONS, small_config, start
from store_run import write_run
from test_cli import populora

from populora_core.lifecycle.loop import train
from populora_core.report.figures import read_figures
from populora_core.report.write import PAGES, REPORT, ReportWarning, refresh, write_report
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.store.catalogue import CATALOGUE
from populora_core.support.errors import ArtifactError, RunDirectoryError


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A run directory with rows of two generations that no stage has made."""
    Run.create(tmp_path / "run", small_config(), "digest")
    return write_run(tmp_path / "run")


def test_a_report_that_cannot_be_written_leaves_the_old_one(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    old = write_report([written], tmp_path / "report.html")
    old.write_text("the old one")
    with (
        monkeypatch.context() as patch,
        pytest.raises(ArtifactError, match="could not be written") as refusal,
    ):
        patch.setattr(os, "fsync", full)
        write_report([written], old)
    assert str(old) in refusal.value.problem
    assert old.read_text() == "the old one"
    with pytest.raises(ArtifactError, match="could not be written"):
        write_report([written], tmp_path / "no" / "such" / "folder.html")
    with pytest.raises(RunDirectoryError):
        write_report([tmp_path / "nothing"], tmp_path / "out.html")


@pytest.mark.thorough
def test_the_command_writes_into_the_run_and_compares_several(written: Path, tmp_path: Path) -> None:
    assert populora("report", written).returncode == 0
    assert (written / REPORT).is_file()
    shutil.copytree(written, tmp_path / "other")
    done = populora("report", written, tmp_path / "other", "--output", tmp_path / "both.html")
    assert str(tmp_path / "both.html") in done.stdout
    assert "2 runs compared" in (tmp_path / "both.html").read_text()
    refused = populora("report", tmp_path / "nothing")
    assert refused.returncode == 2 and "is not a run directory" in refused.stderr


def test_a_refresh_that_fails_is_a_warning_with_its_cause(written: Path) -> None:
    refresh(written)
    before = (written / REPORT).read_text()
    (problem,) = (written / "generations" / "0002" / "verify").glob("problems.parquet")
    problem.write_bytes(b"x" * problem.stat().st_size)
    (written / CATALOGUE).unlink()
    with pytest.warns(ReportWarning, match=r"report\.html was not brought up to date: \w+: .*"):
        refresh(written)
    assert (written / REPORT).read_text() == before


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_run_goes_on_without_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("in a plot")

    monkeypatch.setitem(PAGES.made, "report", broken)
    run = start(tmp_path / "run", small_config(propose={"per_type": 2}))
    with Session(run) as session, pytest.warns(ReportWarning, match="ZeroDivisionError: in a plot"):
        train(session, 1)
    assert read_figures(tmp_path / "run").last == 1


def test_a_run_keeps_its_report_up_to_date(finished: Path) -> None:
    html = (finished / REPORT).read_text()
    assert f"All {GENERATIONS} generations are done." in html


@pytest.mark.thorough
def test_a_refresh_costs_little(finished: Path, tmp_path: Path) -> None:
    """Well under a second of CPU; the bound is loose, since a busy machine shares its caches."""
    shutil.copytree(finished, tmp_path / "run")
    refresh(tmp_path / "run")  # imports and templates

    def spent() -> float:
        started = time.process_time()
        refresh(tmp_path / "run")
        return time.process_time() - started

    assert any(spent() < 3.0 for _ in range(3))
