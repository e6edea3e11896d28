"""What a generation takes on a cluster, from rates that were measured or stated: where it saturates, and on what.

A discrete model. Every member's completions are drawn in length, members are dealt to workers as the stages deal
them, a worker takes as long as its work or its longest completion, a stage ends with its slowest worker, and what one
process does alone comes on top. Left out: loading the base, queues in the sandbox, a network that is shared with
others, and what is lost when something dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from populora_core.planning.duration import Rates, SamplingLoad, step_seconds, update_seconds
from populora_core.planning.memory import MASTER, SAMPLER_ROWS, STATE, ModelShape
from populora_core.support.arrays import Array

RUNS = 2  # of every proposal, under two hash seeds
FILES = 3  # of an adapter's folder


@dataclass(frozen=True, slots=True)
class Load:
    """One generation of a population.

    Attributes:
        teachers, students: members of each role; every student plays against as many teachers as the next.
        proposals: of one teacher, all types together.
        valid: share of them that become problems.
        attempts: at one problem.
        judged: share of the attempts that the sandbox runs a program for.
        proposal_tokens, answer_tokens: mean length of a completion.
        spread: standard deviation of a member's mean length, over the mean.
    """

    teachers: int
    students: int
    proposals: int
    valid: float
    attempts: int
    judged: float
    proposal_tokens: float
    answer_tokens: float
    spread: float = 0.2

    @property
    def members(self) -> int:
        return self.teachers + self.students

    @property
    def answers(self) -> float:
        """Attempts of one student."""
        return self.teachers * self.proposals * self.valid * self.attempts / self.students


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes that are alike.

    Attributes:
        workers: shards that one node runs at once; one for each GPU.
        cores: of one node that run programs.
    """

    nodes: int
    workers: int = 1
    cores: int = 1


@dataclass(frozen=True, slots=True)
class Alone:
    """Seconds of a stage that one process does, whatever the cluster: a fixed part and one of every member."""

    fixed: float = 0.0
    member: float = 0.0


@dataclass(frozen=True, slots=True)
class Speeds:
    """What the parts of a cluster keep up.

    Attributes:
        shape, weight_bytes: of the base.
        sampling, learning: of one worker.
        rows: completions that one worker samples at once.
        programs: that one core runs in a second.
        shard: seconds that a shard costs beside its work.
        alone: stage -> what the driver does.
        state_bytes: a second, of members' weights and moments through one process that would join them; 0 where
            they stay in the files of their shards.
        store_requests, store_bytes: a second, of the store, all nodes together; 0 for a disk that is not waited for.
        checkpointing: whether an update computes the forward pass twice.
    """

    shape: ModelShape
    sampling: Rates
    learning: Rates
    programs: float
    weight_bytes: int = 2
    rows: int = SAMPLER_ROWS
    shard: float = 0.0
    alone: Mapping[str, Alone] = field(default_factory=dict)
    state_bytes: float = 0.0
    store_requests: float = 0.0
    store_bytes: float = 0.0
    checkpointing: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds of one stage.

    Attributes:
        workers: of the slowest worker, all shards working at once.
        alone: of driver and store, while the workers wait.
    """

    workers: float = 0.0
    alone: float = 0.0

    @property
    def seconds(self) -> float:
        return self.workers + self.alone


def expected(load: Load, cluster: Cluster, speeds: Speeds, rng: np.random.Generator) -> dict[str, Expected]:
    """Stage -> what it is expected to take. Equal generators draw equal members, whatever the cluster.

    More nodes never make a stage's slowest worker slower where they multiply the number that there was, since
    every worker's members are then dealt to several.
    """
    asked = _lengths(load.teachers, load.proposal_tokens, load.spread, rng)
    answered = _lengths(load.students, load.answer_tokens, load.spread, rng)
    workers = cluster.nodes * cluster.workers
    learnt = [
        update_seconds(speeds.shape, SamplingLoad(1, count * length), speeds.checkpointing, speeds.learning)
        for lengths, count in ((answered, load.answers), (asked, load.proposals))
        for length in lengths
    ]
    joining = _quotient(2 * MASTER * STATE * speeds.shape.adapter * load.members, speeds.state_bytes)
    alone = {
        "propose": _stored(load.teachers, workers, speeds),
        "solve": _stored(load.students, workers, speeds),
        "update": joining + _stored(load.members, workers, speeds),
        "evolve": joining,
    }
    working = {
        "propose": speeds.shard
        + max(_sampling(share, load.proposals, speeds) for share in _deal(asked, workers)),
        "verify": speeds.shard + _programs(RUNS * load.teachers * load.proposals, cluster, speeds),
        "solve": speeds.shard
        + max(_sampling(share, load.answers, speeds) for share in _deal(answered, workers)),
        "grade": speeds.shard + _programs(load.students * load.answers * load.judged, cluster, speeds),
        "update": speeds.shard + max(float(np.sum(share)) for share in _deal(np.array(learnt), workers)),
    }
    return {
        stage: Expected(working.get(stage, 0.0), alone.get(stage, 0.0) + _driver(stage, load, speeds))
        for stage in ("match", "propose", "verify", "solve", "grade", "update", "evolve")
    }


def whole(stages: Mapping[str, Expected]) -> Expected:
    """All stages of a generation, one after the other."""
    return Expected(
        sum(stage.workers for stage in stages.values()), sum(stage.alone for stage in stages.values())
    )


def _lengths(members: int, mean: float, spread: float, rng: np.random.Generator) -> Array:
    """Each member's mean length: gamma, so that none is negative and few are long."""
    if spread == 0.0:
        return np.full(members, mean)
    return rng.gamma(1.0 / spread**2, mean * spread**2, members)


def _deal(values: Array, workers: int) -> Sequence[Array]:
    """Every worker's members, as `StageContext.shares` deals them; workers without any are left out."""
    return [values[worker::workers] for worker in range(min(workers, len(values)))]


def _sampling(lengths: Array, completions: float, speeds: Speeds) -> float:
    """Seconds of a worker whose places are filled again as completions end (`completions` of each member)."""
    width = max(1.0, min(speeds.rows, completions * len(lengths)))
    one, all_rows = (
        step_seconds(speeds.shape, rows, speeds.weight_bytes, speeds.sampling) for rows in (1, width)
    )
    return max(one * float(lengths.max()), all_rows * completions * float(lengths.sum()) / width)


def _programs(count: float, cluster: Cluster, speeds: Speeds) -> float:
    return float(np.ceil(count / (cluster.nodes * cluster.cores))) / speeds.programs


def _stored(members: int, workers: int, speeds: Speeds) -> float:
    """Seconds that the store takes for the members' adapters, and every shard's object and manifest."""
    requests = FILES * members + 2 * min(workers, members)
    size = MASTER * speeds.shape.adapter * members
    return max(_quotient(requests, speeds.store_requests), _quotient(size, speeds.store_bytes))


def _driver(stage: str, load: Load, speeds: Speeds) -> float:
    own = speeds.alone.get(stage, Alone())
    return own.fixed + own.member * load.members


def _quotient(amount: float, rate: float) -> float:
    return amount / rate if rate else 0.0
