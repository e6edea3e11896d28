"""A Docker daemon of one's own, which may be stopped and started while others use theirs."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from populora_core.sandbox import containers

ANSWER_SECONDS = 120


class Daemon:
    """A daemon without a network, all of whose files lie below one folder."""

    def __init__(self, folder: Path) -> None:
        self.address = f"unix://{folder}/docker.sock"
        self._log = folder / "log"
        options = {
            "host": self.address,
            "pidfile": folder / "pid",
            "data-root": folder / "data",
            "exec-root": folder / "exec",
            "bridge": "none",
            "iptables": "false",
        }
        self._command = ["dockerd", *(f"--{name}={value}" for name, value in options.items())]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start it, again where it ends: it gives a part of its own 15 seconds, and the machine may be busy."""
        for _ in range(4):
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, stdout=log, stderr=log, start_new_session=True
                )
            while not (self._ended() or self._answers()):
                time.sleep(0.02)
            if not self._ended():
                return
        raise AssertionError(self._log.read_text())

    def stop(self) -> None:
        """End it and with it its containers."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(ANSWER_SECONDS)
            self._process = None

    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _answers(self) -> bool:
        try:
            return bool(docker.DockerClient(self.address, timeout=5).ping())
        except containers.Failure:
            return False


@contextmanager
def daemon_with_image() -> Iterator[Daemon]:
    """A running daemon that holds the sandbox's image, as the usual daemon has it."""
    saved = b"".join(docker.from_env().images.get(containers.image_tag()).save(named=True))
    folder = Path(tempfile.mkdtemp(prefix="dockerd-"))
    daemon = Daemon(folder)
    try:
        daemon.start()
        docker.DockerClient(daemon.address, timeout=ANSWER_SECONDS).images.load(saved)
        yield daemon
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)
