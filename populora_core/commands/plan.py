"""Output of --dry-run, the resolved configuration and the work that follows from it, and of --hours."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from populora_core.benchmarks.fetched import how_to_get
from populora_core.config.load import Config
from populora_core.planning.duration import sampling_seconds, update_seconds
from populora_core.planning.gpus import gpu_plan, what_would_fit
from populora_core.planning.memory import (
    GB,
    SAMPLER_ROWS,
    SAMPLER_TOKENS,
    Estimate,
    Fit,
    Workload,
    estimate,
    fit,
    read_shape,
)
from populora_core.report.text import seconds
from populora_core.runs.gpus import gpu_job, planned_engine, rates_of
from populora_core.runs.machine import cpu_rates, cuda_build, require_device
from populora_core.runs.precision import choose_dtype, number_bytes
from populora_core.runs.preflight import rows_to_fetch
from populora_core.runs.space import disk_needed, free_bytes, whole_run
from populora_core.stages.table import AVERAGE, FOUND, LOOP, as_configured
from populora_core.support.devices import CUDA, gpus
from populora_core.support.errors import BaseModelError, ConfigError
from populora_core.support.typed import typed
from populora_core.terminal.screen import narrated, say

PARTS = {
    "base": "frozen weights",
    "packed": "a second copy of them, laid out for a CPU's products in bfloat16",
    "adapters": "float32 weights, and their shadow in the base's precision",
    "gradient": "of all members",
    "activations": "kept of one micro-batch of update.token_budget tokens",
    "backward": "what one layer's backward works in",
    "logits": "of one chunk, with gradients",
    "step": "weights, moments and temporaries of the members stepped at once",
    "copies": "of the adapters' factors, which a sampler on a CPU makes",
    "cache": "the sampler's keys and values",
    "prompts": "keys and values on their way there",
    "reading": "prompts on their way through one layer",
    "drawing": "one layer's keys and values for every head, logits of one token a row",
    "states": "in host memory: members as they come, as they go, and as bytes for the disk",
}
LESS = (
    "To need less: update.gradient_checkpointing = true, a lower update.token_budget, base.dtype = bfloat16, "
    "base.bits = 8 or 4, fewer compute.shards, a lower adapters.rank."
)
NO_ROOM = "  It does not fit. ", "bold"
CANNOT_START = "  It cannot start here:", "bold"


def print_plan(config: Config, run_dir: Path) -> None:
    """Print every resolved setting, the stages, and the counts of one generation. Starts nothing."""
    say((str(run_dir), "bold"), " would be made with this configuration:")
    for section, settings in config.as_json().items():
        say((f"\n[{section}]", "bold"))
        for key, value in settings.items():
            say(f"  {key} = {json.dumps(value)}")

    _print_stages(config)
    _print_machine(config)
    _print_rows(config)
    _print_memory(config)
    _print_disk(config, run_dir)
    say(
        f"\n{config.run.generations} generations, "
        f"each of {_volume(config)}; "
        f"{config.compute.shards} shards of {config.compute.threads} thread(s). Nothing was started."
    )


def _volume(config: Config) -> str:
    most = f" (with refills at most {config.most_proposals})" if config.propose.refills else ""
    return f"{config.proposals} proposals{most} and at most {config.attempts} attempts"


def _print_stages(config: Config) -> None:
    say(("\nthe stages of a generation", "bold"), ", and what each is redone for when it changes:")
    for stage in (as_configured(stage, config) for stage in (FOUND, *LOOP)):
        beside = {
            "the base model": stage.base,
            "the dialect": stage.dialect,
            "the sandbox": stage.sandbox,
            "the sampler": stage.sampler,
        }
        sections = [f"[{'evolve' if section == AVERAGE else section}]" for section in stage.config]
        needs = ", ".join(stage.needs) or "nothing"
        say((f"  {stage.name:<8}", "bold"), f" {needs} -> {', '.join(stage.gives)}")
        say(f"           {', '.join([*sections, *(name for name, decides in beside.items() if decides)])}")


def _print_machine(config: Config) -> None:
    """Print the device that the run would compute on, and what this machine lacks for it."""
    cuda = config.base.device == CUDA
    there = [f"{gpu.name} (driver {gpu.driver})" for gpu in gpus()] if cuda else [f"{os.cpu_count()} cores"]
    built = f"for CUDA {cuda_build()}" if cuda_build() else "without CUDA"
    build = f"; torch is built {built}" if cuda else ""
    has = ", ".join(there) or "no GPU"
    say(("\ndevice", "bold"), f": {config.base.device}; this machine has {has}{build}")
    try:
        require_device(config)
    except ConfigError as error:
        say(CANNOT_START, f" {error.problem}. {error.fix}")


def _print_rows(config: Config) -> None:
    """Print the rows of the suite that are missing, and how to get them."""
    for entry in rows_to_fetch(config):
        say(("\nsuite", "bold"), f": the rows of {entry.benchmark} are not on this machine")
        say(CANNOT_START, f" {typed(how_to_get(entry))}")


def _print_cpu_time(config: Config) -> None:
    """Print about how long a CPU takes, by its rates now: what else it does counts."""
    base, again = config.base, config.update.gradient_checkpointing
    job, rates = gpu_job(config, "torch"), cpu_rates(choose_dtype(base.dtype, base.path, base.device))
    width = number_bytes(base)
    rows = min(SAMPLER_ROWS, max(config.proposals, config.attempts))
    say(("\ntime", "bold"), " of this machine, about, without the sandbox:")
    for written, says in ((1.0, "at the limits of length"), (0.25, "at a quarter of them")):
        sampling = sum(
            sampling_seconds(job.shape, load, written, rows, width, "torch", rates, job.bits)
            for load in (job.proposals, job.attempts)
        )
        learning = sum(
            update_seconds(job.shape, load, written, again, rates, job.pack_tokens)
            for load in (job.proposals, job.attempts)
        )
        say(
            f"  completions {says}: {seconds(sampling)} of sampling and {seconds(learning)} of learning a generation, "
            f"{seconds((sampling + learning) * config.run.generations)} in all"
        )


def _print_memory(config: Config) -> None:
    """Print what each process needs at most, part by part, and whether the device has it."""
    try:
        shape = read_shape(config.base.folder(), config.adapters.rank)
    except BaseModelError as error:  # a base that cannot be estimated may well be run
        say(("\nmemory", "bold"), f": {error.problem}")
        return
    if config.base.device == "cuda":
        _print_gpus(config)
        return
    shards = config.compute.shards
    processes = shards if config.compute.backend == "local" else 1
    rows = min(SAMPLER_ROWS, math.ceil(max(config.proposals, config.attempts) / shards))
    needed = estimate(
        shape,
        Workload(
            members=math.ceil(config.members / shards),
            base_bytes=number_bytes(config.base),
            update_tokens=max(config.update.token_budget, config.propose.max_tokens, config.solve.max_tokens),
            checkpointing=config.update.gradient_checkpointing,
            sampler_rows=rows,
            sampler_tokens=min(SAMPLER_TOKENS, rows * shape.context),
            on_cpu=True,
            bits=config.base.bits,
        ),
    )
    capacity = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    shared, learner = (processes * (each + needed.states) for each in (needed.shared, needed.learner))
    on_one_base = Fit.RESIDENT if shared <= capacity else Fit.TOO_LARGE
    beside = "beside Python with its libraries (about 1 GB)"
    say(
        ("\nmemory", "bold"),
        f", at most, {beside}; {processes} process(es) on this machine of {_size(capacity)}:",
    )
    _print_parts(needed)
    say(f"  sampler and learner on one base (torch): {_size(shared)}: {on_one_base}")
    say(
        f"  a sampler with its own base (vllm): {_size(needed.sampler)} beside {_size(learner)}: "
        f"{fit(learner, needed.sampler, capacity)}"
    )
    if on_one_base is Fit.TOO_LARGE:
        say(NO_ROOM, LESS)
    if config.compute.here:
        _print_cpu_time(config)


def _print_parts(needed: Estimate) -> None:
    for part, meaning in PARTS.items():
        if size := getattr(needed, part):
            say(f"  {part:<12} {_size(size):>8}  {meaning}")


def _print_gpus(config: Config) -> None:
    """Print what each engine comes to on the GPUs that are configured."""
    card, gpus, rates = config.compute.gpu_gb * GB, config.compute.shards, rates_of(config)
    torch, vllm = (gpu_job(config, engine) for engine in ("torch", "vllm"))
    chosen = torch if planned_engine(config) == "torch" else vllm
    plan, one_base, two = (gpu_plan(job, card, rates, gpus) for job in (chosen, torch, vllm))
    shape = chosen.shape
    of_each = f"on one GPU of {_size(card)}" + (f", its engine on {vllm.spread}" if vllm.spread > 1 else "")
    say(("\nmemory", "bold"), f", at most; {gpus} process(es), each {of_each}:")
    _print_parts(plan.needed)
    say(
        f"  sampler and learner on one base (torch), reserved: {_size(one_base.learner)}, room for "
        f"{one_base.cache_tokens:,} tokens while it samples: {one_base.fit}"
    )
    say(
        f"  a sampler with its own base (vllm): {_size(two.engine)} by sampler.gpu_memory_utilization, room for "
        f"{two.cache_tokens:,} tokens, beside a learner that reserves {_size(two.learner)} and keeps "
        f"{_size(two.kept)} while the engine works: {two.fit}"
    )
    copies = (
        "one copy for all" if plan.loading == shape.parameters * shape.stored else "one more for each process"
    )
    say(
        f"  {_size(plan.host)} of the machine's own memory: states, and what sleeps; {_size(plan.loading)} while the "
        f"checkpoint is loaded, {copies}"
    )
    if plan.fit is Fit.TOO_LARGE:
        fitting = what_would_fit(chosen, card, rates, gpus)
        say(NO_ROOM, f"What would: {'; or '.join(fitting)}. " if fitting else "", LESS)
    say(
        ("\ntime", "bold"),
        f" of {gpus} GPU(s) at {config.compute.gpu_tflops:g} TFLOP/s and "
        f"{config.compute.gpu_tb_per_s:g} TB/s each, without the sandbox:",
    )
    for written, says in ((1.0, "at the limits of length"), (0.25, "at a quarter of them")):
        each = gpu_plan(chosen, card, rates, gpus, written)
        say(
            f"  completions {says}: {seconds(each.sampling)} of sampling and {seconds(each.learning)} of learning a "
            f"generation, {seconds(each.turning)} of loading and sleeping, "
            f"{seconds(each.seconds * config.run.generations)} in all"
        )


def _print_disk(config: Config, run_dir: Path) -> None:
    """Print what the run directory takes, part by part, and whether the disk has it."""
    try:
        disk = disk_needed(config)
    except BaseModelError:  # `_print_memory` has said so
        return
    whole, free = whole_run(config, disk), free_bytes(run_dir)
    say(("\ndisk", "bold"), ", at most, per generation:")
    say(f"  adapters     {_size(disk.adapters):>8}  float32 weights of every member")
    say(f"  states       {_size(disk.states):>8}  moments of their optimisers")
    say(
        f"  completions  {_size(disk.completions):>8}  tokens, log-probabilities and text, before compression"
    )
    store = config.store
    say(
        f"  {_size(whole)} for the whole run with store.keep_states = {store.keep_states} and store.keep_adapters = "
        f"{store.keep_adapters}; {_size(free)} are free"
    )
    if whole > free:
        kept = {"store.keep_states = 2": store.keep_states, "store.keep_adapters = 2": store.keep_adapters}
        lower = [setting for setting, now in kept.items() if now == "all" or now > 2]
        say(NO_ROOM, f"To need less: {', '.join([*lower, 'a lower rank'])}.")


def _size(size: float) -> str:
    return f"{size / GB:.1f} GB" if size >= GB / 10 else f"{size / 10**6:.1f} MB"


def announce(config: Config, folder: Path, hours: float) -> None:
    """Measure this machine, and say what the run takes.

    Raises:
        ConfigError: it takes more hours than these.
    """
    from populora_core.lifecycle.pace import SECONDS, measured, require_time

    asked = _volume(config)
    work = f"{config.run.generations} generations of {asked}"
    size = whole_run(config, disk_needed(config))
    free = f"{free_bytes(folder) / GB:.0f} GB are free"
    disk = f"{size / GB:.1f} GB of disk at most ({free}). It can be ended and resumed."
    if config.base.device == CUDA:  # one base at a time has room there, and this process would keep it
        say(f"{work}: --hours measures CPUs alone, and --dry-run estimates a GPU's time; {disk}")
        return
    with narrated(f"measuring this machine in some {SECONDS:.0f} seconds, once the base is loaded ..."):
        pace = measured(config)
    needed = require_time(config, pace, hours)
    threads = config.compute.shards * config.compute.threads
    say(
        f"{work}: about {seconds(needed)} here with {threads} thread(s), less where answers are short, and {disk}"
    )
