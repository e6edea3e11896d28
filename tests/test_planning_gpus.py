"""Whether learner and engine fit a GPU: eleven cases against arithmetic done by hand, and what --dry-run says."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from published_bases import BASES, config_of

from populora_core.commands.plan import print_plan
from populora_core.config.load import load_config
from populora_core.planning.duration import Rates, SamplingLoad
from populora_core.planning.gpus import GpuJob, gpu_plan, what_would_fit
from populora_core.planning.memory import GB, Fit, shape_of
from populora_core.report.text import seconds
from populora_core.support.shipped import REPOSITORY

RATES = Rates(3e14, 2e12)


def job(name: str, engine: str, share: float, budget: int, checkpointing: bool) -> GpuJob:
    return GpuJob(
        shape_of(config_of(BASES[name]), 32),
        engine,  # type: ignore[arg-type]
        members=8,
        number_bytes=2,
        token_budget=budget,
        checkpointing=checkpointing,
        utilization=share,
        proposals=SamplingLoad(192, 1900, 4096),
        attempts=SamplingLoad(1536, 650, 4096, group=8),
    )


CASES = [
    # base, GPU in GB, engine, its share, token budget, checkpointing, what becomes of it
    ("7b", 80, "vllm", 0.5, 16_384, True, Fit.RESIDENT),  # 31.6 + 40 + 3
    ("7b", 80, "vllm", 0.9, 16_384, True, Fit.TOO_LARGE),  # 19.1 kept + 72 + 3
    ("7b", 141, "vllm", 0.5, 8192, False, Fit.TURNS),  # 79.3 + 70.5 + 3, but 19.1 + 70.5 + 3
    ("7b", 141, "vllm", 0.4, 8192, False, Fit.RESIDENT),  # 79.3 + 56.4 + 3
    ("7b", 141, "vllm", 0.9, 8192, False, Fit.TOO_LARGE),  # 19.1 + 126.9 + 3
    ("7b", 24, "torch", 0.5, 6144, True, Fit.TOO_LARGE),  # 15.2 + 3.9 of adapters + 6.5 to learn
    ("14b", 80, "vllm", 0.5, 16_384, True, Fit.TURNS),  # 36.1 kept + 40 + 3; room for 20,000 tokens
    ("32b", 141, "vllm", 0.5, 6144, True, Fit.TOO_LARGE),  # 70.5 hold 65.5 of weights, and no cache
    ("32b", 141, "torch", 0.5, 6144, True, Fit.RESIDENT),  # 78.4 + 17.2 to learn; room for 150,000 tokens
    ("1.5b", 24, "vllm", 0.4, 8192, True, Fit.RESIDENT),  # 8.4 + 9.6 + 3
    ("0.5b", 16, "torch", 0.5, 8192, True, Fit.RESIDENT),
]


@dataclass(frozen=True)
class Sums:
    """What a case comes to by hand, in bytes, tokens and seconds of a generation at the limits of length."""

    kept: float
    learner: float
    engine: float
    cache_tokens: float
    learning: float
    sampling: float
    together: bool
    turns: bool


def by_hand(name: str, card: int, engine: str, share: float, budget: int, checkpointing: bool) -> Sums:
    """For 192 proposals of 1,900 + 4,096 tokens and 1,536 answers of 650 + 4,096, eight to a prompt."""
    base = BASES[name]
    kept = 2 * base.parameters + 8 * base.adapter * (4 + 2)
    stepping = min(8 * base.adapter, max(1 << 26, base.adapter)) * 5 * 4
    update = 8 * base.adapter * 4 + max(stepping, budget * (base.kept if checkpointing else base.all_kept))
    learner = kept + 1.1 * update
    if engine == "vllm":
        takes, context, host = share * card * GB, 3 * GB, 0.006
        room = takes - 2 * base.parameters - 9 * base.adapter * 2 - 4 * GB
        cache_tokens = max(0.0, room) / base.cache
        turns = kept + takes + context <= card * GB and learner + context <= card * GB
    else:
        takes, context, host, turns = 0.0, 1.5 * GB, 0.025, False
        hidden, widest, _, _, _, vocabulary, _ = base.widths
        reading, drawing = 16_384 * (3 * widest + 4 * hidden) * 2, 256 * vocabulary * 18
        room = (card * GB - context - kept) / 1.1 - max(reading, drawing)
        cache_tokens = max(0.0, room) / (base.cache * (1 + 1900 / 5996))
    sampling = 0.0
    rows = max(1, min(256, int(cache_tokens / 5996)))
    for completions, prompt, group in ((192, 1900, 1), (1536, 650, 8)):
        width = min(rows, completions)
        reads = (2 * base.parameters + width * (prompt + 2048) * base.cache) / 2e12
        computes = 2 * base.parameters * width / 3e14
        sampling += math.ceil(completions / width) * 4096 * (1.15 * max(reads, computes) + host)
        sampling += 2 * base.parameters * completions / group * prompt / 3e14
    tokens = 192 * 5996 + 1536 * 4746
    learning = tokens * (6 if checkpointing else 4) * base.parameters / 3e14
    together = learner + takes + context <= card * GB
    return Sums(kept, learner, takes, cache_tokens, learning, sampling, together, turns)


CASE = ("name", "card", "engine", "share", "budget", "checkpointing", "fit")


@pytest.mark.parametrize(CASE, CASES)
def test_what_fits_is_what_the_sums_by_hand_come_to(
    name: str, card: int, engine: str, share: float, budget: int, checkpointing: bool, fit: Fit
) -> None:
    sums = by_hand(name, card, engine, share, budget, checkpointing)
    plan = gpu_plan(job(name, engine, share, budget, checkpointing), card * GB, RATES)
    assert plan.fit is fit
    assert plan.kept == pytest.approx(sums.kept, rel=1e-3)
    assert plan.learner == pytest.approx(sums.learner, rel=1e-3)
    assert plan.engine == pytest.approx(sums.engine)
    assert plan.cache_tokens == pytest.approx(sums.cache_tokens, rel=1e-2)
    assert plan.learning == pytest.approx(sums.learning, rel=1e-3)
    assert plan.sampling == pytest.approx(sums.sampling, rel=0.03)  # a row more or less at once
    if fit is not Fit.TOO_LARGE:
        assert (sums.together, sums.turns or sums.together) == (fit is Fit.RESIDENT, True)
    else:
        assert not sums.together or sums.cache_tokens < 4096 + 1900


@pytest.mark.parametrize(CASE, CASES)
def test_a_dry_run_prints_what_the_sums_by_hand_come_to(
    name: str,
    card: int,
    engine: str,
    share: float,
    budget: int,
    checkpointing: bool,
    fit: Fit,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of(BASES[name])))
    asked = {
        "base.path": tmp_path,
        "compute.gpu_gb": card,
        "sampler.engine": engine,
        "sampler.gpu_memory_utilization": share,
        "update.token_budget": budget,
        "update.gradient_checkpointing": str(checkpointing).lower(),
    }
    overrides = [f"{key}={value}" for key, value in asked.items()]
    print_plan(load_config(REPOSITORY / "configs" / "paper-7b.toml", overrides), Path("runs/paper"))
    said = capsys.readouterr().out
    sums = by_hand(name, card, engine, share, budget, checkpointing)
    size, tokens = r"([\d.]+) GB", r"room for ([\d,]+) tokens"
    told, expected = {
        "torch": (
            rf"on one base \(torch\), reserved: {size}, {tokens} while it samples: (.+)",
            [sums.learner],
        ),
        "vllm": (
            rf"\(vllm\): {size} by .*, {tokens}, .* reserves {size} and keeps {size} while .*: (.+)",
            [sums.engine, sums.learner, sums.kept],
        ),
    }[engine]
    found = re.search(told, said)
    assert found is not None, said
    sizes = [figure for number, figure in enumerate(found.groups()[:-1]) if number != 1]
    assert [float(figure) for figure in sizes] == pytest.approx([each / GB for each in expected], abs=0.11)
    assert int(found[2].replace(",", "")) == pytest.approx(sums.cache_tokens, rel=1e-2)
    assert found.groups()[-1] == str(fit)
    assert f"at the limits of length: {seconds(sums.sampling)} of sampling" in said
    assert f"and {seconds(sums.learning)} of learning" in said
    memory, _, _ = said.partition("disk, at most")
    assert ("It does not fit." in memory) is (fit is Fit.TOO_LARGE)


def test_what_would_fit_is_said_and_does() -> None:
    tight = job("7b", "vllm", 0.9, 16_384, checkpointing=False)
    assert gpu_plan(tight, 80 * GB, RATES).fit is Fit.TOO_LARGE
    greedy = replace(tight, checkpointing=True)
    (share,) = [each for each in what_would_fit(greedy, 80 * GB, RATES) if "utilization" in each]
    fixed = replace(greedy, utilization=float(share.rpartition("= ")[2]))
    assert gpu_plan(fixed, 80 * GB, RATES).fit is not Fit.TOO_LARGE
    assert 'sampler.engine = "torch"' in what_would_fit(greedy, 80 * GB, RATES)


@pytest.mark.parametrize(("bits", "card"), [(16, 141), (8, 80), (4, 64)])
def test_a_32b_fits_one_gpu_by_rounding_its_linear_layers(bits: int, card: int) -> None:
    """64 layers of 5120 x (5120 + 2 * 1024 + 5120 + 3 * 27648) weights, each group of 64 with a scale of two bytes."""
    asked = replace(job("32b", "torch", 0.5, 6144, True), bits=bits)
    linear = 64 * 5120 * (5120 + 2 * 1024 + 5120 + 3 * 27_648)
    whole = 2 * BASES["32b"].parameters
    weights = (
        whole if bits == 16 else whole - 2 * linear + linear * bits / 8 + linear / 32 + 2 * 5120 * 27_648
    )
    plan = gpu_plan(asked, card * GB, RATES)
    assert plan.needed.base == pytest.approx(weights, rel=1e-3)
    assert plan.fit is Fit.RESIDENT
    if bits < 16:
        assert gpu_plan(replace(asked, bits=16), card * GB, RATES).fit is Fit.TOO_LARGE
        assert f"base.bits = {bits}" in what_would_fit(replace(asked, bits=16), card * GB, RATES)
        assert plan.sampling > gpu_plan(replace(asked, bits=16), 141 * GB, RATES).sampling, (
            "made whole at every step"
        )


def test_an_engine_over_two_gpus_holds_a_half_of_the_base_on_each() -> None:
    alone = job("32b", "vllm", 0.4, 6144, True)
    spread = replace(alone, spread=2)
    assert gpu_plan(alone, 141 * GB, RATES).fit is Fit.TOO_LARGE, "56 GB hold no 65 GB of weights"
    plan = gpu_plan(spread, 141 * GB, RATES)
    slots = 9 * BASES["32b"].adapter * 2
    room = 2 * (0.4 * 141 * GB - slots - 4 * GB) - 2 * BASES["32b"].parameters
    assert plan.cache_tokens == pytest.approx(room / BASES["32b"].cache, rel=1e-2)
    assert plan.fit is not Fit.TOO_LARGE
    assert "sampler.tensor_parallel = 2, with twice the GPUs" in what_would_fit(alone, 141 * GB, RATES)


def test_eight_gpus_share_the_work_and_the_engines_room() -> None:
    one, eight = (gpu_plan(job("7b", "vllm", 0.5, 16_384, True), 80 * GB, RATES, gpus) for gpus in (1, 8))
    assert eight.learning == pytest.approx(one.learning / 8)
    assert one.sampling / 8 < eight.sampling < one.sampling, "the longest completion takes its time on any"
    assert eight.needed.gradient == one.needed.gradient / 8
    assert eight.host == 8 * eight.needed.states


@pytest.mark.parametrize(
    ("dtype", "gpus", "gigabytes"),
    [
        ("bfloat16", 1, 15.23),  # 7.616 billion numbers of 2 bytes
        ("bfloat16", 8, 15.23),  # mapped: the kernel keeps one copy for all
        ("float32", 1, 30.46 + 15.23),  # the files, and a copy in bfloat16
        ("float32", 8, 30.462 + 8 * 15.231),
        (None, 8, 30.462 + 8 * 15.231),  # what a config.json without a word is in
    ],
)
def test_the_machine_holds_the_checkpoint_once_and_once_more_for_each_process_that_rounds_it(
    dtype: str | None, gpus: int, gigabytes: float
) -> None:
    asked = job("7b", "vllm", 0.5, 16_384, True)
    stored = {"torch_dtype": dtype} if dtype else {}
    plan = gpu_plan(replace(asked, shape=shape_of(config_of(BASES["7b"]) | stored, 32)), 80 * GB, RATES, gpus)
    assert plan.loading / GB == pytest.approx(gigabytes, abs=0.02)


def test_every_gpu_that_samples_with_torch_has_room_for_all_adapters_since_requests_are_dealt() -> None:
    crowd = replace(job("7b", "torch", 0.5, 6144, True), members=64)
    everyone = 2 * crowd.shape.parameters + 64 * crowd.shape.adapter * (4 + 2)
    card = everyone + 2 * GB
    plan = gpu_plan(crowd, card, RATES, 8)
    assert plan.learner < card - 2 * GB, "each learns for eight members alone"
    assert plan.fit is Fit.TOO_LARGE
    assert gpu_plan(crowd, card + 10 * GB, RATES, 8).fit is Fit.RESIDENT
