"""Pools that a test may break, in every backend that works here: time limits, lost workers, and what an end leaves."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from conftest import PATIENCE, alive, wait_for
from sandboxed import BACKEND_NAMES, LIMITS, LOOP, SQUARE, attempt, opened, run

from populora_core.sandbox.backends import BACKENDS
from populora_core.sandbox.jobs import Job, JobResult, Limits
from populora_core.sandbox.pool import SandboxPool
from populora_core.sandbox.status import Status
from populora_core.sandbox.worker import RunnerProcess
from populora_core.support.errors import SandboxUnavailable
from populora_core.support.processes import descendants

pytestmark = pytest.mark.sandbox


def processes_once_programs_run(backend: str, pool_pids: list[int]) -> set[int]:
    """All processes of a pool, once each worker has a program running below it.

    A container's process id is its runner's; elsewhere a process outside stands above the runner.
    """
    generations, found = 2 if backend == "docker" else 3, set[int]()

    def all_came() -> bool:
        found.clear()
        found.update(pool_pids, *map(descendants, pool_pids))
        return len(found) >= generations * len(pool_pids)

    wait_for(all_came, every=0.01)
    return found


@pytest.fixture(params=BACKEND_NAMES)
def fresh(request: pytest.FixtureRequest) -> Iterator[Callable[..., SandboxPool]]:
    """Makes pools of one backend that a test may break."""
    with ExitStack() as pools:

        def make(limits: Limits = LIMITS) -> SandboxPool:
            return pools.enter_context(opened(request.param, limits))

        yield make


@pytest.mark.thorough
def test_programs_that_wait_for_the_processor_do_not_time_out(fresh: Callable[..., SandboxPool]) -> None:
    slow = """import _thread
lock = _thread.allocate_lock()
lock.acquire()
for _ in range(4):
    lock.acquire(timeout=0.7)
    used = time.process_time()
    while time.process_time() < used + 0.05:
        pass
return x"""
    assert attempt(fresh(replace(LIMITS, wall_seconds=2.5)), slow).outputs == ("3",)


def test_a_worker_killed_in_the_middle_loses_no_job(fresh: Callable[..., SandboxPool]) -> None:
    pool = fresh()
    killed: list[int] = []

    def kill_at(done: int) -> None:
        if done >= 10 * (1 + len(killed)) and len(killed) < 3:
            living = [pid for pid in pool.pids if pid]  # a container that is still to start has none
            killed.append(living[len(killed) % len(living)])
            os.kill(killed[-1], signal.SIGKILL)

    results = pool.run([Job(str(n), SQUARE, (f"({n},)",)) for n in range(80)], kill_at)
    assert len(killed) == 3
    assert results == [JobResult(str(n), Status.OK, (str(n * n),)) for n in range(80)]


@pytest.mark.thorough
def test_a_job_that_loses_every_worker_is_infrastructure_and_its_neighbours_are_right(
    fresh: Callable[..., SandboxPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("populora_core.sandbox.pool.outer_seconds", lambda limits: 5.0)
    sleeper = "import _thread\ndef f(x):\n    lock = _thread.allocate_lock()\n    lock.acquire()\n    lock.acquire()"
    jobs = [Job("a", SQUARE, ("(2,)",)), Job("wedges", sleeper, ("(1,)",)), Job("b", SQUARE, ("(3,)",))]
    before, wedges, after = fresh().run(jobs)
    assert (before.outputs, after.outputs) == (("4",), ("9",))
    assert wedges.status is Status.INFRASTRUCTURE


def test_a_pool_goes_on_after_an_exception_in_the_middle(fresh: Callable[..., SandboxPool]) -> None:
    pool = fresh()

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.run([Job(str(n), SQUARE, ("(2,)",)) for n in range(20)], interrupt)
    assert run(pool, SQUARE).outputs == ("9",)


def test_no_process_survives_close_even_in_the_middle_of_a_program(fresh: Callable[..., SandboxPool]) -> None:
    pool = fresh(replace(LIMITS, cpu_seconds=60, wall_seconds=60))
    pids: set[int] = set()

    def close(done: int) -> None:
        pids.update(processes_once_programs_run(pool.name, pool.pids))
        pool.close()
        raise KeyboardInterrupt

    loops = [Job(str(n), LOOP, (f"({n},)",)) for n in range(8)]
    with pytest.raises(KeyboardInterrupt):
        pool.run([Job("first", SQUARE, ("(2,)",)), *loops], close)
    assert pids and not any(map(alive, pids))


def test_a_close_in_the_middle_ends_the_batch_of_another_thread(fresh: Callable[..., SandboxPool]) -> None:
    pool = fresh(replace(LIMITS, cpu_seconds=60, wall_seconds=60))
    begun, told = threading.Event(), list[Exception]()

    def grade() -> None:
        loops = [Job(str(n), LOOP, (f"({n},)",)) for n in range(40)]
        try:
            pool.run([Job("first", SQUARE, ("(2,)",)), *loops], lambda done: begun.set())
        except Exception as error:
            told.append(error)

    thread = threading.Thread(target=grade, daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    pids = processes_once_programs_run(pool.name, pool.pids)
    pool.close()
    thread.join(PATIENCE)
    assert [type(error) for error in told] == [SandboxUnavailable] and "closed" in str(told[0])
    assert not pool.pids and not any(map(alive, pids))


def test_a_batch_that_closes_its_own_pool_ends_and_starts_no_worker_again(
    fresh: Callable[..., SandboxPool],
) -> None:
    pool = fresh()
    with pytest.raises(SandboxUnavailable, match="closed"):
        pool.run([Job(str(n), SQUARE, ("(2,)",)) for n in range(80)], lambda done: pool.close())
    assert not pool.pids


def test_a_batch_within_a_batch_is_refused_and_the_outer_one_ends_right(
    fresh: Callable[..., SandboxPool],
) -> None:
    pool, refused = fresh(), list[SandboxUnavailable]()
    jobs = [Job(str(number), "def f(x):\n    return x + 1", (f"({number},)",)) for number in range(8)]

    def nested(done: int) -> None:
        with pytest.raises(SandboxUnavailable, match="under way") as error:
            pool.run(jobs[:3])
        refused.append(error.value)

    results = pool.run(jobs, nested)
    assert refused and [result.outputs for result in results] == [(str(n + 1),) for n in range(8)]


def test_a_close_while_an_answer_is_read_is_told_as_one(
    fresh: Callable[..., SandboxPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, exchange = fresh(), RunnerProcess.exchange

    def interrupted(worker: RunnerProcess) -> object:  # as by a signal whose handler closes and returns
        pool.close()
        return exchange(worker)

    monkeypatch.setattr(RunnerProcess, "exchange", interrupted)
    with pytest.raises(SandboxUnavailable, match="closed"):
        run(pool, SQUARE)
    assert not pool.pids


def test_a_fork_is_refused_opens_a_pool_of_its_own_and_harms_none(fresh: Callable[..., SandboxPool]) -> None:
    pool, fork = fresh(), multiprocessing.get_context("fork")
    before = pool.pids
    here, there = fork.Pipe(duplex=False)

    def grade() -> None:
        with pytest.raises(SandboxUnavailable) as told:
            run(pool, SQUARE)
        pool.close()
        with SandboxPool(BACKENDS[pool.name](), LIMITS, workers=2, hash_seed=0) as own:
            there.send((str(told.value), run(own, SQUARE).outputs))

    child = fork.Process(target=grade)
    child.start()
    there.close()
    told, outputs = here.recv()
    child.join(PATIENCE)
    assert child.exitcode == 0
    assert f"Expected: process {os.getpid()}\nGot: process {child.pid}" in told and "open_sandbox" in told
    assert outputs == ("9",)
    assert run(pool, SQUARE).outputs == ("9",)
    assert pool.pids == before and all(map(alive, before))


@pytest.mark.thorough
def test_no_process_survives_a_killed_host(fresh: Callable[..., SandboxPool]) -> None:
    pool = fresh()
    script = f"""
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job, Limits
pool = open_sandbox({pool.name!r}, Limits(cpu_seconds=60, wall_seconds=60), workers=2)
print(*pool.pids, flush=True)
pool.run([Job(str(n), {LOOP!r}, (f"({{n}},)",)) for n in range(20)])
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout
        pids = processes_once_programs_run(pool.name, [int(pid) for pid in host.stdout.readline().split()])
        host.kill()
    wait_for(lambda: not any(map(alive, pids)))
