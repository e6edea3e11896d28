"""One sandbox process as its host sees it: frames out, frames in, and a deadline for each answer."""

from __future__ import annotations

import json
import os
import select
import struct
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from populora_core.errors import SandboxUnavailable, WorkerLost
from populora_core.verifier.protocol import Job
from populora_core.verifier.verdicts import Status

REQUEST = struct.Struct(">QI")  # as in the runner: number, length of the body
REPLY = struct.Struct(">QBdI")  # number, status, CPU seconds, length of the payload
READ_BYTES = 1 << 16
START_SECONDS = 30.0
END_SECONDS = 2.0


@dataclass(slots=True)
class Ticket:
    """A job on its way through a pool.

    Attributes:
        index: its position in the batch.
        body: the request as it goes over the wire.
        losses: how many workers were lost while they ran it.
    """

    index: int
    job: Job
    body: bytes
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A runner's reply: the status is the runner's word, the payload the program's."""

    status: Status
    cpu_seconds: float
    payload: bytes


def request_body(job: Job) -> bytes:
    return json.dumps({"program": job.program, "inputs": job.inputs}).encode()


class Worker:
    """A process that answers requests in their order; requests may be sent before it is ready.

    Args:
        command: starts the sandbox with the runner as its PID 1.
        answer_seconds: a request that is not answered in this time means a wedged worker; longer than any
            limit that the runner itself enforces.

    Attributes:
        in_flight: what was sent and not answered, in order; the worker runs the first.
        deadline: when the next answer, or the readiness, is overdue; on the monotonic clock.
        python: version of the interpreter inside; empty until the worker is ready.

    Raises:
        SandboxUnavailable: the command cannot be executed.
    """

    def __init__(self, command: Sequence[str], answer_seconds: float) -> None:
        self.in_flight: deque[Ticket] = deque()
        self.deadline = time.monotonic() + START_SECONDS
        self.python = ""
        self._answer_seconds = answer_seconds
        self._statuses: tuple[Status, ...] = ()
        self._outgoing = b""
        self._incoming = b""
        self._submitted = 0
        self._answered = 0
        self._failure = ""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={},
                bufsize=0,
                start_new_session=True,  # an interrupt from the terminal is for the host to handle
            )
        except OSError as error:
            raise SandboxUnavailable("the sandbox cannot be executed", came=str(error)) from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._stderr = self._process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)

    @property
    def ready(self) -> bool:
        return bool(self._statuses)

    @property
    def pid(self) -> int:
        """Process id on the host; the sandbox ends with this process."""
        return self._process.pid

    def submit(self, ticket: Ticket) -> None:
        self._submitted += 1
        self._outgoing += REQUEST.pack(self._submitted, len(ticket.body)) + ticket.body
        self.in_flight.append(ticket)
        if self.ready and len(self.in_flight) == 1:
            self._restart_clock()

    def register(self, poll: select.poll) -> None:
        """Have the poll report when `exchange` has something to do."""
        poll.register(self._stdout, select.POLLIN)
        if self._outgoing:
            poll.register(self._stdin, select.POLLOUT)

    def exchange(self) -> list[tuple[Ticket, Reply]]:
        """Send and receive what is possible without waiting.

        Returns:
            The tickets that were answered, with their replies.

        Raises:
            WorkerLost: the worker ended, is overdue, or answers out of step.
        """
        self._write()
        self._read()
        answered = []
        while (frame := self._next_frame()) is not None:
            number, status, cpu_seconds, payload = frame
            if not self.ready:
                hello = json.loads(payload)
                self.python, self._statuses = hello["python"], tuple(map(Status, hello["statuses"]))
            elif self.in_flight and number == self._answered + 1:
                self._answered = number
                answered.append(
                    (self.in_flight.popleft(), Reply(self._statuses[status], cpu_seconds, payload))
                )
            else:
                self._failure = f"reply {number} came where {self._answered + 1} was due"
                break
            self._restart_clock()
        if time.monotonic() > self.deadline:
            self._failure = "it did not answer in time"
        if self._failure and not answered:  # otherwise the next exchange says so
            raise self._lost()
        return answered

    def hang_up(self) -> None:
        """Close the pipes: the runner takes that as its end, also in the middle of a program."""
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def end(self) -> None:
        """End the sandbox; returns when its processes are gone."""
        self.hang_up()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _restart_clock(self) -> None:
        self.deadline = time.monotonic() + self._answer_seconds if self.in_flight else float("inf")

    def _write(self) -> None:
        if self._outgoing:
            try:
                count = self._stdin.write(self._outgoing) or 0
            except BrokenPipeError:
                self._failure, count = "it ended", len(self._outgoing)
            self._outgoing = self._outgoing[count:]

    def _read(self) -> None:
        while (part := self._stdout.read(READ_BYTES)) is not None:
            if not part:
                self._failure = self._failure or "it ended"
                return
            self._incoming += part

    def _next_frame(self) -> tuple[int, int, float, bytes] | None:
        if len(self._incoming) < REPLY.size:
            return None
        number, status, cpu_seconds, length = REPLY.unpack_from(self._incoming)
        end = REPLY.size + length
        if len(self._incoming) < end:
            return None
        payload, self._incoming = self._incoming[REPLY.size : end], self._incoming[end:]
        return number, status, cpu_seconds, payload

    def _lost(self) -> WorkerLost:
        said = (self._stderr.read(READ_BYTES) or b"").decode(errors="replace").strip()
        return WorkerLost(f"a sandbox worker was lost: {self._failure}", came=said[-500:])
