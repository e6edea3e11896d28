"""The Ray cluster that a run's shards go to: the operator's, or one of this machine for as long as the run is open.

Only this module starts, joins and leaves Ray. It joins none that the settings do not name, and what it started ends
with it: `pids` are recorded in the run's heartbeat, from which `populora reap` ends what a killed run left.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from populora_core.support import leftovers
from populora_core.support.errors import ClusterUnavailable, ConfigError, first_line
from populora_core.support.processes import GONE, descendants, started

OBJECTS_BYTES = 256 << 20  # of Ray's own memory: data goes to the store, so little passes through it
TOKEN = "RAY_AUTH_TOKEN_PATH"
END_SECONDS = 5.0
LISTEN_SECONDS = 10.0
RAY_CHARS = 74  # of the longest socket path in Ray's own folder
STARTS = 3  # Ray gives itself 30 seconds, which a busy machine may need more than once


@dataclass(frozen=True, slots=True)
class Node:
    """A living machine of the cluster, and what of it Ray may give out in all."""

    node_id: str
    host: str
    cpus: float
    gpus: float


class RayCluster:
    """A connection of this process; there can be one at a time.

    Args:
        address: host:port of a cluster to join; empty starts one of this machine alone.

    Attributes:
        folder: of a cluster that was started here, for its token and its logs; None before and after.

    Raises:
        ConfigError: Ray is not installed.
        ClusterUnavailable: the cluster does not answer or refuses, or none can be started.
    """

    def __init__(self, address: str) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # both are read when Ray is imported, or soon after
        os.environ.setdefault("RAY_worker_niceness", "0")  # else 15: last of all on a busy machine
        if not address:  # Ray's only way to listen on loopback alone; beyond it no one has to be heard
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        try:
            import ray
        except ImportError as error:
            raise ConfigError(
                'compute.backend = "ray" needs Ray, which is not installed',
                expected="the extra `ray`",
                fix="pip install -e '.[ray]' on every machine of the cluster",
            ) from error
        if not address:  # whoever imported Ray before did so without the variable above
            from ray._private import ray_constants

            ray_constants.ENABLE_RAY_CLUSTER = False
        self.ray: Any = ray
        self.address = address
        self.folder: Path | None = None
        self._token: str | None = os.environ.get(TOKEN)
        self._heads: tuple[int, ...] = ()
        if ray.is_initialized():
            raise ClusterUnavailable(
                "this process works with a Ray cluster already",
                fix="end the other session first; one process serves one run on Ray",
            )
        for attempt in range(STARTS):
            try:
                self._begin()
                return
            except Exception as error:  # Ray raises bare ones too
                if address or attempt == STARTS - 1:
                    raise _unavailable(address, error) from error

    def _begin(self) -> None:
        before = set(_children())
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            self.ray.init(**self._options())
        except BaseException:
            self._heads = self._started_since(before)
            self.close()
            raise
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in handlers.items():  # Ray puts its own in their place
                    signal.signal(number, handler)
        self._heads = self._started_since(before)

    def _started_since(self, before: set[int]) -> tuple[int, ...]:
        return () if self.address else tuple(set(_children()) - before)

    @property
    def pids(self) -> Sequence[int]:
        """The processes of a cluster that was started here; those of another are not ours."""
        return [pid for head in self._heads for pid in (head, *descendants(head))]

    def nodes(self) -> list[Node]:
        """The machines that are there now."""
        return [
            Node(
                node["NodeID"],
                node["NodeManagerHostname"],
                node["Resources"].get("CPU", 0.0),
                node["Resources"].get("GPU", 0.0),
            )
            for node in self.ray.nodes()
            if node["Alive"]
        ]

    def close(self) -> None:
        """Leave the cluster; end it, and all its processes, where it was started here."""
        ours = {pid: when for pid in self.pids if (when := started(pid)) != GONE}
        self.ray.shutdown()
        for pid in _left(ours):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _left(ours)  # killed processes take a moment to end
        self._heads = ()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
            if self._token is None:
                os.environ.pop(TOKEN, None)
            else:
                os.environ[TOKEN] = self._token

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address:
            _require_listener(self.address)
            return options | {"address": self.address}
        leftovers.sweep()
        self.folder = leftovers.make_folder("ray", RAY_CHARS)
        token = self.folder / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        os.environ[TOKEN] = str(
            token
        )  # of this cluster alone; what the operator has for others stays as it is
        return options | {
            "address": "local",
            "include_dashboard": False,
            "object_store_memory": OBJECTS_BYTES,
            "_temp_dir": str(self.folder / "ray"),
        }


def _left(processes: Mapping[int, str]) -> list[int]:
    """List the processes that have not ended after a while, given each one's start time."""
    deadline = time.monotonic() + END_SECONDS
    while (
        left := [pid for pid, when in processes.items() if started(pid) == when]
    ) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _children() -> Sequence[int]:
    """The processes that this one started."""
    return descendants(os.getpid(), depth=1)


def _require_listener(address: str) -> None:
    """Raise OSError or ValueError unless somebody listens there; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("it is not of the form host:port")
    socket.create_connection((host.strip("[]"), int(port)), LISTEN_SECONDS).close()


def _unavailable(address: str, error: Exception) -> ClusterUnavailable:
    if address:
        return ClusterUnavailable(
            f"the Ray cluster at {address} cannot be joined",
            expected="a cluster of the same Ray and Python versions, and its token in RAY_AUTH_TOKEN_PATH",
            got=first_line(error),
            fix="start it with `ray start --head`, or fix compute.address; empty starts one for the run",
        )
    return ClusterUnavailable(
        "Ray cannot be started on this machine",
        got=first_line(error),
        fix='make room in memory and in the temporary folder, or set compute.backend = "local"',
    )
