"""The GPUs of a run: whether its engine sleeps on them, which one counts, and what its preset and dry run say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from published_bases import BASES, config_of
from test_support_devices import drivers_tool

from populora_core.commands.plan import print_plan
from populora_core.config.load import load_config
from populora_core.planning.gpus import gpu_plan
from populora_core.planning.memory import GB, Fit
from populora_core.runs.gpus import GpuSmaller, card_of, engine_sleeps, gpu_job, rates_of, tell_of_card
from populora_core.support.shipped import REPOSITORY


@pytest.fixture
def seven_billion(tmp_path: Path) -> Path:
    """A folder with the configuration of the 7B and nothing else."""
    (tmp_path / "config.json").write_text(json.dumps(config_of(BASES["7b"])))
    return tmp_path


@pytest.mark.parametrize(
    ("overrides", "sleeps"),
    [((), False), (("update.gradient_checkpointing=false", "update.token_budget=8192"), True)],
)
def test_the_engine_sleeps_only_where_both_do_not_fit(
    seven_billion: Path, overrides: tuple[str, ...], sleeps: bool
) -> None:
    config = load_config(REPOSITORY / "configs" / "paper-7b.toml", [f"base.path={seven_billion}", *overrides])
    assert engine_sleeps(config) is sleeps


@pytest.mark.parametrize(
    ("mebibytes", "sleeps", "fit"),
    [("81920, 81920", False, None), ("81920, 57344", True, Fit.TURNS), ("24576, 81920", True, Fit.TOO_LARGE)],
)
def test_the_smallest_gpu_of_the_run_counts_where_it_is_smaller_than_configured(
    seven_billion: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mebibytes: str,
    sleeps: bool,
    fit: Fit | None,
) -> None:
    lines = "".join(f"H100, 580.1, 9.0, 0 MiB, {size} MiB\\n" for size in mebibytes.split(", "))
    drivers_tool(tmp_path, monkeypatch, f"echo \"$*\" > {tmp_path}/asked\nprintf '{lines}'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6")
    chosen = [f"base.path={seven_billion}", "compute.shards=2"]
    config = load_config(REPOSITORY / "configs" / "paper-7b.toml", chosen)
    assert engine_sleeps(config) is sleeps
    assert "--id=3,5 " in (tmp_path / "asked").read_text(), "another card of the machine is of no matter"
    if fit is None:
        tell_of_card(config)
    else:
        with pytest.warns(GpuSmaller, match=rf"compute\.gpu_gb says 80: {fit} there"):
            tell_of_card(config)
    on_cpu = load_config(
        REPOSITORY / "configs" / "paper-7b.toml", [*chosen, "compute.shards=1", "base.device=cpu"]
    )
    assert card_of(on_cpu) == 80 * GB


def test_a_dry_run_tells_both_engines_and_what_would_fit(
    seven_billion: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = REPOSITORY / "configs" / "paper-7b.toml"
    print_plan(load_config(file, [f"base.path={seven_billion}"]), Path("runs/paper"))
    said = capsys.readouterr().out
    assert "a sampler with its own base (vllm): 40.0 GB by sampler.gpu_memory_utilization" in said
    assert "both stay resident" in said
    assert "45.7 GB while the checkpoint is loaded, one more for each process" in said
    assert "at 300 TFLOP/s" in said
    wide = [f"base.path={seven_billion}", "sampler.gpu_memory_utilization=0.9"]
    print_plan(load_config(file, wide), Path("runs/paper"))
    said = capsys.readouterr().out
    assert "It does not fit. What would: sampler.gpu_memory_utilization" in said


def test_a_prompt_counts_with_the_problems_that_are_shown(seven_billion: Path) -> None:
    config = load_config(REPOSITORY / "configs" / "paper-7b.toml", [f"base.path={seven_billion}"])
    asked = gpu_job(config, "vllm")
    assert (asked.proposals.completions, asked.attempts.completions) == (192, 1536)
    assert 1200 < asked.proposals.prompt < 2400
    assert 300 < asked.attempts.prompt < 800


@pytest.mark.parametrize(
    ("preset", "base"), [("paper-7b", "7b"), ("h200", "7b"), ("4x24gb", "1.5b"), ("16gb", "0.5b")]
)
def test_every_preset_fits_the_gpus_that_it_is_for(tmp_path: Path, preset: str, base: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of(BASES[base])))
    config = load_config(REPOSITORY / "configs" / f"{preset}.toml", [f"base.path={tmp_path}"])
    assert config.sampler.engine != "auto"
    card, gpus = config.compute.gpu_gb * GB, config.compute.shards
    plan = gpu_plan(gpu_job(config, config.sampler.engine), card, rates_of(config), gpus)
    assert plan.fit is Fit.RESIDENT
    assert config.update.importance_cap == 2.0
