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
