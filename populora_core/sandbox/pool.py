"""A sandbox of several worker processes, in two groups with different hash seeds."""

from __future__ import annotations

import atexit
import os
import select
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from populora_core.sandbox.connection import Backend
from populora_core.sandbox.host import PROGRESS
from populora_core.sandbox.jobs import Job, JobResult, Limits
from populora_core.sandbox.literals import LiteralTooLong, NotPlainData, parse_arguments, read_result
from populora_core.sandbox.status import Status
from populora_core.sandbox.worker import RunnerProcess, RunnerReply, Ticket, request_body
from populora_core.support.errors import PopuloraError, SandboxUnavailable, WorkerLost

GROUPS = 2
WINDOW = 4  # requests on their way to one worker: enough that it never waits for the host
MAX_LOSSES = 3
MAX_STARTS = 3  # however short the patience
MAX_PAUSE_SECONDS = 5.0
MID_RUN_REMEDY = "populora doctor says what works here; once the sandbox does, resume or run again"
OUTER_MARGIN_SECONDS = 5.0
LONGEST_POLL_SECONDS = 0.5  # a batch then notices that another thread closes its pool
CLOSE_SECONDS = 10.0  # that `close` waits for a batch, whose callback may be waiting for `close`


def outer_seconds(limits: Limits) -> float:
    """Seconds until the host calls a worker wedged: a margin after the runner must have ended any program.

    A program lasts one wall limit more than it can show progress for before its CPU time is used up.
    """
    return limits.wall_seconds * (1 + 1 / PROGRESS) + OUTER_MARGIN_SECONDS


def batch_seconds(limits: Limits, jobs: int) -> float:
    """The wall time of a batch: as if each program took a whole wall limit, one after another.

    Only what looks busy and waits takes longer: a program that computes ends by its CPU time, one that sleeps by its
    wall limit, and workers run side by side.
    """
    return jobs * limits.wall_seconds + outer_seconds(limits)


@dataclass(slots=True)
class Slot:
    """One worker's place in a pool, which outlives the workers that hold it.

    Attributes:
        failed_starts: since a worker here was last ready.
        retry_at: when the next start may be tried, on the monotonic clock.
        give_up_at: when the pool stops trying.
    """

    group: int
    worker: RunnerProcess | None = None
    failed_starts: int = 0
    retry_at: float = 0.0
    give_up_at: float = 0.0


class SandboxPool:
    """The `Sandbox` of every backend.

    It belongs to the process that opened it: a fork shares the links, and would take answers to the other's jobs.

    Args:
        workers: sandbox processes; at least two are started, as the two runs that tell whether a program is
            deterministic need processes with different hash seeds.
        hash_seed: names the pair of hash seeds.

    Raises:
        SandboxUnavailable: the workers do not start.
    """

    def __init__(self, backend: Backend, limits: Limits, workers: int, hash_seed: int) -> None:
        self.name = backend.name
        self.limits = limits
        self.outage: SandboxUnavailable | None = None
        self._backend = backend
        self._seeds = [1 + (GROUPS * hash_seed + group) % (2**32 - 1) for group in range(GROUPS)]
        self._slots = [Slot(number % GROUPS) for number in range(max(workers, GROUPS))]
        self._patience = 0.0  # a sandbox that never worked is not worth waiting for
        self._opener = os.getpid()
        self._lock = threading.RLock()  # a signal's handler may close in the middle of its own thread's batch
        self._running = False
        self._closed = False
        atexit.register(self.close)
        try:
            while not self._complete:
                self._wait()
                self._advance(_queues(), {})
        except BaseException:
            self.close()
            raise
        self._patience = backend.patience_seconds
        (python,) = {worker.python for worker in self._workers}
        self.identity = f"{self.name}-{backend.contents}-python{python}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers on the host."""
        return [worker.connection.pid for worker in self._workers]

    @property
    def _complete(self) -> bool:
        """True if every worker is ready. The time of a batch stands still while one is not: no program can help it."""
        return all(slot.worker and slot.worker.ready for slot in self._slots)

    @property
    def _workers(self) -> list[RunnerProcess]:
        return [slot.worker for slot in self._slots if slot.worker]

    @property
    def _ours(self) -> bool:
        return os.getpid() == self._opener

    def close(self) -> None:
        """End every process of the pool; returns when they are gone. In a fork, only let go of the links to them."""
        self._closed = True
        atexit.unregister(self.close)
        locked = self._ours and self._lock.acquire(timeout=CLOSE_SECONDS)
        try:
            self._discard(lambda worker: True)
        finally:
            if locked:
                self._lock.release()

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int], None] | None = None, *, repeat: bool = False
    ) -> list[JobResult]:
        """See `Sandbox.run`."""
        self._require_usable()
        with self._lock:
            if self._running:
                raise SandboxUnavailable(
                    "a batch of this thread is under way in the sandbox",
                    expected="a callback or a signal's handler that runs nothing here",
                    fix="open another with open_sandbox",
                )
            self._running = True
            try:
                return self._run(jobs, progress or (lambda done: None), repeat)
            except (OSError, ValueError):
                self._require_usable()  # a closed link fails in either way
                raise
            finally:  # only after an exception is any in flight
                self._running = False
                self._discard(lambda worker: self._closed or bool(worker.in_flight))

    def _require_usable(self) -> None:
        if not self._ours:
            raise SandboxUnavailable(
                "the sandbox belongs to the process that opened it",
                expected=f"process {self._opener}",
                got=f"process {os.getpid()}, a fork",
                fix="open one in each process with open_sandbox",
            )
        if self._closed:
            raise SandboxUnavailable("the sandbox is closed", fix="open another with open_sandbox")

    def _run(self, jobs: Sequence[Job], progress: Callable[[int], None], repeat: bool) -> list[JobResult]:
        results: dict[int, JobResult] = {}
        queues = _queues()
        for index, job in enumerate(jobs):
            body = request_body(job)
            group = (zlib.crc32(body) + repeat) % GROUPS
            if repeat:
                job = replace(job, inputs=job.inputs[1:] + job.inputs[:1])
                body = request_body(job, repeat)
            refusal = self._refusal(job, body)
            if refusal:
                results[index] = JobResult(job.job_id, Status.ERROR, error=refusal)
            else:
                queues[group].append(Ticket(index, job, body))
        self.outage = None
        end = time.monotonic() + batch_seconds(self.limits, len(jobs))
        while len(results) < len(jobs):
            self._require_usable()
            began, before = time.monotonic(), len(results)
            try:
                self._advance(queues, results)
            except SandboxUnavailable as outage:
                self.outage = outage
                for index, job in enumerate(jobs):
                    blank = JobResult(job.job_id, Status.INFRASTRUCTURE, error=outage.problem)
                    results.setdefault(index, blank)
            if len(results) > before:
                progress(len(results))
            elif began > end:
                self._give_up(jobs, results)
            else:
                overslept = self._wait(end)
                end += overslept if self._complete else time.monotonic() - began
        found = [results[index] for index in range(len(jobs))]
        return (
            [replace(each, outputs=each.outputs[-1:] + each.outputs[:-1]) for each in found]
            if repeat
            else found
        )

    def _give_up(self, jobs: Sequence[Job], results: dict[int, JobResult]) -> None:
        """The batch's time is over: what is under way ends, and what was not answered timed out."""
        self._discard(lambda worker: bool(worker.in_flight))
        reason = f"the {len(jobs)} programs of its batch took more wall time than all of them may together"
        for index, job in enumerate(jobs):
            results.setdefault(index, JobResult(job.job_id, Status.TIMEOUT, error=reason))

    def _refusal(self, job: Job, body: bytes) -> str:
        """The reason not to send the job, or "". The runner evaluates inputs, so only literals may get there."""
        if len(body) > self.limits.request_bytes:
            return f"program and inputs have more than {self.limits.request_bytes} bytes"
        try:
            for text in job.inputs:
                parse_arguments(text, self.limits.request_bytes)
        except NotPlainData as error:
            return f"an input is not the literal of an argument tuple: {error}"
        return ""

    def _advance(self, queues: Sequence[deque[Ticket]], results: dict[int, JobResult]) -> None:
        """Keep every worker there and its window full, and take what has been answered.

        Raises:
            SandboxUnavailable: a worker has not started for as long as the backend asks for patience.
        """
        for slot in self._slots:
            queue = queues[slot.group]
            worker = slot.worker
            try:
                if worker is None:
                    if time.monotonic() < slot.retry_at:
                        continue
                    connection = self._backend.connect(self.limits, self._seeds[slot.group])
                    worker = slot.worker = RunnerProcess(connection, outer_seconds(self.limits))
                for ticket, reply in worker.exchange():
                    results[ticket.index] = self._result(ticket.job, reply)
                while queue and len(worker.in_flight) < WINDOW:
                    worker.submit(queue.popleft())
            except (WorkerLost, SandboxUnavailable) as lost:
                slot.worker = None
                if worker is not None:
                    worker.connection.end()
                    self._put_back(worker, queue, results, lost)
                self._count_start(slot, worker is not None and worker.ready, lost)

    def _count_start(self, slot: Slot, worked: bool, lost: PopuloraError) -> None:
        """Decide when to start the next worker: at once after one that worked, then less and less often."""
        if isinstance(lost, SandboxUnavailable) and not self._patience:
            raise lost
        now = time.monotonic()
        if worked or slot.failed_starts == 0:
            slot.give_up_at = now + self._patience
        slot.failed_starts = 0 if worked else slot.failed_starts + 1
        slot.retry_at = (
            now + min(MAX_PAUSE_SECONDS, 0.1 * 2**slot.failed_starts) if slot.failed_starts else now
        )
        if slot.failed_starts >= MAX_STARTS and now >= slot.give_up_at:
            slot.failed_starts, slot.retry_at = 0, 0.0
            raise SandboxUnavailable(
                f"a {self.name} sandbox does not start",
                got=lost.got or lost.problem,
                fix=lost.fix or (MID_RUN_REMEDY if self._patience else ""),
            ) from lost

    @staticmethod
    def _put_back(
        worker: RunnerProcess, queue: deque[Ticket], results: dict[int, JobResult], lost: PopuloraError
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

    def _wait(self, end: float = float("inf")) -> float:
        """Wait until a worker can send or receive, the first deadline, the next start, or the end.

        Returns:
            Seconds that it took too long, in which this process was stopped: no program can help those either.
        """
        poll = select.poll()
        wake = end
        for slot in self._slots:
            worker = slot.worker
            if worker:
                worker.register(poll)
            wake = min(wake, worker.deadline if worker else slot.retry_at)
        began = time.monotonic()
        left = min(max(0.0, wake - began), LONGEST_POLL_SECONDS)
        poll.poll(left * 1000 + 1)
        return max(0.0, time.monotonic() - began - left)

    def _result(self, job: Job, reply: RunnerReply) -> JobResult:
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
            outputs = tuple(read_result(literal, self.limits.literal_chars) for literal in literals)
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

    def _discard(self, unwanted: Callable[[RunnerProcess], bool]) -> None:
        """End the unwanted workers; a fork hangs up alone, as they are the opener's to end."""
        chosen = [(slot, worker) for slot in self._slots if (worker := slot.worker) and unwanted(worker)]
        for slot, worker in chosen:
            slot.worker = None
            worker.connection.hang_up()
        if self._ours:
            for _, worker in chosen:
                worker.connection.end()


def _queues() -> list[deque[Ticket]]:
    return [deque() for _ in range(GROUPS)]
