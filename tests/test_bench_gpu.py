"""The GPU's benchmark: its code on the CPU, with a tiny base in the same precision."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ran

from bench.adapters import trained
from bench.gpu import SETTINGS, random_base, run
from bench.gpu_setting import Step
from populora_core.learner.update import update_members
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.support.shipped import REPOSITORY

PARTS = {
    *(f"update_tokens_per_second_{name}" for name in ("packed", "plain", "long", "kept", "logits_67108864")),
    *(f"sampler_tokens_per_second_{name}" for name in ("masked", "scattered", "deep")),
    *(f"adapter_{way}_seconds" for way in ("write", "hash", "read")),
    *("optimiser_seconds_p2", "adapters_to_device_seconds_p2", "reading_seconds_pass_1024"),
    *("mismatch_mean", "mismatch_p99", "update_busy_share", "sampling_busy_share"),
}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return ran([sys.executable, "-m", "bench.gpu", *arguments], cwd=REPOSITORY)


def test_every_population_trains_on_the_same_tokens() -> None:
    setting = SETTINGS["7b"]
    shares = {members: {row.member_id: 0 for row in setting.rows(members)} for members in (1, 16)}
    assert [len(share) for share in shares.values()] == [1, 16]
    one, sixteen = (
        [(row.prompt_ids, row.completion_ids, row.advantage) for row in setting.rows(members)]
        for members in (1, 16)
    )
    assert one == sixteen


def test_its_stand_in_for_the_settings_has_all_that_a_step_reads() -> None:
    """The machine with the GPU may lack pydantic, so nothing else tells of a setting that the learner came to read."""
    setting = SETTINGS["tiny"]
    model = random_base(setting.model, torch.device("cpu"))
    stacked = StackedAdapters(model, AdapterLayout.of(model, setting.rank, 2.0 * setting.rank))
    states = {name: MemberState.newborn(trained(stacked.layout, number)) for number, name in enumerate("01")}
    rules = Step(setting.token_budget, setting.pack_tokens, setting.checkpointing).rules
    after, stats = update_members(stacked, states, setting.rows(2), rules)
    assert [stats[member].steps for member in after] == [1, 1]
    assert any((after[member].weights != states[member].weights).any() for member in after)


@pytest.mark.thorough
def test_it_runs_and_writes_its_report_with_the_machine(tmp_path: Path) -> None:
    done = bench("--shape", "tiny", "--device", "cpu", "--samples", "3", "--json", str(tmp_path / "gpu.json"))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "gpu.json").read_text())
    values = {row["name"]: row["value"] for row in report["rows"]}
    assert set(values) >= {
        *("matmul_peak", "grouped_over_batched", "update_seconds_p1", "update_p2_over_p1"),
        *("sampler_tokens_per_second_p2", "generate_p2_over_p1", *PARTS),
    }
    apart = {name for name in values if name.startswith("mismatch")}  # of a tiny base maybe nothing
    assert all(value > 0.0 for name, value in values.items() if name not in apart)
    assert 0.0 < values["update_share_of_peak_p1"] < 2.0
    assert report["machine"]["torch"] == torch.__version__


@pytest.mark.thorough
def test_what_is_measured_so_far_is_told_after_every_round() -> None:
    told = [("", 0)]
    rows = run(SETTINGS["tiny"], torch.device("cpu"), samples=2)
    while told[-1] != ("update_seconds_p1", 2):  # a round more, and again with it
        row = next(rows)
        told.append((row.name, row.samples))
    assert told.index(("update_seconds_p1", 1)) < told.index(("update_seconds_p2", 1))
    assert "generate_p2_over_p1" not in dict(told)


@pytest.mark.thorough
def test_with_torch_transformers_and_safetensors_alone_it_says_at_once_that_there_is_no_gpu() -> None:
    absent = ("docker", "duckdb", "pandas", "peft", "prefect", "pyarrow", "pydantic", "trueskill")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent})); from bench.gpu import main, torch; "
        "torch.cuda.is_available = lambda: False; main()"
    )
    done = ran([sys.executable, "-c", code], cwd=REPOSITORY)
    assert done.returncode == 2
    assert "torch sees no GPU" in done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_it_runs_on_the_gpu(tmp_path: Path) -> None:
    done = bench("--shape", "tiny", "--samples", "1", "--json", str(tmp_path / "gpu.json"))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["machine"]["gpu"]
    assert any(row["name"] == "update_gib_p1" for row in report["rows"])
