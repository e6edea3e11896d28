"""A sandbox over all machines of a Ray cluster: each keeps a warm pool of its own, and they share the jobs."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from populora_core.compute.crew import Crew, Hand, Task
from populora_core.compute.ray_cluster import RayCluster
from populora_core.sandbox.backends import SandboxKind, open_sandbox
from populora_core.sandbox.jobs import Job, JobResult, Limits, Sandbox
from populora_core.sandbox.pool import MAX_LOSSES, outer_seconds
from populora_core.sandbox.status import Status
from populora_core.support.errors import PopuloraError, SandboxUnavailable, WorkerLost

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
        SandboxUnavailable: no machine has the sandbox, or they differ, which would make results depend on chance.
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
        self._crew = Crew("a sandbox on Ray", self._places, self._hire, self._welcome)
        try:
            self._crew.ready(len(self._places()))
        except WorkerLost as lost:
            self.close()
            raise _outage(lost) from lost
        except BaseException:
            self.close()
            raise

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int], None] | None = None, *, repeat: bool = False
    ) -> list[JobResult]:
        """See `Sandbox.run`; progress comes a shard at a time."""
        if self._closed:
            raise SandboxUnavailable("the sandbox is closed", remedy="open another with open_sandbox")
        with self._lock:
            if not jobs:
                return []
            self.outage = None
            nodes = len(self._places())
            size = min(max(math.ceil(len(jobs) / (PER_NODE * max(nodes, 1))), JOBS[0]), JOBS[1])
            parts = [jobs[start : start + size] for start in range(0, len(jobs), size)]
            try:
                return self._run(parts, nodes, progress or (lambda done: None), repeat)
            except (WorkerLost, SandboxUnavailable) as lost:
                self.outage = lost if isinstance(lost, SandboxUnavailable) else _outage(lost)
                return [JobResult(job.job_id, Status.INFRASTRUCTURE, error=lost.problem) for job in jobs]

    def close(self) -> None:
        """End every pool; returns when they are gone."""
        self._closed = True
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(
        self, parts: Sequence[Sequence[Job]], nodes: int, progress: Callable[[int], None], repeat: bool
    ) -> list[JobResult]:
        done = 0

        def further(more: int) -> None:
            nonlocal done
            done += more
            progress(done)

        tasks: list[Task[dict[str, Any]]] = [
            Task(
                start=partial(_ask, part, repeat),
                items=lambda ran: len(ran["results"]),
                seconds=min(self._seconds, len(part) * MAX_LOSSES * outer_seconds(self.limits) + 60.0),
            )
            for part in parts
        ]
        answers = self._crew.run(tasks, nodes, further)
        for number, (ran, attempts) in enumerate(answers):
            told = {name: ran[name] for name in ("host", "pid", "seconds")}
            self.records.append(
                {"function": "sandbox", "shard": number, **told, "attempts": attempts, "reused": False}
            )
        return [result for ran, _ in answers for result in ran["results"]]

    def _places(self) -> Mapping[str, int]:
        """One pool for each machine that computes at all."""
        return {node.node_id: 1 for node in self._cluster.nodes() if node.cpus}

    def _hire(self, node_id: str) -> Any:
        options = {
            "num_cpus": 0,  # stages take turns: what computes shards is idle while programs are judged
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
        }
        return ray.remote(SandboxWorker).options(**options).remote(*self._options)

    def _welcome(self, met: Greeting) -> None:
        self.name, self.identity = self.name or met.name, self.identity or met.identity
        if met.identity != self.identity:
            raise SandboxUnavailable(
                f"the sandbox of {met.host} is not that of the other machines, so verdicts could differ",
                expected=self.identity,
                came=met.identity,
                remedy="install the same Python and build the same image on every machine: populora image build",
            )


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a machine's sandbox says of itself before it works."""

    host: str
    pid: int
    name: str
    identity: str


class SandboxWorker:
    """The actor: a sandbox of its machine."""

    def __init__(self, kind: SandboxKind, limits: Limits, workers: int, hash_seed: int) -> None:
        self._options = kind, limits, workers, hash_seed
        self._sandbox: Sandbox | None = None

    def ready(self) -> tuple[str, Any]:
        host = socket.gethostname()
        try:
            self._sandbox = open_sandbox(*self._options)
        except PopuloraError as error:
            error.problem = f"{host}: {error.problem}"
            return "error", error
        return "result", Greeting(host, os.getpid(), self._sandbox.name, self._sandbox.identity)

    def run(self, jobs: Sequence[Job], repeat: bool) -> tuple[str, Any]:
        """Results with who made them; an outage of this machine's sandbox is an error, and no result."""
        assert self._sandbox is not None, "ready comes first"
        started = time.perf_counter()
        try:
            results = self._sandbox.run(jobs, repeat=repeat)
        except SandboxUnavailable as error:
            return "error", error
        if self._sandbox.outage is not None:
            return "error", self._sandbox.outage
        host, pid, seconds = socket.gethostname(), os.getpid(), time.perf_counter() - started
        return "result", {"results": results, "host": host, "pid": pid, "seconds": seconds}

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()


def _ask(part: Sequence[Job], repeat: bool, hand: Hand) -> Any:
    return hand.actor.run.remote(part, repeat)


def _outage(lost: WorkerLost) -> SandboxUnavailable:
    return SandboxUnavailable(lost.problem, came=lost.came, remedy=lost.remedy)
