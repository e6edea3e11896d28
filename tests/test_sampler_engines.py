"""The configuration chooses the sampler, a run records it, and a stage is not made on an unproven one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import GENERATIONS, small_config, start
from torch import Tensor

from populora_core.config.load import apply_overrides
from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.lifecycle.loop import train
from populora_core.model.layout import AdapterLayout
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sampler import engines as opening
from populora_core.sampler import torch_sampler
from populora_core.sampler.engines import choose_engine
from populora_core.sampler.spec import ModelSpec
from populora_core.stages.plan import deciding, key_of
from populora_core.stages.table import LOOP
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.errors import AdapterNotServed, ConfigError
from populora_plugins.vllm.engine import engine_arguments

ON_GPU = BaseSection(device="cuda")


@pytest.mark.parametrize(
    ("wanted", "device", "installed", "chosen"),
    [
        ("auto", "cpu", False, "torch"),
        ("auto", "cpu", True, "torch"),
        ("auto", "cuda", False, "torch"),
        ("auto", "cuda", True, "vllm"),
        ("torch", "cuda", True, "torch"),
        ("vllm", "cpu", True, "vllm"),
    ],
)
def test_auto_takes_vllm_where_it_is_installed_and_there_is_a_gpu(
    monkeypatch: pytest.MonkeyPatch, wanted: str, device: str, installed: bool, chosen: str
) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: object() if installed else None)
    assert choose_engine(wanted, BaseSection(device=device), "bfloat16") == chosen


def test_vllm_that_is_not_installed_is_refused_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install .*sampler.engine = .torch"):
        choose_engine("vllm", ON_GPU, "bfloat16")


def test_one_engine_holds_all_members_so_it_has_one_shard() -> None:
    with pytest.raises(ConfigError, match=r"compute\.shards must be 1; it is 2"):
        small_config(sampler={"engine": "vllm"})
    small_config(sampler={"engine": "vllm"}, compute={"shards": 1})
    on_each_gpu = {"shards": 8, "backend": "local"}
    small_config(sampler={"engine": "vllm"}, base={"device": "cuda"}, compute=on_each_gpu)


def test_an_engine_is_spread_over_as_many_gpus_as_the_configuration_says() -> None:
    spread = SamplerSection(engine="vllm", tensor_parallel=2, gpu_memory_utilization=0.4)
    asked = ModelSpec(BaseSection(device="cuda"), AdapterSection(), "none", spread, members=8, sleeps=False)
    arguments = engine_arguments(asked, 32, 8)
    assert (arguments["tensor_parallel_size"], arguments["gpu_memory_utilization"]) == (2, 0.4)
    assert (arguments["max_loras"], arguments["enable_sleep_mode"]) == (9, False)
    assert arguments["max_model_len"] == -1, "a base of long context starts with the cache that there is"
    on_cpu = engine_arguments(replace(asked, base=BaseSection()), 32, 8)
    assert not {"tensor_parallel_size", "max_model_len"} & on_cpu.keys()


def test_the_engine_decides_what_is_sampled_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(compute={"shards": 1})

    def keys(engine: str) -> dict[str, str]:
        run = start(tmp_path / engine, apply_overrides(config, [f"sampler.engine={engine}"]))
        with Session(run) as session:
            return {stage.name: key_of(deciding(session, stage, 0, {})) for stage in LOOP}

    monkeypatch.setattr(opening, "find_spec", lambda name: object())
    torch, vllm, auto = keys("torch"), keys("vllm"), keys("auto")
    assert {name for name in torch if torch[name] != vllm[name]} == {"propose", "solve", "evaluate"}
    assert auto == torch, "what decides is the engine that was taken"


def test_a_run_records_its_engine_and_the_proof_of_every_load(finished: Path) -> None:
    for stage in ("propose", "solve"):
        manifest = read_manifest(stage_dir(finished, GENERATIONS, stage))
        assert manifest is not None
        record = manifest.extra["sampler"]
        assert record["engine"] == "torch"
        assert record["probes"] and all(probe["largest_error"] < 1e-4 for probe in record["probes"])


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_generation_aborts_where_an_adapter_is_not_served(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copy_of()
    read, folders = torch_sampler.read_weights, []

    def without_the_first(folder: Path, layout: AdapterLayout) -> Tensor:
        folders.append(folder)
        return read(folder, layout) * float(folder != folders[0])

    with monkeypatch.context() as patch:
        patch.setattr(torch_sampler, "read_weights", without_the_first)
        with Session(Run.open(directory)) as session, pytest.raises(AdapterNotServed, match="is not applied"):
            train(session, GENERATIONS + 1)
    assert not stage_dir(directory, GENERATIONS + 1, "propose").exists()
    with Session(Run.open(directory)) as session:
        train(session, GENERATIONS + 1)
    assert stage_dir(directory, GENERATIONS + 1, "solve").exists()


def test_a_base_in_fewer_bits_is_sampled_by_torch_over_the_same_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: object())
    rounded = BaseSection(device="cuda", bits=4)
    assert choose_engine("auto", ON_GPU, "bfloat16") == "vllm"
    assert choose_engine("auto", rounded, "bfloat16") == "torch"
    with pytest.raises(ConfigError, match="members learn over one in 4 bits"):
        choose_engine("vllm", rounded, "bfloat16")


def test_vllm_is_not_taken_for_float32_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: object())
    assert choose_engine("auto", ON_GPU, "float32") == "torch"
    with pytest.raises(ConfigError, match="float32 on a GPU"):
        choose_engine("vllm", ON_GPU, "float32")
    assert choose_engine("vllm", BaseSection(), "float32") == "vllm", "on a CPU it does"
