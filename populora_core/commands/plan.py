"""What --dry-run prints: the resolved configuration and the work that it asks for."""

from __future__ import annotations

import json
import math
import os
from functools import partial
from pathlib import Path

from populora_core.commands.console import console
from populora_core.config.load import Config
from populora_core.planning.duration import Rates, SamplingLoad, sampling_seconds, update_seconds
from populora_core.planning.memory import (
    GB,
    SAMPLER_ROWS,
    SAMPLER_TOKENS,
    Fit,
    ModelShape,
    Workload,
    estimate,
    fit,
    read_shape,
)
from populora_core.report.text import seconds
from populora_core.runs.space import disk_needed, free_bytes, whole_run
from populora_core.stages.table import FOUND, LOOP
from populora_core.support.errors import BaseModelError

PARTS = {
    "base": "frozen weights",
    "adapters": "float32 weights, and their shadow in the base's precision",
    "gradient": "of all members",
    "activations": "of one micro-batch of update.token_budget tokens",
    "logits": "of one chunk, with gradients",
    "step": "weights, moments and temporaries of the members stepped at once",
    "copies": "of the adapters' factors, which a sampler on a CPU makes",
    "cache": "the sampler's keys and values, twice",
    "reading": "prompts on their way through one layer, logits of one token a row",
    "states": "in host memory: members as they come, as they go, and as bytes for the disk",
}
LESS = (
    "To need less: update.gradient_checkpointing = true, a lower update.token_budget, base.dtype = bfloat16, "
    "fewer compute.shards, a lower adapters.rank."
)


say = partial(console.print, highlight=False, soft_wrap=True)


def print_plan(config: Config, run_dir: Path) -> None:
    """Print every resolved setting, the stages, and the counts of one generation. Starts nothing."""
    console.print(f"[bold]{run_dir}[/] would be made with this configuration:")
    for section, settings in config.as_json().items():
        console.print(f"\n[bold]\\[{section}][/]")
        for key, value in settings.items():
            say(f"  {key} = {json.dumps(value)}")

    console.print("\n[bold]the stages of a generation[/], and what each is redone for when it changes:")
    for stage in (FOUND, *LOOP):
        sections = ", ".join(f"\\[{section}]" for section in stage.config)
        needs = ", ".join(stage.needs) or "nothing"
        console.print(f"  [bold]{stage.name:<8}[/] {needs} -> {', '.join(stage.gives)}", soft_wrap=True)
        console.print(f"           {sections}" + (", the base model" if stage.base else ""), soft_wrap=True)

    _print_memory(config)
    _print_disk(config, run_dir)
    say(
        f"\n{config.run.generations} generations, "
        f"each of {config.proposals} proposals and at most {config.attempts} attempts; "
        f"{config.compute.shards} shards of {config.compute.threads} thread(s). Nothing was started."
    )


def _print_memory(config: Config) -> None:
    """Print what each process needs at most, part by part, and whether the device has it."""
    try:
        shape = read_shape(config.base.folder(), config.adapters.rank)
    except BaseModelError as error:  # a base that cannot be estimated may well be run
        console.print(f"\n[bold]memory[/]: {error.problem}", soft_wrap=True)
        return
    shards, members = config.compute.shards, config.population.proposers + config.population.students
    processes = shards if config.compute.backend == "local" else 1
    rows = min(SAMPLER_ROWS, math.ceil(max(config.proposals, config.attempts) / shards))
    needed = estimate(
        shape,
        Workload(
            members=math.ceil(members / shards),
            base_bytes=4 if config.base.dtype == "float32" else 2,
            update_tokens=max(config.update.token_budget, config.propose.max_tokens, config.solve.max_tokens),
            checkpointing=config.update.gradient_checkpointing,
            sampler_rows=rows,
            sampler_tokens=min(SAMPLER_TOKENS, rows * shape.context),
            copies=config.base.device == "cpu",
        ),
    )
    cuda = config.base.device == "cuda"
    if cuda:
        place, capacity = "one GPU", config.compute.gpu_gb * GB
    else:
        place, capacity = "this machine", float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    host = 0 if cuda else processes * needed.states
    shared, learner = processes * needed.shared + host, processes * needed.learner + host
    on_one_base = Fit.RESIDENT if shared <= capacity else Fit.TOO_LARGE
    on_two = fit(learner, needed.sampler, capacity)

    say(f"\n[bold]memory[/], at most; {processes} process(es) on {place} of {_size(capacity)}:")
    for part, meaning in PARTS.items():
        say(f"  {part:<12} {_size(getattr(needed, part)):>8}  {meaning}")
    say(f"  sampler and learner on one base (torch): {_size(shared)}: {on_one_base}")
    say(f"  a sampler with its own base (vllm): {_size(needed.sampler)} beside {_size(learner)}: {on_two}")
    if on_one_base is Fit.TOO_LARGE:
        say(f"  [bold]It does not fit.[/] {LESS}")
    if cuda:
        _print_time(config, shape)


def _print_disk(config: Config, run_dir: Path) -> None:
    """Print what the run directory takes, part by part, and whether the disk has it."""
    try:
        disk = disk_needed(config)
    except BaseModelError:  # `_print_memory` has said so
        return
    whole, free = whole_run(config, disk), free_bytes(run_dir)
    say("\n[bold]disk[/], at most, per generation:")
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
        say(
            "  [bold]It does not fit.[/] To need less: store.keep_states = 2, store.keep_adapters, a lower rank."
        )


def _print_time(config: Config, shape: ModelShape) -> None:
    """Print how long the GPU works on one generation and on all, for completions of two lengths."""
    number_size = 4 if config.base.dtype == "float32" else 2
    rates = Rates(config.compute.gpu_tflops * 1e12, config.compute.gpu_tb_per_s * 1e12)
    say(
        f"\n[bold]time[/] of one GPU at {config.compute.gpu_tflops:g} TFLOP/s and "
        f"{config.compute.gpu_tb_per_s:g} TB/s, without the sandbox:"
    )
    for share, says in ((1.0, "at the limits of length"), (0.25, "at a quarter of them")):
        batches = [
            SamplingLoad(config.proposals, share * config.propose.max_tokens),
            SamplingLoad(config.attempts, share * config.solve.max_tokens),
        ]
        sampled = sum(sampling_seconds(shape, batch, SAMPLER_ROWS, number_size, rates) for batch in batches)
        learnt = sum(
            update_seconds(shape, batch, config.update.gradient_checkpointing, rates) for batch in batches
        )
        whole = (sampled + learnt) * config.run.generations
        say(
            f"  completions {says}: {seconds(sampled)} of sampling and {seconds(learnt)} of learning a generation, "
            f"{seconds(whole)} in all"
        )


def _size(size: float) -> str:
    return f"{size / GB:.1f} GB" if size >= GB / 10 else f"{size / 10**6:.1f} MB"
