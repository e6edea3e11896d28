"""The siege: harmless and hostile programs by the thousand, workers killed at random, the daemon restarted.

    python tests/siege.py --programs 100000 --json bench/results/siege.json

Nine programs of ten are the grammar's own, with outputs that are known beforehand, or fail in a known way; one is an
attack (siege_cases.py). Each goes the way of a proposal: two runs that must agree, without the static policy. A round
is one pool of one backend: after it nothing may be left of it. Limits count CPU time, so a busy machine changes
nothing. `infrastructure` is no verdict: it is counted by itself, and the program runs again.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
from siege_cases import Case, draw, hostile_cases

from base_model.blocks import choose
from bench.harness import BenchRow, as_json, print_table, single
from populora_core.sandbox import cgroups
from populora_core.sandbox.backends import BACKENDS, describe_backends
from populora_core.sandbox.jobs import MIB, Job, JobResult, Limits
from populora_core.sandbox.pool import SandboxPool
from populora_core.sandbox.status import Status
from populora_core.sandbox.verify import verify
from populora_core.support.aliases import Say
from populora_core.support.processes import GONE, Owner, descendants, started

LIMITS = Limits(cpu_seconds=0.3, wall_seconds=4, memory_bytes=64 * MIB, output_bytes=4096)
BATCH, ROUND = 500, 2000  # programs
SLOW = {"gvisor"}  # where attacks on memory meet their time limit first
RESTARTS = 2
ATTEMPTS = 5  # at a program that no sandbox answered
GONE_SECONDS = 60.0  # until the daemon has removed what ended
SHOWN = 20  # wrong verdicts in the report
OWN_CHILDREN = 36  # PR_SET_CHILD_SUBREAPER


@dataclass(slots=True)
class Figures:
    """What has come of a siege so far.

    Attributes:
        counts: programs by backend, and whatever else is counted.
        wrong: what ended otherwise than it must, in words.
        left: by kind of thing, how many of it were left of a round, summed over all rounds.
        memory: MiB of this process after each round.
    """

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def rows(self) -> list[BenchRow]:
        """Every figure, with what it should be."""
        kinds = [name for name in BACKENDS if self.counts[name]]
        settled = self.memory[len(kinds) - 1 :] or [0.0]  # each backend has been used once
        named = ("hostile", "infrastructure", "workers_killed", "daemon_restarts")
        left = ("descriptors", "threads", "processes", "files", "cgroups", "containers")
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return [
            single("programs", sum(self.counts[name] for name in kinds), "programs"),
            *(single(f"programs.{name}", self.counts[name], "programs") for name in kinds),
            *(single(name, self.counts[name], "") for name in named),
            single("wrong", len(self.wrong), "verdicts", "<= 0"),
            single("unanswered", self.counts["unanswered"], "programs", "<= 0"),
            *(single(f"{name}_left", self.left[name], "", "<= 0") for name in left),
            single("mib_at_first", settled[0], "MiB"),
            single("mib_growth", settled[-1] - settled[0], "MiB", "<= 16"),
            single("wall_seconds", self.seconds, "s"),
            single("cpu_seconds", sum(each.ru_utime + each.ru_stime for each in usage), "s"),
        ]


class BesiegedPool(SandboxPool):
    """A pool whose workers are killed at random while they run programs.

    Args:
        chance: that a worker is killed when an answer comes.
        also: called whenever an answer comes.
    """

    def __init__(
        self,
        kind: str,
        rng: np.random.Generator,
        chance: float,
        counts: Counter[str],
        also: Callable[[], None],
    ) -> None:
        super().__init__(BACKENDS[kind](), LIMITS, workers=1, hash_seed=int(rng.integers(1 << 20)))
        self._rng, self._chance, self._counts, self._also = rng, chance, counts, also

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int], None] | None = None, *, repeat: bool = False
    ) -> list[JobResult]:
        return super().run(jobs, self._strike, repeat=repeat)

    def _strike(self, done: int) -> None:
        self._also()
        if self._rng.random() < self._chance:
            with suppress(Exception):  # of the daemon: a container that is just being removed
                self._counts["workers_killed"] += self._kill(choose(self._rng, self.pids))

    def _kill(self, pid: int) -> bool:
        """Kill a worker, or the runner below what made its namespaces; never a later process of the same id."""
        if self.name != "docker" and self._rng.random() < 0.5:
            pid = choose(self._rng, descendants(pid, 1))
        handle = os.pidfd_open(pid)
        try:
            ours = pid in {*self.pids, *descendants(os.getpid())}
            if ours:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            return ours
        finally:
            os.close(handle)


def lay(
    figures: Figures,
    kinds: Sequence[str],
    programs: int,
    seed: int,
    say: Say,
    *,
    in_round: int = ROUND,
    kill_chance: float = 1 / 400,
    restart: Callable[[], None] | None = None,
) -> Iterator[Figures]:
    """Besiege the backends in turn, a round each, until all programs have run; the figures after each round.

    Args:
        in_round: programs of one pool.
        kill_chance: that a worker is killed when an answer comes.
        restart: restarts the Docker daemon; called in the middle of two of the rounds with docker.
    """
    rng = np.random.default_rng(seed)
    hostile = hostile_cases()
    rounds = -(-programs // in_round)
    plan = [kinds[number % len(kinds)] for number in range(rounds)]
    docks = [number for number, kind in enumerate(plan) if kind == "docker"]
    restarts = (
        {docks[len(docks) * (2 * n + 1) // (2 * RESTARTS)] for n in range(RESTARTS)} if docks else set()
    )
    began, done = time.monotonic(), 0
    for number, kind in enumerate(plan):
        count = min(in_round, programs - done)
        cases = [draw(rng, hostile) for _ in range(count)]
        with nothing_left(figures, kind):
            besiege(figures, kind, cases, rng, kill_chance, restart if number in restarts else None)
        done += count
        figures.seconds = time.monotonic() - began
        say(
            f"round {number + 1} of {rounds}, {kind}: {done} of {programs} programs in {figures.seconds:.0f} s, "
            f"{len(figures.wrong)} wrong, left {dict(+figures.left)}, {dict(figures.counts)}, "
            f"{figures.memory[-1]:.1f} MiB"
        )
        yield figures


def besiege(
    figures: Figures,
    kind: str,
    cases: Sequence[Case],
    rng: np.random.Generator,
    kill_chance: float,
    restart: Callable[[], None] | None,
) -> None:
    """Run the programs in one pool, batch by batch, those again that no sandbox answered, and judge them."""
    answers = 0

    def also() -> None:
        nonlocal answers, restart
        answers += 1
        if restart is not None and answers > len(cases):  # two runs each: about the middle
            restart()
            restart = None
            figures.counts["daemon_restarts"] += 1

    with BesiegedPool(kind, rng, kill_chance, figures.counts, also) as pool:
        for start in range(0, len(cases), BATCH):
            left = list(cases[start : start + BATCH])
            for _ in range(ATTEMPTS):
                if left:
                    left = _run(figures, pool, left, figures.counts["runs"])
            figures.counts["unanswered"] += len(left)
    figures.counts[kind] += len(cases)
    figures.counts["hostile"] += sum(case.hostile for case in cases)


def _run(figures: Figures, pool: SandboxPool, cases: Sequence[Case], first: int) -> list[Case]:
    """Run and judge the programs; those that got no verdict."""
    numbered = enumerate(cases, first)
    jobs = [Job(case.name, f"{case.program}\n# {number}", case.inputs) for number, case in numbered]
    figures.counts["runs"] += len(jobs)
    unanswered = []
    for case, result in zip(cases, verify(pool, jobs, policy=False), strict=True):
        if result.status is Status.INFRASTRUCTURE:
            figures.counts["infrastructure"] += 1
            unanswered.append(case)
        elif not case.allows(result):
            figures.wrong.append(f"{pool.name}: {case.name}: {result}\n{case.program}")
    return unanswered


@contextmanager
def nothing_left(figures: Figures, kind: str) -> Iterator[None]:
    """Count what a round leaves behind, and the memory of this process after it."""
    before = _descriptors(), threading.active_count(), set(_processes())
    yield
    end = time.monotonic() + GONE_SECONDS
    while (left := _left(kind, *before)) and time.monotonic() < end:
        time.sleep(0.1)
    figures.left += left
    figures.memory.append(_memory())


def _left(kind: str, descriptors: int, threads: int, processes: set[int]) -> Counter[str]:
    """What is there that was not before; empty if nothing is."""
    gc.collect()
    _collect()
    own = os.getpid()
    found = {
        "descriptors": _descriptors() - descriptors,
        "threads": threading.active_count() - threads,
        "processes": len(set(_processes()) - processes),
        "files": len(os.listdir(tempfile.gettempdir())),
        "cgroups": len(list(cgroups.ROOT.glob(f"**/{cgroups.PREFIX}{own}-{started(own)}-*"))),
        "containers": _containers() if kind == "docker" else 0,
    }
    return +Counter(found)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _processes() -> list[int]:
    """Processes below this one, those that lost their parent among them; neither ended ones nor the daemon's."""
    own = [pid for pid in descendants(os.getpid()) if started(pid) != GONE]
    return [pid for pid in own if _name(pid) not in ("dockerd", "containerd")]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _containers() -> int:
    import docker

    from populora_core.sandbox.containers import LABEL

    mine = {"label": f"{LABEL}={Owner.this_process()}"}
    with closing(docker.from_env()) as client:
        return len(client.containers.list(all=True, filters=mine, ignore_removed=True))


def _memory() -> float:
    """MiB of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MIB


def _collect() -> None:
    """Take note of the end of what came to us when its parent was killed, as `init` would; no pool is open."""
    for pid in descendants(os.getpid(), 1):
        if started(pid) == GONE:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no round after that")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there after each round")
    asked = parser.parse_args()
    ctypes.CDLL(None).prctl(OWN_CHILDREN, 1, 0, 0, 0)  # whatever loses its parent comes to this process
    figures = Figures()
    with ExitStack() as stack:
        works = {found.name for found in describe_backends() if found.works}
        kinds = [name for name in BACKENDS if name in works - SLOW]
        restart = stack.enter_context(own_daemon()) if "docker" in kinds else None
        tempfile.tempdir = stack.enter_context(tempfile.TemporaryDirectory(prefix="siege-"))
        for _ in lay(figures, kinds, asked.programs, asked.seed, log, restart=restart):
            report = json.loads(as_json("siege", figures.rows()))
            report |= {
                "command": " ".join(sys.argv),
                "wrong": figures.wrong[:SHOWN],
                "mib_by_round": figures.memory,
            }
            if asked.json:
                asked.json.write_text(json.dumps(report, indent=1) + "\n")
            if figures.seconds > 60 * asked.minutes:
                break
    print_table("siege", figures.rows())
    print(*figures.wrong[:SHOWN], sep="\n")
    sys.exit(any(row.meets_goal is False for row in figures.rows()))


@contextmanager
def own_daemon() -> Iterator[Callable[[], None] | None]:
    """What restarts the daemon of which docker's part of the siege makes use; None where none can be started."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        yield None
        return
    from docker_daemon import daemon_with_image

    with daemon_with_image() as daemon:
        os.environ["DOCKER_HOST"] = daemon.address

        def restart() -> None:
            daemon.stop()
            daemon.start()

        yield restart


def log(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)


if __name__ == "__main__":
    main()
