"""Two runs that must agree: the second again for each input, in another order. And what a batch may take."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import wait_for
from sandboxed import opened

from populora_core.sandbox import pool as pools
from populora_core.sandbox import verify as verifying
from populora_core.sandbox.backends import BACKENDS
from populora_core.sandbox.connection import Connection
from populora_core.sandbox.jobs import MIB, Job, JobResult, Limits
from populora_core.sandbox.pool import SandboxPool
from populora_core.sandbox.status import Status
from populora_core.sandbox.verify import verify
from populora_core.support.errors import SandboxUnavailable
from populora_core.support.processes import GONE, descendants, started

pytestmark = pytest.mark.sandbox

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=4, memory_bytes=64 * MIB)
KINDS = [
    pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.thorough]),
    "bubblewrap",
    pytest.param("launcher", marks=pytest.mark.thorough),
]
INPUTS = ("(1,)", "(2,)", "(3,)", "(4,)", "(5,)", "(6,)")
SQUARE = "def f(x):\n    return x * x"
SLEEPER = (
    "import _thread\ndef f(x):\n    lock = _thread.allocate_lock()\n    lock.acquire()\n    lock.acquire()"
)


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    with opened(request.param, LIMITS) as pool:
        yield pool


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
    "counts in the middle": "n = [0]\ndef f(x):\n    n[0] += 1\n    return x + (100 if n[0] in (3, 4) else 1)",
    "counts in a class": "class A:\n    n = 0\ndef f(x):\n    A.n += 1\n    return x + (A.n in (3, 4))",
    "counts in itself": "def f(x):\n    f.n = f.n + 1\n    return x + (f.n in (3, 4))\nf.n = 0",
    "goes round": "import itertools\nturn = itertools.cycle([1, 2, 2, 1])\ndef f(x):\n    return next(turn)",
    "caches a list": (
        "from functools import lru_cache\n@lru_cache\ndef seen(): return []\n"
        "def f(x):\n    seen().append(x)\n    return len(seen()) in (3, 4)"
    ),
    "grows symmetrically": "def f(x, seen=[]):\n    seen.append(x)\n    return len(seen) in (3, 4)",
    "counts in the decimal context": (
        "import decimal\nhere = decimal.getcontext()\ndef f(x):\n    here.prec += 1\n    return here.prec in (31, 32)"
    ),
    "knows its neighbours": (
        "seen = []\ndef f(x):\n    seen.append(x)\n    return 9 if x == 5 and len(seen) > 1 else x"
    ),
    "hashes an object": "def f(x):\n    return hash(object()) % 256",
    "hashes itself": "def f(x):\n    return hash(f) % 256",
    "spells itself": "def f(x):\n    return str(f)[-4:-1]",
    "spells an iterator": "def f(x):\n    return str(iter([x]))[-4:-1]",
    "hashes a class": "class A: pass\ndef f(x):\n    return hash(A) % 4096",
    "says how deep it got": (
        "def f(x):\n    try:\n        return 1 + f(x)\n    except RecursionError:\n        return 0"
    ),
    "says how much it got": (
        "def f(x):\n    held = []\n    try:\n        while True:\n            held.append(bytes(1 << 20))\n"
        "    except MemoryError:\n        return len(held)"
    ),
    "fails unless called before": "n = [0]\ndef f(x):\n    n[0] += 1\n    return 1 // (n[0] - 1 + (x < 6) * 9)",
}


@pytest.mark.parametrize("name", IMPURE)
def test_a_program_that_remembers_its_calls_is_no_function(sandbox: SandboxPool, name: str) -> None:
    (result,) = verify(sandbox, [Job("impure", IMPURE[name], INPUTS)])
    assert result.status is Status.NONDETERMINISTIC


HONEST = {
    "recurses": "def f(x):\n    return 0 if x > 900 else 1 + f(x + 1)",
    "keeps a table": "table = {n: n * n for n in range(100)}\ndef f(x):\n    return table[x]",
    "has a class": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(x):\n    return P(x).x",
    "caches": "import functools\n@functools.cache\ndef f(x):\n    return x if x < 2 else f(x - 1) + f(x - 2)",
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_repeats(sandbox: SandboxPool, name: str) -> None:
    (result,) = verify(sandbox, [Job("honest", HONEST[name], INPUTS)])
    assert result.status is Status.OK, result.error


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


class Broken:
    """A backend that starts no worker any more once it is down."""

    patience_seconds = 0.3

    def __init__(self, name: str) -> None:
        self._backend, self.down = BACKENDS[name](), False
        self.name, self.contents = name, self._backend.contents

    def connect(self, limits: Limits, hash_seed: int) -> Connection:
        if self.down:
            raise SandboxUnavailable("it is down")
        return self._backend.connect(limits, hash_seed)


def test_a_sandbox_that_stays_down_for_longer_than_the_batch_may_take_is_no_verdict(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sandbox.name == "docker":
        pytest.skip("a container has no process of ours to kill; test_sandbox_docker.py ends its daemon")
    backend = Broken(sandbox.name)
    with SandboxPool(backend, LIMITS, 2, 0) as pool:
        backend.down = True
        below = [pid for worker in pool.pids for pid in (worker, *descendants(worker))]
        for pid in pool.pids:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: all(started(pid) == GONE for pid in below), every=0.01)
        monkeypatch.setattr(pools, "batch_seconds", lambda limits, jobs: 0.1)
        results = pool.run([Job(str(n), SQUARE, ("(1,)",)) for n in range(3)])
        assert {result.status for result in results} == {Status.INFRASTRUCTURE}
        assert pool.outage is not None
        assert pool.run([]) == [] and pool.outage is None, "an outage is that of the last batch"


def test_the_time_in_which_the_host_process_was_stopped_is_no_programs(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = 0.0

    class Poll:
        """The first time it waits, an hour passes in which nothing was done."""

        def __init__(self) -> None:
            self._poll = select.poll()
            self.register = self._poll.register

        def poll(self, milliseconds: float) -> None:
            nonlocal stopped
            self._poll.poll(milliseconds)
            stopped = 3600.0

    monkeypatch.setattr(pools, "select", SimpleNamespace(poll=Poll))
    monkeypatch.setattr(pools, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + stopped))
    results = sandbox.run([Job(str(n), SQUARE, ("(3,)",)) for n in range(40)])
    assert {result.status for result in results} == {Status.OK}


def test_a_time_limit_beyond_what_the_kernel_polls_for_is_no_error(sandbox: SandboxPool) -> None:
    with SandboxPool(BACKENDS[sandbox.name](), replace(LIMITS, wall_seconds=86400.0), 2, 0) as pool:
        (result,) = pool.run([Job("0", SQUARE, ("(3,)",))])
    assert result.status is Status.OK


def test_a_batch_has_time_for_every_program_to_reach_its_limits() -> None:
    roomy = replace(LIMITS, wall_seconds=8.0)
    assert pools.batch_seconds(roomy, 500) > 500 * roomy.wall_seconds
    assert pools.batch_seconds(roomy, 1) > pools.outer_seconds(roomy)
