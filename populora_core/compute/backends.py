"""Backends of a run: the machines that its shards and its sandbox run on, found by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from populora_core.compute.shards import Compute, InlineCompute, LocalCompute
from populora_core.config.machinery import ComputeSection, SandboxSection
from populora_core.sampler.spec import ModelSpec
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits, Sandbox
from populora_core.support.errors import ConfigError
from populora_core.support.registry import Registry


class ComputeBackend(Protocol):
    """The machines of one open run. Whoever asked for something that it opened closes that first.

    Attributes:
        remote: True if workers may be on other machines, which commit shards to the run's store where it has one.
    """

    remote: bool

    def compute(self, spec: ModelSpec) -> Compute:
        """Workers for shards."""
        ...

    def sandbox(self, settings: SandboxSection, limits: Limits, hash_seed: int) -> Sandbox:
        """A sandbox of the configured kind."""
        ...

    @property
    def pids(self) -> Sequence[int]:
        """Process ids, on this machine, of what it started beside workers and sandboxes."""
        ...

    def close(self) -> None:
        """End everything that it started."""
        ...


class Here:
    """This machine: a process a shard, or for `inline` this process alone."""

    remote = False
    pids: Sequence[int] = ()

    def __init__(self, plan: ComputeSection) -> None:
        self._plan = plan

    def compute(self, spec: ModelSpec) -> Compute:
        if self._plan.backend == "inline":
            return InlineCompute(self._plan.threads, spec)
        return LocalCompute(self._plan.shards, self._plan.threads, spec)

    def sandbox(self, settings: SandboxSection, limits: Limits, hash_seed: int) -> Sandbox:
        return open_sandbox(settings.backend, limits, settings.workers, hash_seed)

    def close(self) -> None:
        pass


HERE = ("inline", "local")
BACKENDS = Registry(
    dict.fromkeys(HERE, Here),
    group="populora.compute",
    what="compute backend",
    setting="compute.backend",
    error=ConfigError,
    makes=ComputeBackend,
)
"""Name -> what makes a `ComputeBackend` of the section `compute`."""
