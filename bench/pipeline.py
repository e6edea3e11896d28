"""Cost of a population against a pair, and cost of Prefect.

    populora bench pipeline --json

Whole generations of 4 + 4 members over 1 + 1, at equal total work.

Two real runs of the demo's settings on the bundled base go on in turn, generation by generation; the pair's
teacher writes as many proposals as the four teachers together. One shard of one thread in this process, so that
process CPU time holds everything but the programs in the sandbox, which are the same work for both. Updates are
made in full and move nothing: a pair, which learns from four times the tokens, would soon write other texts than
the population; no one is evaluated or bred. What chance makes unequal all the same, such as how many proposals are
valid, is set right stage by stage: the pair's seconds are scaled by the work that the stage had to do.

Prefect's seconds are those of wall time, since it waits for its server more than it computes: two equal small runs go
on in turn, one by the flow and one by the plain loop, and the same generation of both is compared.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import flows
from bench.harness import BenchRow, cpu_seconds, median, ratio, wall_seconds
from populora_core.config.load import load_config
from populora_core.model.base import base_digest
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_generation, run_stage
from populora_core.stages.table import LOOP
from populora_core.store.artifacts import read_table
from populora_core.store.manifest import generation_dir, stage_dir
from populora_core.support.aliases import Say
from populora_core.support.processes import descendants
from populora_core.support.shipped import REPOSITORY

COMMAND = (sys.executable, "-m", "populora_core.commands")
DEMO = REPOSITORY / "configs" / "demo.toml"
QUICK = REPOSITORY / "configs" / "quick.toml"
MEMBERS = 4
PER_TYPE = 24  # proposals of one of four teachers, as in the demo
WARM_UP = 1  # generations that are not measured
STILL = 1e-9  # a learning rate by which no one gets anywhere

Seconds = dict[str, float]  # by stage


SMALL = {  # quick stages, so that chance in their seconds does not hide what lies between them
    "population.teachers": 2,
    "population.students": 2,
    "propose.per_type": 2,
    "solve.attempts": 2,
    "compute.shards": 1,
    "compute.backend": '"inline"',
}
DEMO_GENERATIONS = 3


def run(samples: int, say: Say) -> list[BenchRow]:
    """The rows that have goals, and the stages' part in the first."""
    return [*start_up(samples), *orchestration(samples, say), *overhead(samples, say)]


def start_up(samples: int) -> list[BenchRow]:
    """Seconds until the command line prints its help, and CPU seconds of a quick run before it plays."""
    ask = partial(subprocess.run, [*COMMAND, "--help"], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    ask()  # compiles what is not compiled yet
    return [
        median("help_seconds", [wall_seconds(ask) for _ in range(samples)], "s", "<= 0.5"),
        median("start_cpu_seconds", [_quick_start() for _ in range(samples)], "s"),
    ]


def _quick_start() -> float:
    """CPU seconds of a quick run, with every process below it, when its first generation begins."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        command = [*COMMAND, "run", "--plain", "--config", str(QUICK), "--run-dir", str(run)]
        with subprocess.Popen(
            command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            while not generation_dir(run, 1).exists():
                if process.poll() is not None:
                    raise RuntimeError(f"the quick run ended before it began: {process.communicate()[1]!r}")
                time.sleep(0.01)
            spent = sum(map(_spent, (process.pid, *descendants(process.pid))))
            process.terminate()
    return spent


def _spent(pid: int) -> float:
    """CPU seconds of a living process and of those below it that have ended."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def orchestration(samples: int, say: Say) -> list[BenchRow]:
    """Seconds that Prefect adds to a generation, its server's start not counted, and its share of a demo generation."""
    flows.quieten_prefect()
    from flows.server import own_server
    from flows.train import run_generation as run_flow

    kinds: list[Callable[[Session, int], object]] = [run_flow, run_generation]
    added = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        sessions = [stack.enter_context(_session(Path(folder, kind), SMALL)) for kind in ("flow", "plain")]
        say("starting Prefect's server")
        stack.enter_context(own_server(Path(folder)))
        for generation in range(1 + WARM_UP + samples):
            say(f"generation {generation} by the flow and by the plain loop")
            pair = list(zip(kinds, sessions, strict=True))
            if generation % 2:
                pair.reverse()
            seconds = {run_one: wall_seconds(partial(run_one, of, generation)) for run_one, of in pair}
            if generation > WARM_UP:
                added.append(seconds[run_flow] - seconds[run_generation])
    with tempfile.TemporaryDirectory() as folder, _session(Path(folder, "demo"), {}) as session:
        demo = []
        for generation in range(1 + WARM_UP + DEMO_GENERATIONS):
            say(f"generation {generation} of the demo")
            demo.append(wall_seconds(partial(run_generation, session, generation)))
    usual = statistics.median(demo[1 + WARM_UP :])
    return [
        median("prefect_seconds_per_generation", added, "s", "<= 1"),
        median("prefect_share", [more / (usual + more) for more in added], "ratio"),
    ]


def overhead(samples: int, say: Say) -> list[BenchRow]:
    """Whole generations of 4 + 4 over 1 + 1, and each stage's part in it."""
    many: list[Seconds] = []
    pair: list[Seconds] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        sessions = [stack.enter_context(_start(Path(folder), members)) for members in (MEMBERS, 1)]
        for session in sessions:
            for generation in range(1 + WARM_UP):
                run_generation(session, generation)
        for sample in range(samples):
            say(f"generation {sample + 1} of {samples}")
            generation = 1 + WARM_UP + sample
            turns = list(enumerate(sessions))[:: -1 if sample % 2 else 1]
            seconds = {place: _stage_seconds(session, generation) for place, session in turns}
            work = [_work(session.run.directory, generation) for session in sessions]
            many.append(seconds[0])
            pair.append({name: taken * work[0][name] / work[1][name] for name, taken in seconds[1].items()})
    rows = [
        ratio(
            "overhead_4x4_over_1x1",
            [sum(taken.values()) for taken in many],
            [sum(taken.values()) for taken in pair],
            "<= 1.08",
        )
    ]
    for stage in LOOP:
        over, under = ([taken[stage.name] for taken in kind] for kind in (many, pair))
        rows.append(ratio(f"overhead.{stage.name}", over, under))
    return rows


def _start(folder: Path, members: int) -> Session:
    settings = {
        "population.teachers": members,
        "population.students": members,
        "propose.per_type": PER_TYPE * MEMBERS // members,
        "evolve.every": 0,  # a pair has no one to breed from
        "update.learning_rate": STILL,
        "compute.shards": 1,
        "compute.backend": '"inline"',
    }
    return _session(folder / str(members), settings)


def _session(directory: Path, settings: Mapping[str, object]) -> Session:
    """A new run of the demo's settings but for these."""
    config = load_config(DEMO, [f"{key}={value}" for key, value in settings.items()])
    return Session(Run.create(directory, config, base_digest(config.base.folder())))


def _stage_seconds(session: Session, generation: int) -> Seconds:
    return {stage.name: cpu_seconds(partial(run_stage, session, generation, stage)) for stage in LOOP}


def _work(directory: Path, generation: int) -> Mapping[str, float]:
    """Work of each stage: tokens sampled, programs checked, attempts judged, tokens learned from."""

    def table(stage: str, name: str) -> list[dict[str, Any]]:
        return read_table(stage_dir(directory, generation, stage), name).to_pylist()

    proposals, attempts = table("propose", "proposals"), table("solve", "attempts")
    learned = 0
    for kind, key, rows in (("proposal", "proposal_id", proposals), ("attempt", "attempt_id", attempts)):
        advantage = {row[key]: row["advantage"] for row in table("update", f"{kind}_advantages")}
        learned += sum(row["completion_tokens"] for row in rows if advantage[row[key]])
    return {
        "match": 1,
        "propose": sum(row["completion_tokens"] for row in proposals),
        "verify": len(proposals),
        "solve": sum(row["completion_tokens"] for row in attempts),
        "grade": len(attempts),
        "update": learned,
        "evaluate": 1,  # nothing is due
        "evolve": 1,
    }
