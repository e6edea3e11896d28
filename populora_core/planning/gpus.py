"""Estimates from shapes alone: whether learner and sampler fit one GPU together, and a generation's time.

A learner never leaves its GPU: its base and adapters stay while an engine with a base of its own works. What an engine
takes is a share of the whole GPU, whatever is in use. So both stay awake where the learner's peak fits beside that
share; they take turns where what the learner keeps does; else the engine does not start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from populora_core.planning.duration import Rates, SamplingLoad, sampling_seconds, update_seconds
from populora_core.planning.memory import (
    GB,
    RESERVED,
    SAMPLER_ROWS,
    Estimate,
    Fit,
    ModelShape,
    Workload,
    base_size,
    cache_room,
    estimate,
    loading,
)

CONTEXT = 3 * GB  # of two processes: contexts, libraries' work spaces, graphs
ENGINE = 4 * GB  # what an engine takes beside weights, adapters and cache: its widest batch, graphs
TURN_SECONDS = 13.0  # to sleep and to wake: 10.6 and 2.2 s on an A100 (vllm#48337)
LOAD_SECONDS = 1.0  # for an adapter of a 7B: read, hash and copy, twice a generation


@dataclass(frozen=True, slots=True)
class GpuJob:
    """Demands of a run on its GPUs.

    Attributes:
        proposals, attempts: of one generation.
        utilization: share of a GPU that an engine with a base of its own takes.
        rows: that it writes at once at most.
        bits: that the base's linear layers are kept in, by the learner and the torch sampler.
        spread: GPUs of one vLLM engine, of which the learner has the first.
        pack_tokens: of a sequence in which completions share their prompt.
    """

    shape: ModelShape
    engine: Literal["torch", "vllm"]
    members: int
    number_bytes: int
    token_budget: int
    checkpointing: bool
    utilization: float
    proposals: SamplingLoad
    attempts: SamplingLoad
    rows: int = SAMPLER_ROWS
    bits: int = 16
    spread: int = 1
    pack_tokens: int = 0

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return math.ceil(max(each.prompt + each.limit for each in (self.proposals, self.attempts)))


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """The plan for a job on GPUs of one size.

    Attributes:
        needed: by tensors, on each GPU.
        learner: its peak, with what the allocator reserves.
        kept: of the learner while an engine samples.
        engine: what one takes; 0 where it shares the learner's base.
        cache_tokens: that the sampler has room for at once.
        sampling, learning, turning: seconds of a generation at the limits of length.
        host: bytes of the machine's memory, over all its processes.
        loading: of them, while all processes load the checkpoint.
    """

    needed: Estimate
    fit: Fit
    learner: float
    kept: float
    engine: float
    cache_tokens: int
    sampling: float
    learning: float
    turning: float
    host: float
    loading: float

    @property
    def seconds(self) -> float:
        return self.sampling + self.learning + self.turning


def gpu_plan(job: GpuJob, card: float, rates: Rates, gpus: int = 1, written: float = 1.0) -> GpuPlan:
    """Estimate a job.

    Args:
        card: bytes of one GPU.
        gpus: shards, one on each.
        written: share of the limits of length that completions come to.
    """
    shape, members = job.shape, math.ceil(job.members / gpus)
    rows = min(job.rows, math.ceil(max(job.proposals.completions, job.attempts.completions) / gpus))
    work = Workload(members, job.number_bytes, max(job.token_budget, job.longest), job.checkpointing, 0, 0)
    work = replace(work, bits=job.bits)
    needed = estimate(shape, work)
    peak = needed.resident + RESERVED * (needed.learner - needed.resident)
    resident = base_size(shape, job.number_bytes, job.bits) + job.members * shape.adapter * 4
    if job.engine == "torch":
        everyone = estimate(
            shape, replace(work, members=job.members)
        ).resident  # requests are dealt, whoever is asked
        prompt = max(job.proposals.prompt, job.attempts.prompt)
        free = card - CONTEXT / 2 - everyone
        cache_tokens = cache_room(shape, job.number_bytes, free, rows, prompt, job.longest)
        tokens = min(cache_tokens, rows * job.longest)
        prompts = math.ceil(tokens * prompt / job.longest)
        needed = estimate(
            shape, replace(work, sampler_rows=rows, sampler_tokens=tokens, sampler_prompts=prompts)
        )
        engine = 0.0
        fits = peak + CONTEXT / 2 <= card and cache_tokens >= job.longest
        fit = Fit.RESIDENT if fits else Fit.TOO_LARGE
    else:
        engine = job.utilization * card
        slots = (job.members + 1) * shape.adapter * job.number_bytes
        room = job.spread * (engine - ENGINE - slots) - shape.parameters * job.number_bytes
        cache_tokens = max(0, int(room / (shape.layers * shape.cache * job.number_bytes)))
        fit = _fit(peak, needed.resident, engine, card) if cache_tokens >= job.longest else Fit.TOO_LARGE
    stages = (job.proposals, job.attempts)
    usual = max(each.prompt + written * each.limit for each in stages)
    width = min(job.rows, max(1, int(cache_tokens / usual)))
    shares = [replace(each, completions=math.ceil(each.completions / gpus)) for each in stages]
    spread = Rates(rates.operations * job.spread, rates.bytes * job.spread) if job.engine == "vllm" else rates
    turning = (TURN_SECONDS if fit is Fit.TURNS else 0.0) + (
        2 * LOAD_SECONDS * job.members if job.engine == "vllm" else 0.0
    )
    return GpuPlan(
        needed,
        fit,
        peak,
        needed.resident,
        engine,
        cache_tokens,
        sum(
            sampling_seconds(shape, share, written, width, job.number_bytes, job.engine, spread, job.bits)
            for share in shares
        ),
        sum(
            update_seconds(shape, each, written, job.checkpointing, rates, job.pack_tokens) for each in stages
        )
        / gpus,
        turning,
        gpus * (needed.states + (resident if fit is Fit.TURNS else 0)),
        loading(shape, job.number_bytes, gpus),
    )


def what_would_fit(job: GpuJob, card: float, rates: Rates, gpus: int = 1) -> list[str]:
    """Settings each of which alone makes a job fit; where none does, checkpointing with the least micro-batch."""

    def fits(changed: GpuJob) -> bool:
        return gpu_plan(changed, card, rates, gpus).fit is not Fit.TOO_LARGE

    found = []
    if not job.checkpointing and fits(replace(job, checkpointing=True)):
        found.append("update.gradient_checkpointing = true")
    budget = job.token_budget
    while budget // 2 >= job.longest:
        budget //= 2
        if fits(replace(job, token_budget=budget)):
            found.append(f"update.token_budget = {budget}")
            break
    shares = [share / 100 for share in range(90, 15, -5) if share / 100 != job.utilization]
    share = next((share for share in shares if fits(replace(job, utilization=share))), None)
    if job.engine == "vllm" and share is not None:
        found.append(f"sampler.gpu_memory_utilization = {share:g}")
    if job.engine == "vllm" and fits(replace(job, engine="torch")):
        found.append('sampler.engine = "torch"')
    if job.engine == "vllm" and job.spread == 1 and fits(replace(job, spread=2)):
        found.append("sampler.tensor_parallel = 2, with twice the GPUs")
    bits = next((bits for bits in (8, 4) if bits < job.bits and fits(replace(job, bits=bits))), None)
    if job.engine == "torch" and bits is not None:
        found.append(f"base.bits = {bits}")
    least = replace(job, checkpointing=True, token_budget=min(job.token_budget, job.longest))
    if not found and fits(least):
        found.append(f"update.gradient_checkpointing = true with update.token_budget = {least.token_budget}")
    return found


def _fit(peak: float, kept: float, engine: float, card: float) -> Fit:
    if peak + engine + CONTEXT <= card:
        return Fit.RESIDENT
    return Fit.TURNS if kept + engine + CONTEXT <= card and peak + CONTEXT <= card else Fit.TOO_LARGE
