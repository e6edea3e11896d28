"""The benchmark of whole generations gives the rows that its readers rely on."""

from __future__ import annotations

import pytest

from bench import pipeline
from populora_core.stages.table import STAGE_NAMES


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_population_is_set_against_a_pair_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "PER_TYPE", 2)
    rows = {row.name: row for row in pipeline.overhead(samples=1, say=lambda text: None)}
    assert list(rows) == ["overhead_4x4_over_1x1", *(f"overhead.{name}" for name in STAGE_NAMES)]
    assert all(row.value > 0.0 for row in rows.values())
    assert rows["overhead_4x4_over_1x1"].goal == "<= 1.08"


def test_help_is_timed_against_its_goal() -> None:
    (row,) = pipeline.start_up(samples=2)
    assert (row.name, row.unit, row.goal) == ("help_seconds", "s", "<= 0.5")
    assert row.value > 0.0


@pytest.mark.loop
@pytest.mark.sandbox
@pytest.mark.slow
def test_a_flow_is_set_against_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "DEMO_GENERATIONS", 1)
    rows = {row.name: row for row in pipeline.orchestration(samples=2, say=lambda text: None)}
    assert list(rows) == ["prefect_seconds_per_generation", "prefect_share"]
    assert rows["prefect_seconds_per_generation"].value > 0.0
    assert rows["prefect_seconds_per_generation"].goal == "<= 3"
    assert 0.0 < rows["prefect_share"].value < 1.0
