from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from populora_core.commands.plan import PARTS, print_plan
from populora_core.config.load import apply_overrides, load_config
from populora_core.model import packed
from populora_core.model.layout import AdapterLayout
from populora_core.planning import memory
from populora_core.planning.memory import GB, Estimate, Fit, Workload, estimate, fit, read_shape, shape_of
from populora_core.support.errors import BaseModelError
from populora_core.support.shipped import REPOSITORY

TESTS = Path(__file__).resolve().parent
QWEN2_5_7B = {  # its published config.json
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 3584,
    "initializer_range": 0.02,
    "intermediate_size": 18944,
    "max_position_embeddings": 131072,
    "max_window_layers": 28,
    "model_type": "qwen2",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
TINY = REPOSITORY / "base_model" / "tiny"
A_HUNDRED_MILLION = {
    "model_type": "qwen2",
    "vocab_size": 32_000,
    "hidden_size": 768,
    "intermediate_size": 2560,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}


@pytest.fixture
def seven_billion(tmp_path: Path) -> memory.ModelShape:
    """The shape of a folder that holds this config.json and nothing else."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN2_5_7B))
    return read_shape(tmp_path, rank=32)


def test_a_population_of_eight_on_a_7b_fits_one_80_gb_gpu_beside_the_sampler(
    seven_billion: memory.ModelShape,
):
    needed = estimate(
        seven_billion, Workload(members=8, base_bytes=2, update_tokens=8192, checkpointing=True)
    )
    assert fit(needed.learner, needed.sampler, 80 * GB) is Fit.RESIDENT  # a base each
    assert needed.shared < 40 * GB  # one base for both


def test_without_checkpointing_it_fits_on_one_base_and_otherwise_one_sleeps(seven_billion: memory.ModelShape):
    needed = estimate(seven_billion, Workload(members=8, base_bytes=2, update_tokens=4096))
    assert needed.shared < 80 * GB
    assert fit(needed.learner, needed.sampler, 60 * GB) is Fit.TURNS
    assert fit(needed.learner, needed.sampler, 40 * GB) is Fit.TOO_LARGE


def test_the_parts_of_a_7b_are_what_its_numbers_come_to(seven_billion: memory.ModelShape):
    needed = estimate(seven_billion, Workload(members=8, base_bytes=2, update_tokens=4096))
    assert seven_billion.parameters == 7_615_616_512
    assert seven_billion.adapter == 80_740_352
    assert needed.base == pytest.approx(15.23 * GB, rel=1e-3)
    assert needed.adapters == 8 * 80_740_352 * (4 + 2)
    assert needed.gradient == 8 * 80_740_352 * 4
    assert needed.cache == 65_536 * 28 * 2 * 4 * 128 * 2


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama"])
def test_shapes_from_the_configuration_are_those_of_the_model(architecture: str, tied: bool, tmp_path: Path):
    changed = {"model_type": architecture, "tie_word_embeddings": tied}
    config = AutoConfig.for_model(**{**A_HUNDRED_MILLION, **changed})
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = read_shape(tmp_path, rank=16)
    assert shape.adapter == AdapterLayout.of(model, 16, 32.0).dimension
    assert shape.parameters == pytest.approx(sum(p.numel() for p in model.parameters()), rel=1e-3)


def test_the_bound_on_packed_copies_is_that_of_the_base():
    assert packed.MOST == memory.PACKED_BYTES


def test_what_grows_with_the_population_is_its_matrices_alone(seven_billion: memory.ModelShape):
    one = Workload(members=1, base_bytes=2, update_tokens=1024)
    few, many = estimate(seven_billion, one), estimate(seven_billion, replace(one, members=32))
    assert (many.adapters, many.gradient) == (32 * few.adapters, 32 * few.gradient)
    assert replace(many, adapters=few.adapters, gradient=few.gradient, states=few.states) == few


def test_a_configuration_without_the_widths_is_refused_by_name(tmp_path: Path):
    with pytest.raises(BaseModelError, match="intermediate_size"):
        shape_of({name: value for name, value in QWEN2_5_7B.items() if name != "intermediate_size"}, 8)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BaseModelError, match="cannot be read"):
        read_shape(tmp_path, 8)


def test_a_dry_run_has_a_line_for_every_part():
    assert PARTS.keys() == {part.name for part in fields(Estimate)}


def test_a_dry_run_states_the_plan_against_the_machine_or_a_gpu(capsys: pytest.CaptureFixture[str]):
    demo = load_config(REPOSITORY / "configs" / "demo.toml")
    print_plan(demo, Path("runs/demo"))
    said = capsys.readouterr().out
    assert "this machine" in said
    assert "sampler and learner on one base (torch)" in said
    assert "both stay resident" in said
    assert "does not fit" not in said
    assert "for the whole run with store.keep_states = all" in said
    on_gpu = apply_overrides(demo, ["base.device=cuda", "compute.gpu_gb=0.5"])
    print_plan(on_gpu, Path("runs/demo"))
    said = capsys.readouterr().out
    assert "one GPU of 0.5 GB" in said
    assert "does not fit" in said
    assert "update.gradient_checkpointing" in said


@pytest.fixture(scope="module")
def measured_update() -> Iterator[Popen[str]]:
    """The process that measures updates. The peak is what tensors take: freed memory is given back at once, and the
    kernels that oneDNN compiles for a shape (6 MB of them in bfloat16) are not kept. They are those of any processor:
    one that computes in bfloat16 itself would give them 5 MB to work in.
    """
    process = Popen(
        [sys.executable, str(TESTS / "measured_update.py")],
        env=os.environ
        | {"MALLOC_MMAP_THRESHOLD_": str(1 << 17)}
        | {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0", "ONEDNN_MAX_CPU_ISA": "AVX2"},
        stdin=PIPE,
        stdout=PIPE,
        text=True,
    )
    with process:
        yield process


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("config", "dtype", "members", "rank", "tokens", "checkpointing"),
    [
        pytest.param(TINY, "float32", 8, 8, 2048, False, id="tiny-kept"),
        pytest.param(TINY, "float32", 8, 8, 2048, True, id="tiny-checkpointed"),
        pytest.param(TINY, "bfloat16", 8, 8, 1024, False, id="tiny-bfloat16-kept"),
        pytest.param(A_HUNDRED_MILLION, "float32", 4, 16, 512, True, id="hundred-million-checkpointed"),
    ],
)
def test_a_real_update_peaks_where_the_estimate_says(
    measured_update: Popen[str],
    config: dict | Path,
    dtype: str,
    members: int,
    rank: int,
    tokens: int,
    checkpointing: bool,
):
    """Within a factor of two from above. Here the members as they go lie in the memory that the step works in."""
    data = json.loads((config / "config.json").read_text()) if isinstance(config, Path) else config
    asked = {
        "config": data,
        "dtype": dtype,
        "members": members,
        "rank": rank,
        "tokens": tokens,
        "checkpointing": checkpointing,
    }
    print(json.dumps(asked), file=measured_update.stdin, flush=True)
    measured = int(measured_update.stdout.readline())
    work = Workload(members, 4 if dtype == "float32" else 2, tokens, checkpointing)
    needed = estimate(shape_of(data, rank), work)
    goes = needed.states // 3
    working = max(needed.activations + max(needed.backward, needed.logits), needed.step + goes)
    peak = needed.adapters + needed.gradient + working
    assert 0.5 * peak < measured < peak, measured / peak
