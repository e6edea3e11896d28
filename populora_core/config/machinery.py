"""The sections that say where and by what a run is carried out: sandbox, sampler, shards, store, trackers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from populora_core.config.fields import Count, Natural, Positive, ProgramSeconds, Section


class SandboxSection(Section):
    """The sandbox of model-written programs and their limits (verify, grade, evaluate; solve with extra
    attempts, propose with refills)."""

    backend: Literal["auto", "docker", "bubblewrap", "launcher", "gvisor"] = Field(
        "auto",
        description="auto: the strongest that works here and is fast; gvisor: docker, over a second kernel",
    )
    workers: Annotated[Count, Field(le=1024)] = Field(2, description="sandbox processes at a time")
    cpu_seconds: ProgramSeconds = Field(2.0, description="CPU time of one program")
    wall_seconds: ProgramSeconds = Field(
        8.0, description="wall time of one program; one that computes has up to eleven times as much"
    )
    memory_mib: Annotated[Count, Field(ge=32)] = Field(256, description="memory of one program")
    output_kib: Count = Field(16, description="largest output of one program")

    @model_validator(mode="after")
    def _wall_beyond_cpu(self) -> SandboxSection:
        if self.wall_seconds < self.cpu_seconds:
            raise ValueError("wall_seconds must be at least cpu_seconds: time-outs are judged on CPU time")
        return self


class SamplerSection(Section):
    """The sampler of proposals and answers (propose, solve, evaluate); only its engine decides results."""

    engine: str = Field(
        "auto",
        description="auto: vllm where it is installed and base.device is cuda, base.bits 16 and the dtype bfloat16, "
        "else torch; or another package's",
    )
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        0.5, description="vllm: share of the GPU's memory that the engine takes; the rest is the learner's"
    )
    rows: Count = Field(
        256, description="completions that are under way at once, at most; torch on a CPU always takes 256"
    )
    tensor_parallel: Annotated[Count, Field(le=64)] = Field(
        1,
        description="vllm: GPUs that one engine is spread over; a shard has as many, and learns on the first",
    )
    cpu_cache_gib: Count = Field(1, description="vllm on a CPU: GiB of its key-value cache")
    max_loras: Natural = Field(
        0, description="vllm: adapter slots of one batch; 0: one for every member, and one that stays empty"
    )
    warn_mismatch: Positive = Field(
        0.05,
        description="bfloat16: mean difference of sampler and learner, in nats per token, that a run warns of",
    )
    refuse_mismatch: Positive = Field(
        0.5, description="bfloat16: mean difference from which on a member counts as not served"
    )
    recycle_after: Count = Field(
        200, description="vllm: adapters loaded before the engine's process is replaced, against leaks"
    )


class ComputeSection(Section):
    """The machines that shards run on; the shard plan is part of every stage key that it matters to."""

    backend: str = Field(
        "local",
        description="inline: in this process; local: a process each; ray: actors of a Ray cluster; or a package's own",
    )
    shards: Annotated[Count, Field(le=4096)] = Field(
        2, description="parts that a stage is cut into; results follow from it"
    )
    threads: Annotated[Count, Field(le=1024)] = Field(1, description="threads of one shard")
    address: str = Field(
        "", description="ray: host:port to join; empty: a cluster of this machine, for the run"
    )
    shard_cpus: Positive = Field(1.0, description="ray: cores that a shard's actor reserves on its node")
    shard_gpus: Annotated[float, Field(ge=0.0)] = Field(0.0, description="ray: GPUs that a shard reserves")
    shard_seconds: Positive = Field(
        3600.0, description="ray: after this long a shard's worker is ended, and another does it"
    )
    gpu_gb: Positive = Field(
        80.0,
        description="memory of a GPU, in 10^9 bytes: what --dry-run plans for, and a run where its own has no less",
    )
    gpu_tflops: Positive = Field(
        300.0,
        description="10^12 operations a second that it keeps up in an update, also per GPU: a third of an H100's",
    )
    gpu_tb_per_s: Positive = Field(2.0, description="10^12 bytes a second that its memory gives")

    @property
    def here(self) -> bool:
        """True if shards run on this machine alone."""
        return self.backend in ("local", "inline")


class StoreSection(Section):
    """Artifacts to keep, and a second place for them beside the run directory."""

    keep_states: Count | Literal["all"] = Field(
        "all",
        description="last generations that can be redone; older optimiser states are pruned as the run goes",
    )
    keep_adapters: Count | Literal["all"] = Field(
        "all", description="last generations whose adapters stay; each member's newest always does"
    )
    url: str = Field("", description="file:///folder or s3://bucket/prefix that machines share; empty: none")

    @field_validator("url")
    @classmethod
    def _folder_as_url(cls, url: str) -> str:
        """A folder is recorded by its whole place, so that it is the same from any working folder."""
        return Path(os.path.expanduser(url)).absolute().as_uri() if url and not urlsplit(url).scheme else url

    @model_validator(mode="after")
    def _adapters_as_long_as_states(self) -> StoreSection:
        states, adapters = self.keep_states, self.keep_adapters
        if adapters != "all" and (states == "all" or states > adapters):
            raise ValueError(
                f"keep_adapters = {adapters} is less than keep_states = {states}: states are of no use without adapters"
            )
        return self


class WandbSection(Section):
    """Settings of Weights & Biases."""

    project: str = Field("populora", description="that runs appear in")
    entity: str = Field("", description="the user or team; empty for the one that is logged in")
    mode: Literal["offline", "online"] = Field(
        "offline", description="offline: nothing leaves this machine until `wandb sync` sends it"
    )


class TrackersSection(Section):
    """Trackers that receive every generation's figures (no stage, so in no stage's key)."""

    use: tuple[str, ...] = Field((), description="tensorboard, wandb, or those of other packages")
    wandb: WandbSection = Field(WandbSection(), description="how Weights & Biases is fed")
