"""Gain of two nodes of a Ray cluster over one, against that of two plain processes, and cost of a shard.

    python -m bench.scale_nodes [samples]

Two nodes of one core each on this machine: each is pinned to a core, and so is each of two plain processes that do
the same work without Ray. A gain is twice the wall time of one, over that of two with as much work each. All four
are timed in turn in every round, so that a slow moment meets all. The sandbox is one whose processes inherit the
pin, which containers do not. A shard's overhead is the wall time of one with nothing to do, warm: its way there
and back, and its commit.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from bench.harness import BenchRow, as_json, median, ratio, wall_seconds
from populora_core.compute.shards import Shards
from populora_core.compute.work import Generate, Prompt, Worker
from populora_core.config.machinery import ComputeSection
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.model.base import base_digest
from populora_core.problems.dialects import dialect
from populora_core.sampler.spec import ModelSpec
from populora_core.sandbox.backends import SandboxKind, open_sandbox
from populora_core.sandbox.jobs import Job, Limits
from populora_core.support.aliases import Say
from populora_core.support.errors import SandboxUnavailable

SAMPLES = 15
COMPLETIONS = 48
TOKENS = 64
PROGRAMS = 64  # one shard of the sandbox
PROGRAM = """def f(n):
    total = 0
    for i in range(n):
        total += i * i % 7
    return total"""
ROUNDS = "(60000,)"  # some ten milliseconds
NODE_MIB = 100
KINDS: tuple[SandboxKind, ...] = ("bubblewrap", "launcher")


def rows(samples: int, say: Say) -> list[BenchRow]:
    """`two_nodes_over_two_processes.verify`, `.solve`, and `shard_overhead_seconds`.

    Raises:
        SandboxUnavailable: no sandbox works here whose processes can be pinned.
        ClusterUnavailable: Ray does not start.
    """
    taken: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kind, spec = _sandbox_kind(), _spec()
        say("starting two processes and two nodes")
        processes = stack.enter_context(_processes(spec, kind))
        nodes = stack.enter_context(_nodes(spec, kind, folder))
        for work in [*processes.values(), *nodes.values()]:
            work(2)  # loads, and fills caches
        for sample in range(samples):
            say(f"round {sample + 1} of {samples}")
            for name in ("verify", "solve"):
                for kind_name, works in (("processes", processes), ("nodes", nodes)):
                    one, two = (wall_seconds(partial(works[name], workers)) for workers in (1, 2))
                    taken[f"{kind_name} {name}"].append(2 * one / two)
            taken["empty"].append(wall_seconds(partial(nodes["empty"], 1)))
    gains = [
        ratio(
            f"two_nodes_over_two_processes.{name}",
            taken[f"nodes {name}"],
            taken[f"processes {name}"],
            ">= 0.9",
        )
        for name in ("verify", "solve")
    ]
    told = [
        median(f"gain.{name.replace(' ', '.')}", taken[name], "ratio")
        for name in sorted(taken)
        if " " in name
    ]
    return [*gains, median("shard_overhead_seconds", taken["empty"], "s", "<= 0.05"), *told]


def _sampling(completions: int) -> Generate:
    text = dialect("compact").propose_prompt("code_o", ())
    return Generate([], [Prompt(None, text, seed, 1.0, 1.0, TOKENS) for seed in range(completions)])


def _jobs(count: int) -> list[Job]:
    return [Job(str(n), PROGRAM, (ROUNDS,)) for n in range(count)]


def _spec() -> ModelSpec:
    base = BaseSection()
    return ModelSpec(base, AdapterSection(), base_digest(base.folder()))


def _sandbox_kind() -> SandboxKind:
    for kind in KINDS:
        try:
            open_sandbox(kind, Limits(), workers=1).close()
            return kind
        except SandboxUnavailable as error:
            last = error
    raise last


@contextmanager
def _processes(spec: ModelSpec, kind: SandboxKind) -> Iterator[dict[str, Callable[[int], None]]]:
    """Two plain processes, each pinned to a core: name of a work -> does it on the first one, or on both."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for core in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, core, spec, kind), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)

    def both(name: str, workers: int) -> None:
        for pipe in pipes[:workers]:
            pipe.send(name)
        for pipe in pipes[:workers]:
            pipe.recv()

    try:
        yield {name: partial(both, name) for name in ("verify", "solve")}
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _serve(pipe: Connection, core: int, spec: ModelSpec, kind: SandboxKind) -> None:
    _pin(core)
    worker = Worker(spec, threads=1)
    with open_sandbox(kind, Limits(), workers=1) as sandbox:
        while True:
            if pipe.recv() == "solve":
                _sampling(COMPLETIONS).run(worker, Path(), lambda done: None)
            else:
                sandbox.run(_jobs(PROGRAMS))
            pipe.send("done")


@contextmanager
def _nodes(spec: ModelSpec, kind: SandboxKind, folder: Path) -> Iterator[dict[str, Callable[[int], None]]]:
    """Two nodes of a cluster, each pinned to a core: name of a work -> does one shard of it, or two."""
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    settings = {"RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    os.environ |= settings  # equal priority: the plain processes have it too
    from ray.cluster_utils import Cluster

    from populora_plugins.cluster.ray_cluster import RayCluster
    from populora_plugins.cluster.ray_compute import RayCompute
    from populora_plugins.cluster.ray_sandbox import ShardedSandbox

    number = 0

    def shards(work: Generate, workers: int) -> None:
        nonlocal number
        number += 1
        Shards(compute, f"work {number}", folder / f"shards{number}").map([work] * workers)

    with ExitStack() as stack:
        cluster = Cluster()
        stack.callback(cluster.shutdown)
        cores = os.sched_getaffinity(0)
        for core in range(2):
            _pin(core)
            cluster.add_node(num_cpus=1, object_store_memory=NODE_MIB << 20, include_dashboard=False)
        os.sched_setaffinity(0, cores)
        joined = RayCluster(cluster.address)
        stack.callback(joined.close)
        plan = ComputeSection(backend="ray")
        compute = RayCompute(joined, plan, spec)
        stack.callback(compute.close)
        sandbox = ShardedSandbox(joined, kind, Limits(), 1, 0, plan.shard_seconds)
        stack.callback(sandbox.close)
        yield {
            "verify": lambda workers: _discard(sandbox.run(_jobs(PROGRAMS * workers))),
            "solve": partial(shards, _sampling(COMPLETIONS)),
            "empty": partial(shards, _sampling(0)),
        }


def _pin(core: int) -> None:
    """This process and what it starts from now on run on one core."""
    cores = sorted(os.sched_getaffinity(0) | set(range(os.cpu_count() or 1)))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


def _discard(results: Sequence[object]) -> None:
    del results


if __name__ == "__main__":
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES
    print(as_json("scale", rows(samples, lambda text: print(text, file=sys.stderr))))
