"""Shards on a Ray cluster: actors that keep the frozen base resident, and take adapters by content hash."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from populora_core.compute import work
from populora_core.compute.backend import Committed, Shard
from populora_core.compute.crew import Crew, Hand, Task
from populora_core.compute.local import answer
from populora_core.compute.parcels import Inbox, Outbox
from populora_core.compute.ray_cluster import Node, RayCluster
from populora_core.compute.shards import committed
from populora_core.config.sections import ComputeSection
from populora_core.sampler.spec import ModelSpec
from populora_core.sharing.places import LocalObjects, open_objects
from populora_core.support import durable
from populora_core.support.aliases import Progress
from populora_core.support.devices import hold_device
from populora_core.support.errors import BaseModelError, ClusterUnavailable, PopuloraError, StoreUnavailable

PACKAGES = ("torch", "transformers", "populora")
"""Whose versions must be the same on every machine; Ray sees to its own and Python's."""


class RayCompute:
    """See `Compute`. As many actors as there are shards, or as fit the cluster: then they take turns.

    Raises:
        ClusterUnavailable: no machine of the cluster can hold even one shard.
    """

    def __init__(self, cluster: RayCluster, plan: ComputeSection, spec: ModelSpec) -> None:
        self.shards = plan.shards
        self._cluster, self._plan, self._spec = cluster, plan, spec
        self._require_room()
        self._crew = Crew("a worker on Ray", self._places, self._hire, self._welcome, watched=True)

    def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
        self._require_room()
        store = open_objects(shards[0].store)
        if isinstance(store, LocalObjects):
            with durable.writing(store.root):
                store.root.mkdir(
                    parents=True, exist_ok=True
                )  # workers look for it, to know that they share it
        outbox = Outbox(store)

        def task(shard: Shard) -> Task[Committed]:
            packed = replace(shard, payload=outbox.pack(shard.payload, work.OUTPUTS[shard.function]))
            return Task(
                start=partial(_perform, packed),
                items=lambda done: done.items,
                seconds=self._plan.shard_seconds,
                look_up=partial(committed, store, shard.key),
            )

        tasks = [task(shard) for shard in shards]
        answers = self._crew.run(tasks, self.shards, progress or (lambda done: None))
        return [replace(done, attempts=attempts) for done, attempts in answers]

    @property
    def pids(self) -> Sequence[int]:
        return ()  # those of the cluster stand for them

    def close(self) -> None:
        self._crew.close()

    def _room(self, node: Node) -> int:
        """How many shards a machine holds."""
        by_cpus = node.cpus / self._plan.shard_cpus
        return int(min(by_cpus, node.gpus / self._plan.shard_gpus) if self._plan.shard_gpus else by_cpus)

    def _places(self) -> Mapping[str, int]:
        return {node.node_id: self._room(node) for node in self._cluster.nodes()}

    def _require_room(self) -> None:
        nodes = self._cluster.nodes()
        if not any(map(self._room, nodes)):
            raise ClusterUnavailable(
                "no machine of the Ray cluster can hold a shard",
                expected=f"{self._plan.shard_cpus:g} CPUs and {self._plan.shard_gpus:g} GPUs on one machine "
                "(compute.shard_cpus, compute.shard_gpus)",
                came="; ".join(f"{node.host}: {node.cpus:g} CPUs, {node.gpus:g} GPUs" for node in nodes)
                or "none",
                remedy="add such a machine to the cluster, or ask for less",
            )

    def _hire(self, node_id: str) -> Any:
        options = {
            "num_cpus": self._plan.shard_cpus,
            "num_gpus": self._plan.shard_gpus,
            "max_restarts": 0,  # the crew starts another, which has to load the base anyway
            "max_task_retries": 0,
            "max_concurrency": 2,  # one performs, the other tells how far it is
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
        }
        alone = self._plan.shard_gpus >= 1
        return ray.remote(ShardWorker).options(**options).remote(self._spec, self._plan.threads, alone)

    def _welcome(self, met: Greeting) -> None:
        own = versions()
        if met.versions != own:
            raise ClusterUnavailable(
                f"{met.host} has other versions than this machine, so that its results could differ",
                expected=str(own),
                came=str(met.versions),
                remedy="install the same environment on every machine of the cluster",
            )


@dataclass(frozen=True, slots=True)
class Greeting:
    """What an actor says of itself before it works."""

    host: str
    pid: int
    versions: Mapping[str, str]


class ShardWorker:
    """The actor: a `work.Worker` with an inbox.

    Args:
        alone: whether it holds its GPU against runs on this machine that are not the cluster's.
    """

    def __init__(self, spec: ModelSpec, threads: int, alone: bool) -> None:
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # before torch comes
            os.environ[variable] = str(threads)
        self._spec = spec
        self._threads, self._alone = threads, alone
        self._worker: work.Worker | None = None
        self._inbox: Inbox | None = None
        self._exit = ExitStack()
        self._items = 0

    def ready(self) -> tuple[str, Any]:
        if not self._spec.base.folder().is_dir():
            return "error", BaseModelError(
                f"{socket.gethostname()} has no base model in {self._spec.base.folder()}",
                expected="the same checkpoint folder on every machine of the cluster, or a shared one",
                came="no such folder",
                remedy="copy the base model there under the same path, or set base.path to a shared folder",
            )
        return "result", Greeting(socket.gethostname(), os.getpid(), versions())

    def perform(self, shard: Shard) -> tuple[str, Any]:
        """See `local.answer`."""
        try:
            store = open_objects(shard.store)
            if isinstance(store, LocalObjects) and not store.root.is_dir():
                raise StoreUnavailable(
                    f"{socket.gethostname()} does not see {store.root}, where shards are committed",
                    expected="a folder that all machines of the cluster share",
                    came="no such folder",
                    remedy="set store.url to a shared folder or to s3://bucket/prefix",
                )
            worker, inbox = self._start()
            opened = inbox.unpack(shard.payload, store)
            return answer(worker, replace(shard, payload=opened), self._count)
        except PopuloraError as error:
            return "error", error
        finally:
            self._items = 0

    def items(self) -> int:
        """Of the shard that it is at."""
        return self._items

    def close(self) -> None:
        """End what the sampler started, and remove the inbox."""
        self._exit.close()

    def _start(self) -> tuple[work.Worker, Inbox]:
        if self._worker is None or self._inbox is None:
            if self._alone:
                self._exit.enter_context(hold_device(self._spec.base.device))
            temporary = Path(tempfile.gettempdir())
            durable.sweep(temporary)  # what killed workers left
            folder = durable.temporary_name(temporary, "inbox")
            folder.mkdir()
            self._exit.callback(shutil.rmtree, folder, ignore_errors=True)
            self._worker, self._inbox = work.Worker(self._spec, self._threads), Inbox(folder)
            self._exit.callback(self._worker.close)
        return self._worker, self._inbox

    def _count(self, more: int) -> None:
        self._items += more


def versions() -> dict[str, str]:
    """Of the packages that decide results."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def _perform(shard: Shard, hand: Hand) -> Any:
    return hand.actor.perform.remote(shard)
