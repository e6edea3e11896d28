"""The benchmark of real bases gives its rows, here of the tiny one, and a process that waits does not spin."""

from __future__ import annotations

import os
import sys

import pytest
from conftest import ran

from bench import real, real_others
from bench.adapters import BASE, ours
from populora_core.sampler.torch_sampler import TorchSampler

OPTIONAL = ("trl_step_over_ours", "4_trl_steps_over_ours", "decode2_vllm_over_ours")


@pytest.mark.thorough
def test_every_ratio_of_the_design_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "BASES", ["bundled:tiny"])
    monkeypatch.setattr(real, "ROWS", (2,))
    monkeypatch.setattr(real, "ALONE", {"transformers_decode": ""})
    monkeypatch.setattr(real, "threads", lambda: 1)
    said: list[str] = []
    rows = real.run(samples=1, say=said.append)
    goals = {row.name.removeprefix("bundled_tiny_"): row.goal for row in rows if row.goal}
    assert {name: goal for name, goal in goals.items() if name not in OPTIONAL} == {
        "decode2_over_floor": "<= 2.5",
        "decode2_transformers_over_ours": ">= 2",
        "update_over_floor": "<= 2",
        "peft_update_over_ours": ">= 1",
        "beside_neighbours_over_alone": "<= 2.2",
    }
    assert all(row.value > 0.0 for row in rows)
    assert {row.name for row in rows if "peak" in row.name} == {
        f"bundled_tiny_{work}_peak_gb" for work in real.ALONE
    }
    for package in (real.TRL, real.VLLM):
        assert real.installed(package) != (f"{package} is not installed: its rows are left out" in said)


@pytest.mark.thorough
def test_another_engine_decodes_the_same_rows_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's sampler stands in for vLLM."""
    monkeypatch.setattr(real, "installed", lambda package: package == real.VLLM)
    monkeypatch.setattr(
        real_others, "vllm_sampler", lambda folder: TorchSampler(ours(folder, "bfloat16")[1], ())
    )
    rows = real.decoding("two", ours(dtype="bfloat16")[1], BASE, 2, samples=1, bandwidth=1e9, rate=1e9)
    assert {row.name: row.goal for row in rows}["two_vllm_over_ours"] == ">= 0.7"


@pytest.mark.parametrize(("said", "found"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_threads_that_wait_sleep_unless_the_user_wants_otherwise(said: dict[str, str], found: str) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    asked = "import populora_core, os; print(os.environ['OMP_WAIT_POLICY'])"
    told = ran([sys.executable, "-c", asked], env=clean | said, check=True)
    assert told.stdout.strip() == found
