"""The link to one sandbox process, however it was started: bytes out, bytes in, and its end."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from populora_core.sandbox import cgroups
from populora_core.sandbox.host import RUNNER_BYTES, Contents, runner_digest, sandbox_contents
from populora_core.sandbox.jobs import Limits
from populora_core.support.errors import SandboxUnavailable

READ_BYTES = 1 << 16
END_SECONDS = 10.0


class Connection(Protocol):
    """A runner being started or running; nothing here waits but `end`."""

    @property
    def pid(self) -> int:
        """Process id on the host of what holds the runner; 0 while it is being started."""
        ...

    def register(self, poll: select.poll, sending: bool) -> None:
        """Have the poll report when there is something to receive or, while sending, room to send."""
        ...

    def send(self, data: bytes) -> int:
        """Send what fits now; how much that was.

        Raises:
            BrokenPipeError: the other side has ended.
        """
        ...

    def receive(self) -> bytes | None:
        """Bytes received so far; empty if the other side has ended, None if nothing is there yet."""
        ...

    def last_words(self) -> str:
        """The last message of the other side, or of whoever started it, when it failed."""
        ...

    def hang_up(self) -> None:
        """Close the link: the runner takes that as its end, also in the middle of a program."""
        ...

    def end(self) -> None:
        """Hang up, and return when the sandbox and its processes are gone."""
        ...


class Backend(Protocol):
    """A way of making sandboxes.

    Attributes:
        contents: digest of what the sandbox is made of; results may differ between digests.
        patience_seconds: how long to keep trying, in the middle of a run, to start a sandbox that worked before.
    """

    name: str
    contents: str
    patience_seconds: float

    def connect(self, limits: Limits, hash_seed: int) -> Connection:
        """Begin to start a sandbox.

        Args:
            hash_seed: PYTHONHASHSEED of the runner and all its children, in [1, 2**32).

        Raises:
            SandboxUnavailable: it cannot be started.
        """
        ...


@dataclass(slots=True)
class CommandBackend:
    """A backend whose sandbox is a process of ours: the command line makes it from what it shall contain."""

    name: str
    command: Callable[[Contents], list[str]]
    contents: str = field(default_factory=runner_digest)
    patience_seconds: float = 0.0

    def connect(self, limits: Limits, hash_seed: int) -> Connection:
        command = self.command(sandbox_contents(limits, hash_seed))
        return ProcessConnection(command, cgroups.make(limits.memory_bytes + RUNNER_BYTES))


class ProcessConnection:
    """A sandbox process with the runner inside as its PID 1, linked by pipes.

    Args:
        group: what it runs in, with all its processes; None for none of its own.
    """

    def __init__(self, command: Sequence[str], group: cgroups.Group | None = None) -> None:
        self._group = group
        try:
            self._process = subprocess.Popen(
                group.around(command) if group else command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={},
                bufsize=0,
                start_new_session=True,  # an interrupt from the terminal is for the host to handle
            )
        except OSError as error:
            raise SandboxUnavailable("the sandbox cannot be executed", got=str(error)) from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._stderr = self._process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def register(self, poll: select.poll, sending: bool) -> None:
        poll.register(self._stdout, select.POLLIN)
        if sending:
            poll.register(self._stdin, select.POLLOUT)

    def send(self, data: bytes) -> int:
        return self._stdin.write(data) or 0

    def receive(self) -> bytes | None:
        return self._stdout.read(READ_BYTES)

    def last_words(self) -> str:
        return (self._stderr.read(READ_BYTES) or b"").decode(errors="replace").strip()

    def hang_up(self) -> None:
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def end(self) -> None:
        self.hang_up()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._group is not None:
            self._group.remove()
