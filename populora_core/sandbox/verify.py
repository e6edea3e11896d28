"""Verifying programs: the static policy, then two runs that must agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from populora_core.sandbox.jobs import Job, JobResult, Sandbox
from populora_core.sandbox.literals import canonical_text, canonical_texts
from populora_core.sandbox.policy import refuse_program
from populora_core.sandbox.pool import batch_seconds
from populora_core.sandbox.status import Status

NEAR_LIMIT = 0.5
"""A program that used this share of its CPU time is tried once more alone."""

_OF_THE_MACHINE = frozenset({Status.TIMEOUT, Status.OOM, Status.KILLED, Status.INFRASTRUCTURE})
"""Statuses with which a second run may end although the program's result has not changed."""


def verify(
    sandbox: Sandbox,
    jobs: Sequence[Job],
    *,
    policy: bool = True,
    determinism: bool = True,
    alone: bool = True,
    progress: Callable[[int], None] | None = None,
) -> list[JobResult]:
    """Run every job and return its result, in the order of the jobs.

    Args:
        policy: refuse programs by the static policy before anything runs.
        determinism: run what succeeds once more, in another process under another hash seed and again for each input,
            in another order; programs whose outputs differ by value are nondeterministic. An output whose entries
            alone lie in another order, as those of a dict made from a set do, comes in canonical order.
        alone: try what came near its time limit once more by itself.
        progress: called with the number of jobs whose result is known.

    Raises:
        SandboxUnavailable: the sandbox cannot go on.
    """
    report = progress or (lambda done: None)
    results: dict[int, JobResult] = {}
    if policy:
        for index, job in enumerate(jobs):
            refusal = refuse_program(job.program)
            if refusal is not None:
                results[index] = JobResult(job.job_id, refusal.status, error=refusal.reason)

    left = [index for index in range(len(jobs)) if index not in results]
    first = _run(
        sandbox, [jobs[index] for index in left], None if determinism else report, len(results), alone
    )
    results.update(zip(left, first, strict=True))
    if determinism:
        again = [index for index in left if results[index].status is Status.OK]
        repeats = [jobs[index] for index in again]
        if sandbox.outage is None:
            second = _run(sandbox, repeats, report, len(jobs) - len(again), alone, repeat=True)
        else:
            reason = sandbox.outage.problem
            second = [JobResult(job.job_id, Status.INFRASTRUCTURE, error=reason) for job in repeats]
        for index, repeated in zip(again, second, strict=True):
            results[index] = _agreed(results[index], repeated)
    report(len(jobs))
    return [results[index] for index in range(len(jobs))]


def verify_or_raise(
    sandbox: Sandbox,
    jobs: Sequence[Job],
    *,
    determinism: bool,
    alone: bool = True,
    progress: Callable[[int], None] | None = None,
) -> list[JobResult]:
    """Call `verify` for a caller that learns from the results: a batch that an outage cut short is worth nothing.

    Raises:
        SandboxUnavailable: the sandbox went down for good and left jobs unanswered.
    """
    results = verify(sandbox, jobs, determinism=determinism, alone=alone, progress=progress)
    if sandbox.outage is not None:
        raise sandbox.outage
    return results


def _run(
    sandbox: Sandbox,
    jobs: Sequence[Job],
    report: Callable[[int], None] | None,
    settled: int,
    alone: bool,
    repeat: bool = False,
) -> list[JobResult]:
    """Run the jobs together, then `alone` each of those near the time limit: load must not decide a verdict.

    What slept through its wall limit would do so again, one after another, so it is not repeated. Nothing is run
    alone once that has taken a batch's whole wall time, nor after an outage, which the sandbox would forget by that.
    """
    progress = (lambda done: report(settled + done)) if report else None
    results = sandbox.run(jobs, progress, repeat=repeat)
    end = time.monotonic() + batch_seconds(sandbox.limits, len(jobs))
    for place, (job, result) in enumerate(zip(jobs, results, strict=True)):
        if not alone or sandbox.outage is not None or time.monotonic() > end:
            break
        if result.cpu_seconds >= NEAR_LIMIT * sandbox.limits.cpu_seconds:
            (results[place],) = sandbox.run([job], repeat=repeat)
    return results


def _agreed(first: JobResult, second: JobResult) -> JobResult:
    if second.status in _OF_THE_MACHINE:
        return second
    if second.status is Status.OK and canonical_texts(second.outputs) == canonical_texts(first.outputs):
        pairs = zip(first.outputs, second.outputs, strict=True)
        settled = tuple(one if one == other else canonical_text(one) for one, other in pairs)
        return replace(first, outputs=settled)
    reason = "two runs under different hash seeds, the second again for each input, gave different outputs"
    return replace(first, status=Status.NONDETERMINISTIC, outputs=(), error=reason)
