"""Whether the capacity model foresees a larger run: rates from one of 2 + 2 members, against one of 5 + 5.

    python -m bench.capacity_check

Inline, in process CPU seconds of one worker: propose and solve together, and update. It checks neither the sandbox
nor what several workers gain (`bench.scale_nodes` measures that).
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bench.harness import BenchRow, as_json, cpu_seconds, single
from populora_core.config.load import load_config
from populora_core.config.sections import REPOSITORY
from populora_core.model.base import base_digest
from populora_core.planning.capacity import Cluster, Load, Speeds, expected
from populora_core.planning.duration import BACKWARD, FORWARD, Rates
from populora_core.planning.memory import read_shape
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_stage
from populora_core.stages.table import stages_of
from populora_core.store.artifacts import read_table, stage_dir
from populora_core.support.aliases import Say

DEMO = REPOSITORY / "configs" / "demo.toml"
GENERATION = 2  # what is imported and loaded once is no rate
FREE = 1e30  # a rate that is never waited for


@dataclass(frozen=True, slots=True)
class Played:
    """One generation of a real run: CPU seconds of its stages, rows, and tokens written."""

    seconds: dict[str, float]
    proposals: int
    problems: int
    attempts: int
    proposal_tokens: int
    attempt_tokens: int

    @property
    def tokens(self) -> int:
        return self.proposal_tokens + self.attempt_tokens


def rows(small: int, large: int, say: Say) -> list[BenchRow]:
    """`predicted_over_measured.sampling` and `.learning` for a run of `large` members a role, by one of `small`."""
    with tempfile.TemporaryDirectory() as folder:
        say(f"playing {GENERATION} generations of {small} + {small} members")
        few = play(Path(folder) / "small", small)
        say(f"playing {GENERATION} generations of {large} + {large} members")
        many = play(Path(folder) / "large", large)
    return compare(few, many, large)


def compare(few: Played, many: Played, members: int) -> list[BenchRow]:
    """The rows, from what was played."""
    shape = read_shape(REPOSITORY / "base_model" / "tiny", rank=8)
    sampled, learnt = few.seconds["propose"] + few.seconds["solve"], few.seconds["update"]
    speeds = Speeds(
        shape=shape,
        sampling=Rates(FORWARD * shape.parameters * few.tokens / sampled, FREE),
        learning=Rates((FORWARD + BACKWARD) * shape.parameters * few.tokens / learnt, FREE),
        programs=FREE,
        rows=16,
    )
    load = Load(
        teachers=members,
        students=members,
        proposals=round(many.proposals / members),
        valid=many.problems / many.proposals,
        attempts=round(many.attempts / many.problems),
        judged=0.5,
        proposal_tokens=many.proposal_tokens / many.proposals,
        answer_tokens=many.attempt_tokens / many.attempts,
        spread=0.0,
    )
    found = expected(load, Cluster(1), speeds, np.random.default_rng(0))
    sampling, learning = (
        sum(found[stage].workers for stage in stages) / sum(many.seconds[stage] for stage in stages)
        for stages in (("propose", "solve"), ("update",))
    )
    return [
        single("predicted_over_measured.sampling", sampling, "ratio"),
        single("predicted_over_measured.learning", learning, "ratio"),
    ]


def play(directory: Path, members: int) -> Played:
    """Play `GENERATION` generations of the demo with so many members a role, inline; the last one is told."""
    overrides = [
        f"population.teachers={members}",
        f"population.students={members}",
        "propose.per_type=8",
        "solve.attempts=4",
        "compute.backend=inline",
        "compute.shards=1",
        "evolve.every=0",
    ]
    config = load_config(DEMO, overrides)
    seconds: dict[str, float] = {}
    with Session(Run.create(directory, config, base_digest(config.base.folder()))) as session:
        for number in range(GENERATION + 1):
            for stage in stages_of(number):
                seconds[stage.name] = cpu_seconds(partial(run_stage, session, number, stage))
    proposals, attempts, problems = (
        read_table(stage_dir(directory, GENERATION, stage), name)
        for stage, name in (("propose", "proposals"), ("solve", "attempts"), ("verify", "problems"))
    )
    return Played(
        seconds,
        proposals.num_rows,
        problems.num_rows,
        attempts.num_rows,
        sum(proposals["completion_tokens"].to_pylist()),
        sum(attempts["completion_tokens"].to_pylist()),
    )


if __name__ == "__main__":
    print(as_json("capacity", rows(2, 5, lambda line: print(line, file=sys.stderr))))
