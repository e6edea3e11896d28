"""The compute backend `ray`: a cluster, joined or started for as long as the run is open."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from populora_core.compute.shards import Compute
from populora_core.config.machinery import ComputeSection, SandboxSection
from populora_core.sampler.spec import ModelSpec
from populora_core.sandbox.jobs import Limits, Sandbox
from populora_plugins.cluster.ray_cluster import RayCluster

# Looked for here, so that a configuration is refused before the cluster imports it. A mere folder of that name is none.
_RAY = find_spec("ray")
if _RAY is None or _RAY.origin is None:
    raise ModuleNotFoundError("No module named 'ray'")


class OnRay:
    """A Ray cluster: shards in actors, and a sandbox on every machine of it."""

    remote = True

    def __init__(self, plan: ComputeSection) -> None:
        self._plan = plan
        self.cluster = RayCluster(plan.address)

    def compute(self, spec: ModelSpec) -> Compute:
        from populora_plugins.cluster.ray_compute import RayCompute

        return RayCompute(self.cluster, self._plan, spec)

    def sandbox(self, settings: SandboxSection, limits: Limits, hash_seed: int) -> Sandbox:
        from populora_plugins.cluster.ray_sandbox import ShardedSandbox

        seconds = self._plan.shard_seconds
        return ShardedSandbox(self.cluster, settings.backend, limits, settings.workers, hash_seed, seconds)

    @property
    def pids(self) -> Sequence[int]:
        return self.cluster.pids

    def close(self) -> None:
        self.cluster.close()
