"""What a population costs against a pair: whole generations of 4 + 4 members over 1 + 1, at equal total work.

    populora bench pipeline --json

Two real runs of the demo's settings on the bundled base go on in turn, generation by generation; the pair's
teacher writes as many proposals as the four teachers together. One shard of one thread in this process, so that
process CPU time holds everything but the programs in the sandbox, which are the same work for both. What chance
makes unequal all the same, such as how many proposals are valid, is set right stage by stage: the pair's seconds
are scaled by the work that the stage had to do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Row, Say, cpu_seconds, ratio
from populora_core.base_model import base_digest
from populora_core.config import REPOSITORY, load_config
from populora_core.run import Run
from populora_core.session import Session
from populora_core.stages.engine import run_generation, run_stage
from populora_core.stages.table import LOOP
from populora_core.store.artifacts import read_table, stage_dir

DEMO = REPOSITORY / "configs" / "demo.toml"
MEMBERS = 4
PER_TYPE = 24  # proposals of one of four teachers, as in the demo
WARM_UP = 1  # generations that are not measured

Seconds = dict[str, float]  # by stage


def run(samples: int, say: Say) -> list[Row]:
    """The ratios that DESIGN.md names."""
    return overhead(samples, say)


def overhead(samples: int, say: Say) -> list[Row]:
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
            seconds = [_stage_seconds(session, generation) for session in sessions]
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
        "evolve.every": 0,  # a pair has nobody to breed from
        "compute.shards": 1,
        "compute.backend": '"inline"',
    }
    config = load_config(DEMO, [f"{key}={value}" for key, value in settings.items()])
    return Session(Run.create(folder / str(members), config, base_digest(config.base.folder())))


def _stage_seconds(session: Session, generation: int) -> Seconds:
    return {stage.name: cpu_seconds(partial(run_stage, session, generation, stage)) for stage in LOOP}


def _work(directory: Path, generation: int) -> Mapping[str, float]:
    """What each stage had to do: tokens sampled, programs checked, attempts judged, tokens learned from."""

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
