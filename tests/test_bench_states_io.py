"""What a generation hashes and writes of its members: at most three times their states and two of their adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.states_io import SETTINGS, count
from populora_core.config.load import build_config


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_generation_hashes_and_writes_members_seldom_enough(tmp_path: Path) -> None:
    rows = {row.name: row for row in count(build_config(SETTINGS, "the test"), tmp_path / "run")}
    for generation in (1, 2):
        assert rows[f"g{generation}.share_of_three_states_and_two_adapters"].meets_goal
        assert rows[f"g{generation}.written"].value > 0.9, "every member was written"
