"""What a configuration asks of its GPUs, in the numbers that `planning.gpus` reckons with."""

from __future__ import annotations

from typing import Literal

from populora_core.config.load import Config
from populora_core.planning.duration import Rates, SamplingLoad
from populora_core.planning.gpus import GpuJob, gpu_plan
from populora_core.planning.memory import GB, Fit, read_shape
from populora_core.support.errors import BaseModelError

PROMPT = {"instruct": (400, 250), "compact": (20, 40)}  # tokens of a prompt, and of each problem shown in it


def gpu_job(config: Config, engine: Literal["torch", "vllm"]) -> GpuJob:
    """The job of a configuration whose sampler is this engine.

    Raises:
        BaseModelError: nothing can be said of this base.
    """
    own, shown = PROMPT.get(config.base.dialect, PROMPT["instruct"])
    propose, solve = config.propose, config.solve
    return GpuJob(
        shape=read_shape(config.base.folder(), config.adapters.rank),
        engine=engine,
        members=config.members,
        number_bytes=4 if config.base.dtype == "float32" else 2,
        token_budget=config.update.token_budget,
        checkpointing=config.update.gradient_checkpointing,
        utilization=config.sampler.gpu_memory_utilization,
        proposals=SamplingLoad(config.proposals, own + shown * propose.references[1], propose.max_tokens),
        attempts=SamplingLoad(config.attempts, own + shown, solve.max_tokens),
        rows=config.sampler.rows,
        bits=config.base.bits,
        spread=config.sampler.tensor_parallel,
    )


def rates_of(config: Config) -> Rates:
    """What the GPU keeps up, as configured."""
    return Rates(config.compute.gpu_tflops * 1e12, config.compute.gpu_tb_per_s * 1e12)


def engine_sleeps(config: Config) -> bool:
    """Whether an engine has to give its memory back while the learner works: only where both do not fit."""
    try:
        plan = gpu_plan(
            gpu_job(config, "vllm"), config.compute.gpu_gb * GB, rates_of(config), config.compute.shards
        )
    except BaseModelError:  # nothing can be said of this base
        return True
    return plan.fit is not Fit.RESIDENT
