"""What a generation hashes and writes of its members: at most three times their states and two of their adapters."""

from __future__ import annotations

from pathlib import Path

import pytest
from states_io import SETTINGS, count

from populora_core.config.load import build_config


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_generation_hashes_and_writes_members_seldom_enough(tmp_path: Path) -> None:
    for moved in count(build_config(SETTINGS, "the test"), tmp_path / "run"):
        assert moved.share <= 1.0
        assert moved.written > 0.9, "every member was written"
