"""Speed of the docker sandbox, against the least that isolation by process can cost: a bare fork.

    populora bench verifier --json

The floor is fork, exit and wait in a loop, by the same interpreter with the same modules, in a container with
the same limits. CPU time is the container's own, as the kernel accounts it to its control group.

`docker exec` costs most of its time in the client, the daemon and the shim, which together fill more than one core.
So the two are compared as one would use a machine of two cores: two containers against two execs at once. One
against one is told beside it, without a goal.
"""

from __future__ import annotations

import json
import select
import struct
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from bench.harness import BenchRow, median, ratio, single, wall_seconds
from populora_core.sandbox.connection import Connection
from populora_core.sandbox.containers import (
    SOCKET_INSIDE,
    ContainerConnection,
    DockerBackend,
)
from populora_core.sandbox.host import PRELOADED
from populora_core.sandbox.jobs import MIB, Job, Limits
from populora_core.sandbox.pool import SandboxPool, outer_seconds
from populora_core.sandbox.status import Status
from populora_core.sandbox.worker import RunnerProcess, Ticket, request_body
from populora_core.support.aliases import Say
from populora_core.support.errors import SandboxUnavailable

PROGRAM = """def f(x, y):
    total = 0
    for i in x:
        if i % 2:
            total += i * y
    return total"""
INPUTS = tuple(f"([{n}, {n + 1}, 7, 8, 9], {n % 5})" for n in range(10))

LIMITS = Limits()
WINDOW = 8
PROGRAMS = 150  # in one timed part: a second or less
FEW = 30  # the same over a second kernel
FORKS = 600
EXECS = 4  # by each container
SOAK_PROGRAMS = 100_000

FLOOR = """
import importlib, os, struct, sys
import _socket
for name in sys.argv[2:]:
    importlib.import_module(name)
link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
link.connect(sys.argv[1])
link.send(b"r")
while request := link.recv(4):
    for _ in range(struct.unpack(">I", request)[0]):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    link.send(b"d")
"""


def run(samples: int, say: Say, soak: int = SOAK_PROGRAMS) -> list[BenchRow]:
    """Every figure, in the order in which they are shown.

    Args:
        soak: programs after which the growth of a container is read.

    Raises:
        SandboxUnavailable: no daemon answers, or the image is not built.
    """
    backend = DockerBackend()
    rows: list[BenchRow] = []
    with ExitStack() as stack:
        first, second = (stack.enter_context(_runner(backend)) for _ in range(2))
        floor, other_floor = (stack.enter_context(_floor(backend)) for _ in range(2))
        for runner in (first, second):
            run_jobs([runner], _jobs(PROGRAMS))  # to its working size

        taken: dict[str, list[float]] = defaultdict(list)
        for number in range(samples):
            say(f"pair {number + 1} of {samples}")
            taken["program"].append(_cpu_of(first, _jobs(PROGRAMS)) / PROGRAMS)
            taken["fork"].append(_cpu_of_forks(floor) / FORKS)
            taken["input of ten"].append(_cpu_of(first, _jobs(PROGRAMS, INPUTS)) / (PROGRAMS * len(INPUTS)))
            taken["gain"].append(2 * _wall([first]) / _wall([first, second]))
            taken["gain of forks"].append(2 * _wall_of_forks([floor]) / _wall_of_forks([floor, other_floor]))
            taken["wall"].append(_wall([first]) / PROGRAMS)
            taken["wall of exec"].append(_wall_of_execs([first]))
            taken["wall of two"].append(_wall([first, second]) / (PROGRAMS * 2))
            taken["wall of two execs"].append(_wall_of_execs([first, second]))
        rows += [
            ratio("container_over_fork", taken["fork"], taken["program"], ">= 0.3"),
            ratio("two_containers_over_two_forks", taken["gain"], taken["gain of forks"], ">= 0.9"),
            ratio("ten_inputs_gain", taken["program"], taken["input of ten"], ">= 8"),
            ratio("over_docker_exec", taken["wall of two execs"], taken["wall of two"], ">= 40"),
            ratio("one_container_over_one_exec", taken["wall of exec"], taken["wall"]),
            median("programs_per_cpu_second", [1 / each for each in taken["program"]], "1/s"),
        ]

    with suppress(SandboxUnavailable):
        rows.append(_gvisor_row(samples, say))

    starts = []
    for number in range(samples):
        say(f"cold start {number + 1} of {samples}")
        started = time.perf_counter()
        with SandboxPool(DockerBackend(), LIMITS, workers=2, hash_seed=0) as pool:
            pool.run(_jobs(1))
            starts.append(time.perf_counter() - started)
    rows.append(median("first_result_seconds", starts, "s", "<= 2"))

    with _runner(backend) as runner:
        run_jobs([runner], _jobs(1000))
        before = _memory(runner)
        rows.append(single("mib_per_container", before, "MiB", "<= 32"))
        for done in range(0, soak, 1000):
            say(f"soak: {done} of {soak} programs")
            run_jobs([runner], _jobs(min(1000, soak - done)))
        rows.append(single(f"mib_growth_over_{soak}_programs", _memory(runner) - before, "MiB", "<= 1"))
    return rows


def _gvisor_row(samples: int, say: Say) -> BenchRow:
    """CPU time of a program over gVisor's kernel, against the same in a container over the host's.

    Raises:
        SandboxUnavailable: the daemon has no such runtime.
    """
    with _runner(DockerBackend(gvisor=True)) as guarded, _runner(DockerBackend()) as plain:
        taken: dict[str, list[float]] = defaultdict(list)
        for number in range(samples):
            say(f"gVisor {number + 1} of {samples}")
            for name, runner in (("guarded", guarded), ("plain", plain)):
                taken[name].append(_cpu_of(runner, _jobs(FEW)))
    return ratio("gvisor_over_container", taken["guarded"], taken["plain"])


def run_jobs(runners: Sequence[RunnerProcess], jobs: Sequence[Job]) -> None:
    """Run the jobs on the runners, each with a full window, and see that all went well."""
    waiting = [Ticket(index, job, request_body(job)) for index, job in enumerate(jobs)]
    waiting.reverse()
    left = len(waiting)
    while left:
        poll = select.poll()
        for runner in runners:
            while waiting and len(runner.in_flight) < WINDOW:
                runner.submit(waiting.pop())
            for ticket, reply in runner.exchange():
                assert reply.status is Status.OK, (ticket.job, reply)
                left -= 1
            runner.register(poll)
        if left:
            poll.poll(1000)


@contextmanager
def _runner(backend: DockerBackend) -> Iterator[RunnerProcess]:
    worker = RunnerProcess(backend.connect(LIMITS, 1), outer_seconds(LIMITS))
    try:
        while not worker.ready:
            worker.exchange()
            time.sleep(0.01)
        yield worker
    finally:
        worker.connection.end()


@contextmanager
def _floor(backend: DockerBackend) -> Iterator[ContainerConnection]:
    entry = ["python3", "-s", "-S", "-B", "-c", FLOOR, SOCKET_INSIDE, *PRELOADED]
    connection = ContainerConnection({**backend.options(LIMITS, 1), "entrypoint": entry, "command": []})
    try:
        _await([connection])
        yield connection
    finally:
        connection.end()


def _await(connections: Sequence[Connection]) -> None:
    """Wait for one byte from each."""
    waiting = list(connections)
    while waiting:
        poll = select.poll()
        for connection in waiting:
            connection.register(poll, sending=False)
        poll.poll(10_000)
        waiting = [connection for connection in waiting if connection.receive() is None]


def _jobs(count: int, inputs: Sequence[str] = INPUTS[:1]) -> list[Job]:
    return [Job(str(number), f"{PROGRAM} + {number}", tuple(inputs)) for number in range(count)]


def _stats(container: Any) -> dict[str, Any]:
    return container.client.api.stats(container.id, stream=False, one_shot=True)


def _cpu_seconds(container: Any) -> float:
    return _stats(container)["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9


def _memory(runner: RunnerProcess) -> float:
    """MiB that the kernel charges to the container, less the page cache that it would give back."""
    usage = _stats(_container(runner))["memory_stats"]
    cache = usage["stats"].get("total_inactive_file", usage["stats"].get("inactive_file", 0))
    return (usage["usage"] - cache) / MIB


def _container(runner: RunnerProcess) -> Any:
    connection = runner.connection
    assert isinstance(connection, ContainerConnection)
    return connection.container


def _cpu_of(runner: RunnerProcess, jobs: Sequence[Job]) -> float:
    before = _cpu_seconds(_container(runner))
    run_jobs([runner], jobs)
    return _cpu_seconds(_container(runner)) - before


def _cpu_of_forks(floor: ContainerConnection) -> float:
    before = _cpu_seconds(floor.container)
    _fork([floor])
    return _cpu_seconds(floor.container) - before


def _fork(floors: Sequence[ContainerConnection]) -> None:
    for floor in floors:
        floor.send(struct.pack(">I", FORKS))
    _await(floors)


def _wall(runners: Sequence[RunnerProcess]) -> float:
    jobs = _jobs(PROGRAMS * len(runners))
    return wall_seconds(lambda: run_jobs(runners, jobs))


def _wall_of_forks(floors: Sequence[ContainerConnection]) -> float:
    return wall_seconds(lambda: _fork(floors))


def _wall_of_execs(runners: Sequence[RunnerProcess]) -> float:
    """Seconds a program, when every container runs `EXECS` of them one after the other."""
    started = time.perf_counter()
    with ThreadPoolExecutor(len(runners)) as people:
        list(people.map(_exec, list(runners) * EXECS))
    return (time.perf_counter() - started) / (len(runners) * EXECS)


def _exec(runner: RunnerProcess) -> None:
    """One program by `docker exec` in a container of the same image, as a person would do it."""
    code = f"import json\n{PROGRAM}\nprint(f(*{INPUTS[0]}))"
    done = subprocess.run(
        ["docker", "exec", _container(runner).id, "python3", "-I", "-S", "-c", code],
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) is not None
