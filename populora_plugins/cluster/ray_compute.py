"""Shards on a Ray cluster: actors that keep the frozen base resident, and take adapters by content hash."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from populora_core.compute.work import Committed, Shard, Worker
from populora_core.config.machinery import ComputeSection
from populora_core.sampler.spec import ModelSpec
from populora_core.sharing.places import LocalObjects, open_objects
from populora_core.support import durable, trust
from populora_core.support.aliases import Progress
from populora_core.support.devices import hold_device
from populora_core.support.errors import BaseModelError, ClusterUnavailable, StoreUnavailable
from populora_core.support.revision import version_of
from populora_plugins.cluster.actor_pool import ActorPool, Call, Site
from populora_plugins.cluster.alike import CODE, code_digest, require_alike
from populora_plugins.cluster.parcels import Inbox, Outbox
from populora_plugins.cluster.ray_cluster import RayCluster

PACKAGES = ("torch", "transformers", "populora-core")
"""Packages whose versions must be the same on every machine; Ray sees to its own and Python's."""


class RayCompute:
    """See `Compute`. An actor a shard; those that the cluster has no room for now wait for it.

    Args:
        plan: read at each `run`, so that its deadline may change.

    Raises:
        ClusterUnavailable: no machine of the cluster can hold even one shard.
    """

    def __init__(self, cluster: RayCluster, plan: ComputeSection, spec: ModelSpec) -> None:
        self.plan = plan
        self._cluster, self._spec = cluster, spec
        self._require_room()
        self.pool = ActorPool("a worker on Ray", lambda: range(plan.shards), self._start, _require_versions)

    def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
        self._require_room()
        store = open_objects(shards[0].store)
        if isinstance(store, LocalObjects):
            with durable.writing(store.root):
                store.root.mkdir(parents=True, exist_ok=True)  # by it workers know that they share it
        outbox = Outbox(store)
        calls = [Call((replace(shard, work=outbox.pack(shard.work)),)) for shard in shards]
        self.pool.run(calls, self.plan.shard_seconds, progress or (lambda done: None))
        return [replace(call.result, attempts=call.attempts) for call in calls]

    @property
    def pids(self) -> Sequence[int]:
        return ()  # those of the cluster stand for them

    def close(self) -> None:
        self.pool.close()

    def _require_room(self) -> None:
        nodes = self._cluster.nodes()
        if not any(n.cpus >= self.plan.shard_cpus and n.gpus >= self.plan.shard_gpus for n in nodes):
            raise ClusterUnavailable(
                "no machine of the Ray cluster can hold a shard",
                expected=f"{self.plan.shard_cpus:g} CPUs and {self.plan.shard_gpus:g} GPUs on one machine "
                "(compute.shard_cpus, compute.shard_gpus)",
                got="; ".join(f"{node.host}: {node.cpus:g} CPUs, {node.gpus:g} GPUs" for node in nodes)
                or "none",
                fix="add such a machine to the cluster, or ask for less",
            )

    def _start(self, place: int) -> Any:
        options = {
            "num_cpus": self.plan.shard_cpus,
            "num_gpus": self.plan.shard_gpus,
            "max_concurrency": 2,  # one performs, the other tells how far it is
            "scheduling_strategy": "SPREAD",
        }
        worker = ray.remote(ShardWorker).options(**options)
        return worker.remote(self._spec, self.plan.threads, int(self.plan.shard_gpus), trust.named())


class ShardWorker:
    """The actor: a `Worker` with an inbox.

    Args:
        gpus: number of GPUs that it holds against runs on this machine that are not the cluster's.
        trusted: the places that it may import.
    """

    def __init__(self, spec: ModelSpec, threads: int, gpus: int, trusted: Sequence[str]) -> None:
        trust.take(trusted)
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # before torch comes
            os.environ[variable] = str(threads)
        self._spec = spec
        self._threads, self._gpus = threads, gpus
        self._worker: Worker | None = None
        self._inbox: Inbox | None = None
        self._exit = ExitStack()
        self._items = 0

    def ready(self) -> Site:
        if not self._spec.base.folder().is_dir():
            raise BaseModelError(
                f"{socket.gethostname()} has no base model in {self._spec.base.folder()}",
                expected="the same checkpoint folder on every machine of the cluster, or a shared one",
                got="no such folder",
                fix="copy the base model there under the same path, or set base.path to a shared folder",
            )
        return Site.here(versions())

    def perform(self, shard: Shard) -> Committed:
        """See `Worker.perform`."""
        store = open_objects(shard.store)
        if isinstance(store, LocalObjects) and not store.root.is_dir():
            raise StoreUnavailable(
                f"{socket.gethostname()} does not see {store.root}, where shards are committed",
                expected="a folder that all machines of the cluster share",
                got="no such folder",
                fix="set store.url to a shared folder or to s3://bucket/prefix",
            )
        self._items = 0
        worker, inbox = self._start()
        return worker.perform(replace(shard, work=inbox.unpack(shard.work, store)), self._count)

    def items(self) -> int:
        """Items finished in the current shard."""
        return self._items

    def close(self) -> None:
        """End what the sampler started, and remove the inbox."""
        self._exit.close()

    def _start(self) -> tuple[Worker, Inbox]:
        if self._worker is None or self._inbox is None:
            if self._gpus:
                self._exit.enter_context(hold_device(self._spec.base.device, self._gpus))
            temporary = Path(tempfile.gettempdir())
            durable.sweep(temporary)  # what killed workers left
            folder = durable.temporary_name(temporary, "inbox")
            folder.mkdir()
            self._exit.callback(shutil.rmtree, folder, ignore_errors=True)
            self._worker, self._inbox = Worker(self._spec, self._threads), Inbox(folder)
            self._exit.callback(self._worker.close)
        return self._worker, self._inbox

    def _count(self, more: int) -> None:
        self._items += more


def versions() -> dict[str, str]:
    """Versions of the packages that decide results, and the digest of our code: one version has many revisions."""
    return {package: version_of(package) or "absent" for package in PACKAGES} | {CODE: code_digest()}


def _require_versions(site: Site) -> None:
    require_alike(site.host, site.environment, versions())
