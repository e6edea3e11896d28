"""A sandbox of several worker processes, in two groups with different hash seeds."""

from __future__ import annotations

import atexit
import select
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from populora_core.errors import SandboxUnavailable, WorkerLost
from populora_core.problems.literals import LiteralTooLong, NotPlainData, canonical_text
from populora_core.verifier.host import PROGRESS, Contents, runner_digest, sandbox_contents
from populora_core.verifier.protocol import Job, JobResult, Limits
from populora_core.verifier.verdicts import Status
from populora_core.verifier.worker import Reply, Ticket, Worker, request_body

GROUPS = 2
WINDOW = 4  # requests on their way to one worker: enough that it never waits for the host
MAX_LOSSES = 3
MAX_STARTS = 3
OUTER_MARGIN_SECONDS = 5.0


def outer_seconds(limits: Limits) -> float:
    """When the host calls a worker wedged: a margin after the runner must have ended any program.

    A program lasts one wall limit more than it can show progress for before its CPU time is used up.
    """
    return limits.wall_seconds * (1 + 1 / PROGRESS) + OUTER_MARGIN_SECONDS


class SandboxPool:
    """The `Sandbox` of every backend that is a command line.

    Args:
        name: the backend.
        command: makes the command line of a worker from what its sandbox contains.
        workers: sandbox processes; at least two are started, as the two runs that tell whether a program is
            deterministic need processes with different hash seeds.
        hash_seed: names the pair of hash seeds.

    Raises:
        SandboxUnavailable: the workers do not start.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[Contents], list[str]],
        limits: Limits,
        workers: int,
        hash_seed: int,
    ) -> None:
        self.name = name
        self.limits = limits
        self._commands = [
            command(sandbox_contents(limits, 1 + (GROUPS * hash_seed + group) % (2**32 - 1)))
            for group in range(GROUPS)
        ]
        self._workers: list[Worker | None] = [None] * max(workers, GROUPS)
        self._failed_starts = [0] * len(self._workers)
        self._lock = threading.Lock()
        self._closed = False
        atexit.register(self.close)
        try:
            while not all(worker and worker.ready for worker in self._workers):
                self._wait()
                self._advance(_queues(), {})
        except BaseException:
            self.close()
            raise
        (python,) = {worker.python for worker in self._workers if worker}
        self.identity = f"{name}-{runner_digest()}-python{python}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers on the host."""
        return [worker.pid for worker in self._workers if worker]

    def close(self) -> None:
        """End every process of the pool; returns when they are gone."""
        self._closed = True
        atexit.unregister(self.close)
        self._discard(lambda worker: True)

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int], None] | None = None, *, repeat: bool = False
    ) -> list[JobResult]:
        """See `Sandbox.run`."""
        if self._closed:
            raise SandboxUnavailable("the sandbox is closed", remedy="open another with open_sandbox")
        with self._lock:
            try:
                return self._run(jobs, progress or (lambda done: None), repeat)
            finally:
                self._discard(lambda worker: bool(worker.in_flight))  # only after an exception

    def _run(self, jobs: Sequence[Job], progress: Callable[[int], None], repeat: bool) -> list[JobResult]:
        results: dict[int, JobResult] = {}
        queues = _queues()
        for index, job in enumerate(jobs):
            body = request_body(job)
            if len(body) > self.limits.request_bytes:
                reason = f"program and inputs have more than {self.limits.request_bytes} bytes"
                results[index] = JobResult(job.job_id, Status.ERROR, error=reason)
            else:
                queues[(zlib.crc32(body) + repeat) % GROUPS].append(Ticket(index, job, body))
        while len(results) < len(jobs):
            before = len(results)
            self._advance(queues, results)
            if len(results) > before:
                progress(len(results))
            else:
                self._wait()
        return [results[index] for index in range(len(jobs))]

    def _advance(self, queues: Sequence[deque[Ticket]], results: dict[int, JobResult]) -> None:
        """Keep every worker there and its window full, and take what has been answered."""
        for slot, worker in enumerate(self._workers):
            queue = queues[slot % GROUPS]
            if worker is None:
                command = self._commands[slot % GROUPS]
                worker = self._workers[slot] = Worker(command, outer_seconds(self.limits))
            try:
                for ticket, reply in worker.exchange():
                    results[ticket.index] = self._result(ticket.job, reply)
                while queue and len(worker.in_flight) < WINDOW:
                    worker.submit(queue.popleft())
            except WorkerLost as lost:
                self._workers[slot] = None
                worker.end()
                self._count_start(slot, worker.ready, lost)
                self._put_back(worker, queue, results, lost)

    def _count_start(self, slot: int, worked: bool, lost: WorkerLost) -> None:
        self._failed_starts[slot] = 0 if worked else self._failed_starts[slot] + 1
        if self._failed_starts[slot] == MAX_STARTS:
            raise SandboxUnavailable(
                f"a {self.name} sandbox does not start",
                came=lost.came or lost.problem,
                remedy="populora doctor says what works on this machine",
            )

    @staticmethod
    def _put_back(
        worker: Worker, queue: deque[Ticket], results: dict[int, JobResult], lost: WorkerLost
    ) -> None:
        """Queue a lost worker's jobs again; the loss counts for the one it ran, not for those that waited."""
        unanswered = worker.in_flight
        if unanswered and worker.ready:
            running = unanswered[0]
            running.losses += 1
            if running.losses == MAX_LOSSES:
                unanswered.popleft()
                reason = f"{lost.problem}; so were {MAX_LOSSES - 1} others that ran this job"
                results[running.index] = JobResult(running.job.job_id, Status.INFRASTRUCTURE, error=reason)
        queue.extendleft(reversed(unanswered))

    def _wait(self) -> None:
        """Wait until a worker can send or receive, or the first deadline."""
        workers = [worker for worker in self._workers if worker]
        poll = select.poll()
        for worker in workers:
            worker.register(poll)
        if len(workers) == len(self._workers):
            left = min(worker.deadline for worker in workers) - time.monotonic()
            poll.poll(None if left == float("inf") else max(0.0, left) * 1000 + 1)

    def _result(self, job: Job, reply: Reply) -> JobResult:
        """Turn a reply into a result. The payload is the program's word: it is parsed as data or refused."""
        if reply.status is not Status.OK:
            said = reply.payload.decode(errors="replace")
            error = "".join(character if character.isprintable() else " " for character in said)
            reason = error or self._reason(reply.status)
            return JobResult(job.job_id, reply.status, (), reason, reply.cpu_seconds)
        literals = reply.payload.decode(errors="replace").split("\n") if reply.payload else []
        if len(literals) != len(job.inputs):
            status, reason = Status.ERROR, f"{len(literals)} answers came for {len(job.inputs)} inputs"
            return JobResult(job.job_id, status, (), reason, reply.cpu_seconds)
        try:
            outputs = tuple(map(canonical_text, literals))
        except LiteralTooLong as error:
            return JobResult(job.job_id, Status.OUTPUT_LIMIT, (), str(error), reply.cpu_seconds)
        except NotPlainData as error:
            return JobResult(job.job_id, Status.NOT_PLAIN_DATA, (), str(error), reply.cpu_seconds)
        return JobResult(job.job_id, Status.OK, outputs, "", reply.cpu_seconds)

    def _reason(self, status: Status) -> str:
        limits = self.limits
        if status is Status.TIMEOUT:
            return f"more than {limits.cpu_seconds:g} s of CPU time or {limits.wall_seconds:g} s of wall time"
        return f"more than {limits.output_bytes} bytes came out"

    def _discard(self, unwanted: Callable[[Worker], bool]) -> None:
        chosen = {slot: worker for slot, worker in enumerate(self._workers) if worker and unwanted(worker)}
        for slot, worker in chosen.items():
            self._workers[slot] = None
            worker.hang_up()
        for worker in chosen.values():
            worker.end()


def _queues() -> list[deque[Ticket]]:
    return [deque() for _ in range(GROUPS)]
