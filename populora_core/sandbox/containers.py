"""The docker backend: each sandbox is a warm, hardened container with the runner as its PID 1.

The only way in or out is a unix socket in a folder of our own. When this process ends, however it ends, the
socket closes, the runner exits, and the daemon removes the container.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import LogConfig, Mount, Ulimit
from requests.exceptions import RequestException

from populora_core.sandbox.connection import READ_BYTES, Connection
from populora_core.sandbox.host import RUNNER_BYTES, runner_digest, runner_settings
from populora_core.sandbox.jobs import Limits
from populora_core.support import leftovers
from populora_core.support.errors import SandboxUnavailable, first_line
from populora_core.support.processes import Owner

BUILD = "populora image build"
LABEL = "populora.sandbox"
SOCKET_OUTSIDE = "/link/socket"  # in a folder of temporary files
LINK_INSIDE = "/link"
SOCKET_INSIDE = f"{LINK_INSIDE}/socket"
DAEMON_SECONDS = 20  # for one call of the daemon; it answers in milliseconds unless it is in trouble
READY_SECONDS = 0.3  # the usual time from start to connection; later the daemon is asked what happened
ALREADY_GOING = (404, 409)  # it is gone, or somebody else is removing it

Failure = (DockerException, RequestException, OSError)


def image_tag() -> str:
    """The image of this version's runner, so that an image of another version is never taken for it."""
    return f"populora-verifier:{runner_digest()}"


def connect_daemon() -> docker.DockerClient:
    """A client of the local Docker daemon.

    Raises:
        SandboxUnavailable: none answers, or it runs on another machine.
    """
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        raise SandboxUnavailable(
            "the docker sandbox needs a daemon on this machine",
            expected="DOCKER_HOST unset, or unix://...",
            got=host,
            fix="unset DOCKER_HOST, or choose the bubblewrap sandbox",
        )
    try:
        return docker.from_env(timeout=DAEMON_SECONDS)
    except Failure as error:
        raise SandboxUnavailable(
            "no Docker daemon answers",
            expected=f"one that answers within {DAEMON_SECONDS:g} s at {host}",
            got=reason(error),
            fix=_daemon(error),
        ) from error


class DockerBackend:
    """See `Backend`.

    Args:
        gvisor: have gVisor's `runsc` run the containers: a second kernel between a program and the host's.

    Raises:
        SandboxUnavailable: no daemon answers, the image of this version's runner is not built, or the daemon knows no
            runtime of the name `runsc`.
    """

    patience_seconds = 60.0  # a daemon that is restarted is back by then

    def __init__(self, gvisor: bool = False) -> None:
        self.name = "gvisor" if gvisor else "docker"
        self._runtime = GVISOR if gvisor else {}
        client = connect_daemon()
        try:
            self._image = client.images.get(image_tag()).id
            runtimes = client.info()["Runtimes"]
        except ImageNotFound:
            raise SandboxUnavailable(
                "the sandbox image is not built",
                expected=image_tag(),
                fix=f"{BUILD}, or {BUILD} --from-debootstrap where no image registry can be reached",
            ) from None
        except Failure as error:
            raise SandboxUnavailable(
                "the Docker daemon fails", got=reason(error), fix=_daemon(error)
            ) from error
        if gvisor and RUNSC not in runtimes:
            raise SandboxUnavailable(
                f"the Docker daemon has no runtime {RUNSC}",
                got=", ".join(sorted(runtimes)),
                fix="install gVisor and name it in /etc/docker/daemon.json, as docs/verifier.md shows",
            )
        self.contents = self._image.removeprefix("sha256:")[:16]
        with suppress(*Failure):  # leftovers harm no one; the next start sweeps again
            sweep(client)
        leftovers.sweep()

    def connect(self, limits: Limits, hash_seed: int) -> Connection:
        return ContainerConnection(self.options(limits, hash_seed))

    def options(self, limits: Limits, hash_seed: int) -> dict[str, Any]:
        """Options of the container for the daemon; the connection adds the link."""
        return {
            "image": self._image,
            "command": [runner_settings(limits, spare_uids=True, socket=SOCKET_INSIDE)],
            "environment": {"PYTHONHASHSEED": str(hash_seed)},
            "mem_limit": limits.memory_bytes + RUNNER_BYTES,
            "memswap_limit": limits.memory_bytes + RUNNER_BYTES,
            **HARDENING,
            **self._runtime,
        }


HARDENING: dict[str, Any] = {
    "network_mode": "none",
    "read_only": True,  # and no tmpfs, in which one program could leave something for the next
    "cap_drop": ["ALL"],
    # The runner's, to give each child an id of its own and to end it.
    "cap_add": ["SETUID", "SETGID", "KILL"],
    "security_opt": ["no-new-privileges"],
    "pids_limit": 16,
    "nano_cpus": 10**9,
    "ipc_mode": "none",
    "log_config": LogConfig(type="none"),
    "ulimits": [Ulimit(name="core", soft=0, hard=0)],
    "user": "root",
    "auto_remove": True,
}
RUNSC = "runsc"
GVISOR: dict[str, Any] = {
    "runtime": RUNSC,
    "pids_limit": 512,
}  # the second kernel's own threads count as well


class ContainerConnection:
    """A container being started in the background, then running; linked by a unix socket."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._said = ""
        self._ended = threading.Event()
        self._accepted = threading.Event()
        self._container: Any = None
        self._link: socket.socket | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = ""
        try:
            folder = str(leftovers.make_folder("sandbox", len(SOCKET_OUTSIDE)))
            link = Path(folder + SOCKET_OUTSIDE)
            link.parent.mkdir()
            # Inside, root without any capability has to get at the socket; outside, the folder around it is
            # closed to everybody else.
            link.parent.chmod(0o711)
            self._listener.bind(str(link))
            link.chmod(0o666)
            self._listener.listen(1)
        except OSError as error:
            self._listener.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise SandboxUnavailable(
                "a sandbox cannot be linked to this process",
                expected=f"room for a folder in {tempfile.gettempdir()}",
                got=str(error),
                fix="make room there, or set TMPDIR to another folder",
            ) from error
        self._folder = Path(folder)
        self._listener.setblocking(False)
        mount = Mount(LINK_INSIDE, str(link.parent), type="bind", read_only=True)
        options = {**options, "mounts": [mount], "labels": {LABEL: str(Owner.this_process())}}
        self._starter = threading.Thread(
            target=self._start, args=(options,), name="populora-container", daemon=True
        )
        self._starter.start()

    @property
    def pid(self) -> int:
        if self._container is None:
            return 0
        self._container.reload()
        return int(self._container.attrs["State"]["Pid"])

    @property
    def container(self) -> Any:
        """The docker client's object; None until the daemon has made the container."""
        return self._container

    def register(self, poll: select.poll, sending: bool) -> None:
        if self._link is None:
            poll.register(self._listener, select.POLLIN)
        else:
            poll.register(self._link, select.POLLIN | (select.POLLOUT if sending else 0))

    def send(self, data: bytes) -> int:
        if self._link is None:
            return 0
        try:
            return self._link.send(data)
        except BlockingIOError:
            return 0
        except ConnectionResetError as error:
            raise BrokenPipeError from error

    def receive(self) -> bytes | None:
        try:
            if self._link is None:
                self._link, _ = self._listener.accept()
                self._link.setblocking(False)
                self._accepted.set()
            return self._link.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b""

    def last_words(self) -> str:
        return self._said

    def hang_up(self) -> None:
        self._ended.set()
        self._accepted.set()
        self._listener.close()
        if self._link is not None:
            self._link.close()

    def end(self) -> None:
        self.hang_up()
        self._starter.join()
        if self._container is not None:
            with suppress(*Failure):  # it removes itself as well, and a daemon that is gone cannot
                self._container.remove(force=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, options: dict[str, Any]) -> None:
        """Create and start the container, in a thread, as the daemon takes its time."""
        try:
            self._container = docker.from_env(timeout=DAEMON_SECONDS).containers.create(**options)
            if self._ended.is_set():
                return
            self._container.start()
            while not self._accepted.wait(READY_SECONDS):
                self._container.reload()
                if self._container.status in ("exited", "dead"):
                    self._give_up("the container ended before its runner was ready")
                    return
        except NotFound:
            self._give_up("the container ended and was removed before its runner was ready")
        except Failure as error:
            self._give_up(reason(error))

    def _give_up(self, reason: str) -> None:
        """Say why, and wake who waits for the runner: what connects in its place ends at once."""
        self._said = reason
        if not self._ended.is_set():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link, suppress(OSError):
                link.connect(f"{self._folder}{SOCKET_OUTSIDE}")


def sweep(client: docker.DockerClient) -> list[str]:
    """Remove the containers of processes that no longer run.

    Returns:
        What was removed, a line each.
    """
    removed = []
    for container in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
        owner = Owner.parse(container.labels[LABEL])
        if owner is not None and owner.is_gone():
            try:
                container.remove(force=True)
            except APIError as error:
                if error.status_code not in ALREADY_GOING:
                    raise
            else:
                removed.append(f"removed the sandbox {container.name} of process {owner.pid}")
    return removed


def reason(error: BaseException) -> str:
    """The innermost cause in one line: the docker client wraps it several times."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return first_line(error)


def _daemon(error: BaseException) -> str:
    text = str(error)
    if "ermission denied" in text:
        return "sudo usermod -aG docker $USER, then log in again"
    if shutil.which("dockerd") is None:
        return "apt-get install docker.io"
    return "sudo systemctl start docker (without systemd: sudo dockerd &)"
