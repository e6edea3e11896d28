"""A configuration's demands on its GPUs, in the numbers that `planning.gpus` takes."""

from __future__ import annotations

import math
import warnings
from typing import Literal

from populora_core.config.load import Config
from populora_core.planning.duration import Rates, SamplingLoad
from populora_core.planning.gpus import GpuJob, GpuPlan, gpu_plan
from populora_core.planning.memory import GB, Fit, read_shape
from populora_core.problems.dialects import dialect, seeds_of
from populora_core.runs.machine import cuda_build, gpus_of
from populora_core.runs.precision import choose_dtype, number_bytes
from populora_core.sampler.engines import AUTO, TORCH, VLLM, choose_engine
from populora_core.support.devices import CUDA, gpus
from populora_core.support.errors import BaseModelError

SLACK = 0.97  # some GPUs report only this share of the memory that they are sold with
PROMPT = {"instruct": (400, 250), "compact": (20, 40)}  # tokens of a prompt, and of each problem shown in it
CHARACTERS = 3.4  # of a token of Python


def gpu_job(config: Config, engine: Literal["torch", "vllm"]) -> GpuJob:
    """The job of a configuration whose sampler is this engine.

    Raises:
        BaseModelError: nothing can be said of this base.
    """
    propose, solve = config.propose, config.solve
    proposing, solving = _prompt_tokens(config)
    return GpuJob(
        shape=read_shape(config.base.folder(), config.adapters.rank),
        engine=engine,
        members=config.members,
        number_bytes=number_bytes(config.base),
        token_budget=config.update.token_budget,
        pack_tokens=config.update.pack_tokens,
        checkpointing=config.update.gradient_checkpointing,
        utilization=config.sampler.gpu_memory_utilization,
        proposals=SamplingLoad(config.proposals, proposing, propose.max_tokens),
        attempts=SamplingLoad(config.attempts, solving, solve.max_tokens, solve.most_attempts),
        rows=config.sampler.rows,
        bits=config.base.bits,
        spread=config.sampler.tensor_parallel,
    )


def _prompt_tokens(config: Config) -> tuple[float, float]:
    """Tokens of a teacher's prompt and of a student's: a dialect with seed problems shows how long they are."""
    spoken, references = dialect(config.base.dialect), config.propose.references[1]
    kind = config.propose.types[0]
    if seeds := seeds_of(spoken, kind):
        proposing = spoken.propose_prompt(kind, [seeds[place % len(seeds)] for place in range(references)])
        return len(proposing) / CHARACTERS, len(spoken.solve_prompt(seeds[0])) / CHARACTERS
    own, shown = PROMPT.get(config.base.dialect, PROMPT["instruct"])
    return own + shown * references, own + shown


def rates_of(config: Config) -> Rates:
    """The GPU's sustained rates, as configured."""
    return Rates(config.compute.gpu_tflops * 1e12, config.compute.gpu_tb_per_s * 1e12)


class GpuSmaller(UserWarning):
    """The GPU has less memory than the configuration says, by which --dry-run reckons."""


def card_of(config: Config) -> float:
    """Bytes of one GPU: as configured, or of the smallest that this machine has for the run where that is less."""
    stated = config.compute.gpu_gb * GB
    if config.base.device != CUDA or not config.compute.here:
        return stated
    told = gpus(gpus_of(config))
    return min([stated, *(gpu.total * 2**30 for gpu in told if not math.isnan(gpu.total))])


def planned_engine(config: Config) -> Literal["torch", "vllm"]:
    """The engine that `auto` means where the run is to be: on this machine if it has a GPU, else on one with vLLM."""
    base, wanted = config.base, config.sampler.engine
    if wanted == AUTO:
        dtype = choose_dtype(base.dtype, base.path, base.device)
        here = config.compute.here and cuda_build() is not None and gpus()
        fits = base.bits == 16 and dtype == "bfloat16"
        wanted = choose_engine(AUTO, base, dtype) if here else VLLM if fits else TORCH
    return "torch" if wanted == TORCH else "vllm"


def engine_sleeps(config: Config) -> bool:
    """True if an engine must give its memory back while the learner works, as the two do not fit together."""
    try:
        return _plan(config, card_of(config)).fit is not Fit.RESIDENT
    except BaseModelError:  # nothing can be said of this base
        return True


def tell_of_card(config: Config) -> None:
    """Warn where the machine's GPU is smaller than the configuration says."""
    card, stated = card_of(config), config.compute.gpu_gb * GB
    if card >= SLACK * stated:
        return
    try:
        fit = f": {_plan(config, card).fit} there"
    except BaseModelError:
        fit = ""
    warnings.warn(
        f"the GPU has {card / GB:.1f} GB, and compute.gpu_gb says {config.compute.gpu_gb:g}{fit}. Set it to what the "
        "GPU has: populora run --dry-run then says what would fit",
        GpuSmaller,
        stacklevel=2,
    )


def _plan(config: Config, card: float) -> GpuPlan:
    return gpu_plan(gpu_job(config, planned_engine(config)), card, rates_of(config), config.compute.shards)
