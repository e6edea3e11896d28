"""The benchmark of whole generations gives the rows that its readers rely on."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from bench import pipeline
from populora_core.stages.table import LOOP


@pytest.fixture
def small_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo with little to do, in this process, each generation measured."""
    path = tmp_path / "demo.toml"
    path.write_text(
        f'extends = "{pipeline.DEMO}"\n[propose]\nper_type = 2\n[solve]\nattempts = 4\n'
        '[compute]\nbackend = "inline"\nshards = 1\n'
    )
    monkeypatch.setattr(pipeline, "DEMO", path)
    monkeypatch.setattr(pipeline, "DEMO_GENERATIONS", 1)
    monkeypatch.setattr(pipeline, "PER_TYPE", 2)
    monkeypatch.setattr(pipeline, "WARM_UP", 0)


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
@pytest.mark.usefixtures("small_demo")
def test_a_population_is_set_against_a_pair_by_stage() -> None:
    rows = {row.name: row for row in pipeline.overhead(samples=1, say=lambda text: None)}
    assert list(rows) == ["overhead_4x4_over_1x1", *(f"overhead.{stage.name}" for stage in LOOP)]
    assert all(row.value > 0.0 for row in rows.values())
    assert rows["overhead_4x4_over_1x1"].goal == "<= 1.08"


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_the_start_is_timed_to_the_help_and_to_the_first_generation() -> None:
    shown, started = pipeline.start_up(samples=1)
    assert (shown.name, shown.unit, shown.goal) == ("help_seconds", "s", "<= 0.5")
    assert (started.name, started.unit) == ("start_cpu_seconds", "s")
    assert min(shown.value, started.value) > 0.0


@pytest.mark.foreign
@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
@pytest.mark.usefixtures("small_demo")
def test_a_flow_is_set_against_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(work: partial) -> float:
        """Really works, and takes as long on every machine."""
        work()
        return 1.0 if work.func is pipeline.run_generation else 3.0

    monkeypatch.setattr(pipeline, "wall_seconds", timed)
    rows = {row.name: row for row in pipeline.orchestration(samples=1, say=lambda text: None)}
    assert list(rows) == ["prefect_seconds_per_generation", "prefect_share"]
    assert rows["prefect_seconds_per_generation"].value == 2.0
    assert rows["prefect_seconds_per_generation"].goal == "<= 1"
    assert rows["prefect_share"].value == pytest.approx(2.0 / 3.0)
