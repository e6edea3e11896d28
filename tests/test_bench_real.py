"""The benchmark of real bases gives its rows, here of the tiny one, and a process that waits does not spin."""

from __future__ import annotations

import os
import sys

import pytest
from conftest import ran

from bench import real


@pytest.mark.thorough
def test_every_ratio_of_the_design_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "BASES", ["bundled:tiny"])
    monkeypatch.setattr(real, "ROWS", (2,))
    monkeypatch.setattr(real, "ALONE", ("ours_step",))
    monkeypatch.setattr(real, "threads", lambda: 1)
    rows = real.run(samples=1, say=lambda text: None)
    goals = {row.name.removeprefix("bundled_tiny_"): row.goal for row in rows if row.goal}
    assert goals | {"trl_step_over_ours": "", "4_trl_steps_over_ours": ""} == {
        "decode2_over_floor": "<= 2.5",
        "decode2_transformers_over_ours": ">= 2",
        "update_over_floor": "<= 2",
        "peft_update_over_ours": ">= 1",
        "beside_neighbours_over_alone": "<= 2.2",
        "trl_step_over_ours": "",
        "4_trl_steps_over_ours": "",
    }
    assert all(row.value > 0.0 for row in rows)


@pytest.mark.parametrize(("said", "found"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_threads_that_wait_sleep_unless_the_user_wants_otherwise(said: dict[str, str], found: str) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    asked = "import populora_core, os; print(os.environ['OMP_WAIT_POLICY'])"
    told = ran([sys.executable, "-c", asked], env=clean | said, check=True)
    assert told.stdout.strip() == found
