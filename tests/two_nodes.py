"""A Ray cluster of two nodes on this machine, for tests that take one away."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from conftest import wait_for

from populora_core.support.processes import descendants

STARTS = 4  # of a node: Ray gives itself 30 seconds, and other tests may run beside


class TwoNodes:
    """A cluster of two nodes of one core each, as processes of this machine; the second can go and come back."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        self.add()
        self.second = self.add()

    def add(self) -> Any:
        options = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
        before = self.cluster.list_all_nodes()
        for _ in range(STARTS - 1):
            with suppress(Exception):  # Ray raises bare ones
                return self.cluster.add_node(**options)
            for late in [node for node in self.cluster.list_all_nodes() if node not in before]:
                self.cluster.remove_node(late, allow_graceful=False)
        return self.cluster.add_node(**options)

    @property
    def address(self) -> str:
        return self.cluster.address

    def on_second(self, pid: int) -> bool:
        """Whether a worker's process is one of the second node."""
        (raylet,) = self.second.all_processes["raylet"]
        return pid in descendants(raylet.process.pid)

    def lose_second(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)

    def replace_second(self) -> None:
        """Also waits until the one before is known to be gone: Ray lists a dead node for some seconds."""
        gone, self.second = self.second.node_id, self.add()
        wait_for(lambda: gone not in self._listed())

    @staticmethod
    def _listed() -> set[str]:
        import ray

        return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
