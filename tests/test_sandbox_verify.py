"""Two runs that must agree: of the same inputs, in the opposite order. And what a batch may take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from populora_core.sandbox import pool as pools
from populora_core.sandbox import verify as verifying
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import MIB, Job, JobResult, Limits
from populora_core.sandbox.pool import SandboxPool
from populora_core.sandbox.status import Status
from populora_core.sandbox.verify import verify

pytestmark = pytest.mark.sandbox

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=4, memory_bytes=64 * MIB)
INPUTS = ("(1,)", "(2,)", "(3,)", "(4,)", "(5,)", "(6,)")
SQUARE = "def f(x):\n    return x * x"
SLEEPER = (
    "import _thread\ndef f(x):\n    lock = _thread.allocate_lock()\n    lock.acquire()\n    lock.acquire()"
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with open_sandbox("auto", LIMITS, workers=2) as opened:
        assert isinstance(opened, SandboxPool)
        yield opened


class Counting:
    """A sandbox that counts the programs that it is given."""

    def __init__(self, inner: SandboxPool) -> None:
        self._inner, self.limits, self.outage = inner, inner.limits, None
        self.given: list[list[str]] = []

    def run(self, jobs, progress=None, *, repeat=False):  # type: ignore[no-untyped-def]
        self.given.append([job.job_id for job in jobs])
        return self._inner.run(jobs, progress, repeat=repeat)


IMPURE = {
    "counts its calls": "n = [0]\ndef f(x):\n    n[0] += 1\n    return x + n[0]",
    "has a default that grows": "def f(x, seen=[]):\n    seen.append(x)\n    return len(seen)",
    "is honest for four calls": "n = [0]\ndef f(x):\n    n[0] += 1\n    return x if n[0] <= 4 else -x",
    "fails at its last call": "n = [0]\ndef f(x):\n    n[0] += 1\n    return 1 // (x - 1 + (n[0] < 6))",
}


@pytest.mark.parametrize("name", IMPURE)
def test_a_program_that_remembers_its_calls_is_no_function(sandbox: SandboxPool, name: str) -> None:
    (result,) = verify(sandbox, [Job("impure", IMPURE[name], INPUTS)])
    assert result.status is Status.NONDETERMINISTIC


def test_outputs_stand_in_the_order_of_their_inputs_in_both_runs(sandbox: SandboxPool) -> None:
    job = Job("square", SQUARE, INPUTS)
    expected = [JobResult("square", Status.OK, ("1", "4", "9", "16", "25", "36"))]
    assert sandbox.run([job]) == sandbox.run([job], repeat=True) == verify(sandbox, [job]) == expected


def test_the_two_runs_of_a_job_have_different_hash_seeds_whatever_its_inputs(sandbox: SandboxPool) -> None:
    jobs = [Job(str(n), f"def f(x):\n    return hash('{n}')", ("(1,)", "(2,)")) for n in range(8)]
    first, second = sandbox.run(jobs), sandbox.run(jobs, repeat=True)
    assert all(one.outputs != other.outputs for one, other in zip(first, second, strict=True))


@pytest.mark.thorough
def test_what_sleeps_is_not_repeated_and_what_computes_to_its_limit_is(sandbox: SandboxPool) -> None:
    counting = Counting(sandbox)
    jobs = [Job("sleeper", SLEEPER, ("(1,)",)), Job("looper", "def f(x):\n    while True: pass", ("(1,)",))]
    results = verify(counting, jobs, policy=False, determinism=False)  # type: ignore[arg-type]
    assert [result.status for result in results] == [Status.TIMEOUT, Status.TIMEOUT]
    assert counting.given == [["sleeper", "looper"], ["looper"]]


def test_repeats_alone_end_with_the_batchs_time(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "batch_seconds", lambda limits, jobs: -1.0)
    counting = Counting(sandbox)
    jobs = [Job(str(n), f"def f(x):\n    while True: {n}", ("(1,)",)) for n in range(3)]
    results = verify(counting, jobs, determinism=False)  # type: ignore[arg-type]
    assert counting.given == [["0", "1", "2"]]
    assert {result.status for result in results} == {Status.TIMEOUT}


def test_a_batch_beyond_its_time_is_given_up_and_the_next_one_runs(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pools, "batch_seconds", lambda limits, jobs: -1.0)
        results = sandbox.run([Job(str(n), SLEEPER, ("(1,)",)) for n in range(3)])
    assert {result.status for result in results} == {Status.TIMEOUT}
    assert "all of them may together" in results[0].error
    assert sandbox.outage is None
    assert sandbox.run([Job("next", SQUARE, ("(3,)",))]) == [JobResult("next", Status.OK, ("9",))]


def test_a_batch_has_time_for_every_program_to_reach_its_limits() -> None:
    roomy = replace(LIMITS, wall_seconds=8.0)
    assert pools.batch_seconds(roomy, 500) > 500 * roomy.wall_seconds
    assert pools.batch_seconds(roomy, 1) > pools.outer_seconds(roomy)
