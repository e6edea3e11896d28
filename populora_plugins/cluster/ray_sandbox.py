"""A sandbox over all machines of a Ray cluster: each keeps a warm pool of its own, and they share the jobs."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from populora_core.sandbox.backends import SandboxKind, open_sandbox
from populora_core.sandbox.jobs import Job, JobResult, Limits, Sandbox
from populora_core.sandbox.pool import MAX_LOSSES, outer_seconds
from populora_core.sandbox.status import Status
from populora_core.support.errors import PopuloraError, SandboxUnavailable, WorkerLost
from populora_plugins.cluster.actor_pool import ActorPool, Call, Site
from populora_plugins.cluster.alike import CODE, code_digest, require_alike
from populora_plugins.cluster.ray_cluster import RayCluster

JOBS = (64, 1024)
"""Fewest and most of a shard: enough that its way costs little, few enough that progress shows and loss is small."""
PER_NODE = 4  # shards for every machine, so that a slow one holds up little


class ShardedSandbox:
    """The `Sandbox` of a run on Ray; it opens when the first machine's pool is warm.

    Args:
        workers: sandbox processes on each machine.
        seconds: after this long a shard is done again elsewhere, if not before by what its programs may take.

    Attributes:
        records: of each shard since they were last cleared, who ran it, how long and in how many attempts.

    Raises:
        SandboxUnavailable: a machine of the cluster has no sandbox, or they differ, which would make results depend on
            chance.
        ClusterUnavailable: a machine has other code.
    """

    def __init__(
        self,
        cluster: RayCluster,
        kind: SandboxKind,
        limits: Limits,
        workers: int,
        hash_seed: int,
        seconds: float,
    ) -> None:
        self.limits = limits
        self.outage: SandboxUnavailable | None = None
        self.records: list[dict[str, Any]] = []
        self.name, self.identity = "", ""
        self._cluster, self._options = cluster, (kind, limits, workers, hash_seed)
        self._seconds, self._closed = seconds, False
        self._lock = threading.Lock()
        self.pool = ActorPool("a sandbox on Ray", self._machines, self._start, self._require_same)
        try:
            self.pool.ready()
        except WorkerLost as lost:
            self.close()
            raise _outage(lost) from lost
        except BaseException:
            self.close()
            raise

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int], None] | None = None, *, repeat: bool = False
    ) -> list[JobResult]:
        """See `Sandbox.run`."""
        if self._closed:
            raise SandboxUnavailable("the sandbox is closed", fix="open another with open_sandbox")
        with self._lock:
            self.outage = None
            if not jobs:
                return []
            shards = PER_NODE * max(len(self._machines()), 1)
            size = min(max(math.ceil(len(jobs) / shards), JOBS[0]), JOBS[1])
            parts = [jobs[start : start + size] for start in range(0, len(jobs), size)]
            try:
                return self._run(parts, progress or (lambda done: None), repeat)
            except (WorkerLost, SandboxUnavailable) as lost:
                self.outage = lost if isinstance(lost, SandboxUnavailable) else _outage(lost)
                return [JobResult(job.job_id, Status.INFRASTRUCTURE, error=lost.problem) for job in jobs]

    def close(self) -> None:
        """End every pool; returns when they are gone."""
        self._closed = True
        self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(
        self, parts: Sequence[Sequence[Job]], progress: Callable[[int], None], repeat: bool
    ) -> list[JobResult]:
        done = 0

        def further(more: int) -> None:
            nonlocal done
            done += more
            progress(done)

        calls = [Call((part, repeat)) for part in parts]
        longest = len(parts[0]) * MAX_LOSSES * outer_seconds(self.limits) + 60.0
        self.pool.run(calls, min(self._seconds, longest), further)
        for number, call in enumerate(calls):
            told = {name: getattr(call.result, name) for name in ("host", "pid", "seconds")}
            self.records.append(
                {"function": "sandbox", "shard": number, **told, "attempts": call.attempts, "reused": False}
            )
        return [result for call in calls for result in call.result.results]

    def _machines(self) -> list[str]:
        """Ids of the nodes that compute at all; each has one pool."""
        return [node.node_id for node in self._cluster.nodes() if node.cpus]

    def _start(self, node_id: str) -> Any:
        options = {
            "num_cpus": 0,  # stages take turns: what computes shards is idle while programs are judged
            "max_concurrency": 2,  # one performs, the other tells how far it is
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
        }
        return ray.remote(SandboxWorker).options(**options).remote(*self._options)

    def _require_same(self, site: Site) -> None:
        require_alike(site.host, site.environment, {CODE: code_digest()})
        name, identity = site.environment["name"], site.environment["identity"]
        self.name, self.identity = self.name or name, self.identity or identity
        if identity != self.identity:
            raise SandboxUnavailable(
                f"the sandbox of {site.host} is not that of the other machines, so verdicts could differ",
                expected=self.identity,
                got=identity,
                fix="install the same Python and build the same image on every machine: populora image build",
            )


@dataclass(frozen=True, slots=True)
class Judged:
    """Results of a shard, who made them, and how long that took."""

    results: Sequence[JobResult]
    host: str
    pid: int
    seconds: float

    @property
    def items(self) -> int:
        return len(self.results)


class SandboxWorker:
    """The actor: a sandbox of its machine."""

    def __init__(self, kind: SandboxKind, limits: Limits, workers: int, hash_seed: int) -> None:
        self._options = kind, limits, workers, hash_seed
        self._sandbox: Sandbox | None = None
        self._items = 0

    def ready(self) -> Site:
        if self._sandbox is None:
            try:
                self._sandbox = open_sandbox(*self._options)
            except PopuloraError as error:
                error.problem = f"{socket.gethostname()}: {error.problem}"
                raise
        own = {"name": self._sandbox.name, "identity": self._sandbox.identity}
        return Site.here(own | {CODE: code_digest()})

    def perform(self, jobs: Sequence[Job], repeat: bool) -> Judged:
        """Run the jobs; an outage of this machine's sandbox is an error, and no result."""
        assert self._sandbox is not None, "ready comes first"
        self._items, started = 0, time.perf_counter()
        results = self._sandbox.run(jobs, self._count, repeat=repeat)
        if self._sandbox.outage is not None:
            raise self._sandbox.outage
        return Judged(results, socket.gethostname(), os.getpid(), time.perf_counter() - started)

    def items(self) -> int:
        """Items finished in the current shard."""
        return self._items

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()

    def _count(self, done: int) -> None:
        self._items = done


def _outage(lost: WorkerLost) -> SandboxUnavailable:
    return SandboxUnavailable(lost.problem, got=lost.got, fix=lost.fix)
