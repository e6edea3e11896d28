"""One sandbox process as its host sees it: frames out, frames in, and a deadline for each answer."""

from __future__ import annotations

import json
import select
import struct
import time
from collections import deque
from dataclasses import dataclass

from populora_core.sandbox.connection import Connection
from populora_core.sandbox.jobs import Job
from populora_core.sandbox.status import Status
from populora_core.support.errors import WorkerLost

REQUEST = struct.Struct(">QI")  # as in the runner: number, length of the body
LENGTH = struct.Struct(">I")
REPLY = struct.Struct(">QBdI")  # number, status, CPU seconds, length of the payload
LAST_WORDS = 2**64 - 1  # the number of a reply in which the runner says why it ends
START_SECONDS = 30.0


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
class RunnerReply:
    """A runner's reply: the status is the runner's word, the payload the program's."""

    status: Status
    cpu_seconds: float
    payload: bytes


def request_body(job: Job, repeat: bool = False) -> bytes:
    """Encode a job: one byte for a repeat, then the program and every input, each after its length.

    Lone surrogates are the program's to fail on.
    """
    texts = [text.encode("utf-8", "surrogatepass") for text in (job.program, *job.inputs)]
    return bytes([repeat]) + b"".join(LENGTH.pack(len(text)) + text for text in texts)


class RunnerProcess:
    """A sandbox process that answers requests in their order; they may be sent before it is ready.

    Args:
        connection: to a runner that is starting.
        answer_seconds: a request that is not answered in this time means a wedged worker; longer than any
            limit that the runner itself enforces.

    Attributes:
        in_flight: what was sent and not answered, in order; the worker runs the first.
        deadline: when the next answer, or the readiness, is overdue; on the monotonic clock.
        python: version of the interpreter inside; empty until the worker is ready.
    """

    def __init__(self, connection: Connection, answer_seconds: float) -> None:
        self.in_flight: deque[Ticket] = deque()
        self.deadline = time.monotonic() + START_SECONDS
        self.python = ""
        self.connection = connection
        self._answer_seconds = answer_seconds
        self._statuses: tuple[Status, ...] = ()
        self._outgoing = b""
        self._incoming = b""
        self._submitted = 0
        self._answered = 0
        self._failure = ""

    @property
    def ready(self) -> bool:
        return bool(self._statuses)

    def submit(self, ticket: Ticket) -> None:
        self._submitted += 1
        self._outgoing += REQUEST.pack(self._submitted, len(ticket.body)) + ticket.body
        self.in_flight.append(ticket)
        if self.ready and len(self.in_flight) == 1:
            self._restart_clock()

    def register(self, poll: select.poll) -> None:
        """Have the poll report when `exchange` has something to do."""
        self.connection.register(poll, sending=bool(self._outgoing))

    def exchange(self) -> list[tuple[Ticket, RunnerReply]]:
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
            if number == LAST_WORDS:
                self._failure = payload.decode(errors="replace")
                break
            if not self.ready:
                hello = json.loads(payload)
                self.python, self._statuses = hello["python"], tuple(map(Status, hello["statuses"]))
            elif self.in_flight and number == self._answered + 1:
                self._answered = number
                answered.append(
                    (self.in_flight.popleft(), RunnerReply(self._statuses[status], cpu_seconds, payload))
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

    def _restart_clock(self) -> None:
        self.deadline = time.monotonic() + self._answer_seconds if self.in_flight else float("inf")

    def _write(self) -> None:
        if self._outgoing:
            try:
                count = self.connection.send(self._outgoing)
            except BrokenPipeError:
                self._failure, count = "it ended", len(self._outgoing)
            self._outgoing = self._outgoing[count:]

    def _read(self) -> None:
        while (part := self.connection.receive()) is not None:
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
        said = self.connection.last_words()
        return WorkerLost(f"a sandbox worker was lost: {self._failure}", got=said[-500:])
