"""The paper's setting at 7B: checked by the dry run, from the published shape of the base alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from test_planning_memory import QWEN2_5_7B
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.config.load import load_config
from populora_core.planning.duration import Rates, SamplingLoad, sampling_seconds, update_seconds
from populora_core.planning.memory import shape_of
from populora_core.runs.gpus import gpu_job
from populora_core.support.shipped import REPOSITORY

CONFIGS = REPOSITORY / "configs"


@pytest.mark.parametrize("name", ["paper-7b", "solo-7b"])
def test_the_dry_run_says_what_a_7b_takes(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN2_5_7B))
    words = ["run", "--config", str(CONFIGS / f"{name}.toml"), "--run-dir", "x", "--dry-run"]
    done = CliRunner().invoke(app, [*words, "--set", f"base.path={tmp_path}"])
    assert done.exit_code == 0, done.output
    assert re.search(r"a sampler with its own base \(vllm\): .* (both stay resident|one sleeps)", done.output)
    assert re.search(
        r"at a quarter of them: .*of sampling and .* of learning a generation, .*in all", done.output
    )


def test_the_single_agent_has_a_pair_s_batch_and_the_paper_s_base_and_lengths() -> None:
    paper, solo = (
        load_config(CONFIGS / f"{name}-7b.toml", ["base.path=bundled:tiny"]) for name in ("paper", "solo")
    )
    assert (paper.population.teachers, paper.population.students, solo.population.solo) == (4, 4, 1)
    assert (paper.run.generations, paper.adapters.rank) == (200, 32)
    for section in ("base", "adapters", "solve", "sandbox"):
        assert getattr(paper, section) == getattr(solo, section)
    assert paper.propose == solo.propose


@pytest.mark.parametrize("name", ["paper-7b", "solo-7b", "h200", "4x24gb", "16gb"])
def test_every_setting_says_where_it_comes_from(name: str) -> None:
    lines = (CONFIGS / f"{name}.toml").read_text().splitlines()
    settings = [line for line in lines if re.match(r"[a-z_]+ = ", line) and not line.startswith("extends")]
    assert len(settings) >= 6
    for line in settings:
        assert re.search(r"#.*\b(paper|inferred|open|machine)\b", line), line


def test_sampling_is_bound_by_memory_for_few_rows_and_by_computing_for_many() -> None:
    shape, rates = shape_of(QWEN2_5_7B, 32), Rates(4e14, 2e12)
    few, many = (
        sampling_seconds(shape, SamplingLoad(rows, 0.0, 100), 1.0, rows, 2, "vllm", rates)
        for rows in (1, 4096)
    )
    cache = 50 * 57_344  # bytes of a row's keys and values, half-way
    assert few == pytest.approx(100 * ((2 * shape.parameters + cache) / 2e12 * 1.15 + 0.006))
    assert many == pytest.approx(100 * (2 * shape.parameters * 4096 / 4e14 * 1.15 + 0.006))


def test_a_prompt_is_read_once_and_learnt_from_once_for_as_many_completions_as_a_pack_holds() -> None:
    shape, rates = shape_of(QWEN2_5_7B, 32), Rates(1e12, 1e12)
    alone, shared = SamplingLoad(16, 100.0, 20), SamplingLoad(16, 100.0, 20, group=8)
    apart, together = (sampling_seconds(shape, load, 1.0, 16, 2, "torch", rates) for load in (alone, shared))
    assert apart - together == pytest.approx(2 * shape.parameters * (1600 - 200) / 1e12)
    assert [shared.learned(1.0, pack) for pack in (0, 140, 1000)] == [1920.0, 1120.0, 520.0]


def test_prompts_are_as_long_as_the_dialect_that_is_spoken_makes_them() -> None:
    job = gpu_job(load_config(CONFIGS / "quick.toml", ["base.dialect=assert"]), "torch")
    assert 100 < job.attempts.prompt < 200 and 80 < job.proposals.prompt < 200
    assert job.attempts.group == 4


def test_an_update_takes_four_operations_a_parameter_and_token_and_two_more_to_save_memory() -> None:
    shape, rates = shape_of(QWEN2_5_7B, 32), Rates(1e12, 1e12)
    load = SamplingLoad(10, 60.0, 80.0)  # tokens to read and, at half of the limit, 40 to write
    assert update_seconds(shape, load, 0.5, False, rates) == pytest.approx(4 * 1000 * shape.parameters / 1e12)
    assert update_seconds(shape, load, 0.5, True, rates) == pytest.approx(6 * 1000 * shape.parameters / 1e12)
