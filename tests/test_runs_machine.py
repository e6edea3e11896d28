"""A run that cannot start here is refused in a sentence, before anything is made."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import populora
from conftest import small_config

from populora_core.runs import machine
from populora_core.runs.machine import cpu_rates, cuda_build, require_device
from populora_core.support.devices import Gpu
from populora_core.support.errors import ConfigError
from populora_core.support.shipped import REPOSITORY

CHAT = {  # the shape of a chat model of 1.5 billion parameters
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("version", "build"),
    [("cuda = '13.0'", "13.0"), ("cuda: Optional[str] = '12.9'", "12.9"), ("cuda = None", None)],
)
def test_the_build_of_torch_is_read_without_importing_it(
    version: str, build: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version.py").write_text(f"__version__ = '2'\n{version}\nhip = '6.1'\n")
    torch = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: torch)
    assert cuda_build() == build


@pytest.mark.parametrize(
    ("build", "found", "shards", "problem"),
    [
        (None, [], 1, "built without CUDA"),
        ("13.0", [], 1, "has no GPU"),
        ("13.0", ["570.26"], 1, "driver of card is too old"),
        ("12.9", ["570.26"], 1, ""),
        ("13.0", ["580.1"], 1, ""),
        ("13.0", ["580.1"], 2, "more shards than GPUs"),
        ("13.0", ["580.1"], -2, ""),
    ],
)
def test_a_device_is_required_as_it_has_to_be_used(
    build: str | None, found: list[str], shards: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "cuda_build", lambda: build)
    monkeypatch.setattr(machine, "gpus", lambda: [Gpu("card", driver, 9.0, 80.0, 80.0) for driver in found])
    # Shards that take turns in one process need one GPU.
    compute = {"shards": abs(shards), "backend": "local" if shards > 0 else "inline"}
    config = small_config(base={"device": "cuda"}, compute=compute)
    if not problem:
        return require_device(config)
    with pytest.raises(ConfigError, match=problem):
        require_device(config)


def test_a_refused_start_leaves_no_run(tmp_path: Path) -> None:
    if cuda_build():
        pytest.skip("torch is built for CUDA here")
    setting = "base.device=cuda"
    done = populora("run", "--preset", "quick", "--set", setting, "--run-dir", tmp_path / "run")
    assert done.returncode == 2 and "built without CUDA" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    planned = populora(
        "run", "--preset", "quick", "--set", setting, "--run-dir", tmp_path / "run", "--dry-run"
    )
    assert planned.returncode == 0 and "cannot start here" in planned.stdout


def test_a_plan_needs_config_json_alone_and_tells_the_time(tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "base_model/tiny/config.json", tmp_path)
    done = populora("run", "--preset", "quick", "--set", f"base.path={tmp_path}", "--dry-run")
    assert done.returncode == 0, done.stderr
    for part in ("device: cpu", "memory, at most", "time of this machine", "disk, at most"):
        assert part in done.stdout, part


def test_a_chat_model_on_a_cpu_gets_a_preset_that_can_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "config.json").write_text(json.dumps(CHAT))
    done = populora("run", "--base", tmp_path, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "runs/quick-instruct" in done.stdout and "time of this machine" in done.stdout


def test_a_cpu_has_rates() -> None:
    rates = cpu_rates()
    assert 1e8 < rates.operations < 1e14 and 1e8 < rates.bytes < 1e13
