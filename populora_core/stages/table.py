"""The loop, declared once: what each stage needs, gives, and which settings decide its result.

The plain loop, the Prefect flow, resume and rerun all walk this table; nothing else knows the order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from populora_core.benchmarks.anchors import AGAIN, PEERS

if TYPE_CHECKING:
    from populora_core.config.load import Config


AVERAGE = "average"
"""The section name, in keys, of the settings in [evolve] that decide averages: they are the update's."""

ON_ISLANDS = ("match", "propose", "verify", "solve", "evolve")
"""Stages in which it matters on which island a member lives."""


class When(StrEnum):
    """The generation from which a stage reads an artifact."""

    NOW = "now"  # from an earlier stage of the same generation
    BEFORE = "before"  # from the last stage of the previous generation that gives it
    PAST = "past"  # from every earlier generation, in order
    SO_FAR = "so far"  # from every generation up to this one, in order


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a generation.

    Attributes:
        version: raised whenever the stage's code would give other results from equal inputs.
        needs: name of a table -> which one.
        gives: names of tables, one file each. Members' files lie in folders of their own; `population` and
            `adapters` name them by hash.
        config: the sections of the configuration that decide the result.
        base: whether the result depends on the base model (its files, precision and device).
        dialect: whether it depends on the dialect's templates and grammar.
        sandbox: whether it depends on the sandbox (its runner and Python version).
        sampler: whether it depends on the sampler's engine.
        own: what else decides the result of a stage with a parameter, which stands beside the loop; empty in the loop.
        own_seed: the seed of such a stage.
        code: of such a stage; it is given the context.
    """

    name: str
    version: int
    needs: Mapping[str, When]
    gives: tuple[str, ...]
    config: tuple[str, ...]
    base: bool = False
    dialect: bool = False
    sandbox: bool = False
    sampler: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)
    own_seed: int = 0
    code: Callable[[Any], None] | None = None


FOUND = Stage(
    "found",
    version=2,
    needs={},
    gives=("population", "adapters"),
    config=("population", "adapters", "rating"),
    base=True,
)

LOOP: tuple[Stage, ...] = (
    Stage(
        "match",
        version=1,
        needs={"population": When.BEFORE, "retired": When.PAST},
        gives=("matches",),
        config=("match", "rating"),
    ),
    Stage(
        "propose",
        version=9,
        needs={
            "matches": When.NOW,
            "population": When.BEFORE,
            "problems": When.PAST,
            "problem_results": When.PAST,
            "retired": When.PAST,
        },
        gives=("proposals",),
        config=("adapters", "propose", "compute"),
        base=True,
        dialect=True,
        sampler=True,
    ),
    Stage(
        "verify",
        version=13,
        needs={"proposals": When.NOW, "problems": When.PAST},
        gives=("proposal_checks", "problems"),
        config=("sandbox", "verify", "anchors"),
        dialect=True,
        sandbox=True,
    ),
    Stage(
        "solve",
        version=8,
        needs={
            "matches": When.NOW,
            "problems": When.NOW,
            "population": When.BEFORE,
            "retired": When.PAST,
        },
        gives=("attempts",),
        config=("adapters", "solve", "compute"),
        base=True,
        dialect=True,
        sampler=True,
    ),
    Stage(
        "grade",
        version=8,
        needs={
            "matches": When.NOW,
            "proposals": When.NOW,
            "proposal_checks": When.NOW,
            "problems": When.NOW,
            "attempts": When.NOW,
            "population": When.BEFORE,
            "retired": When.PAST,
        },
        gives=("attempt_grades", "proposal_grades", "problem_results", "match_results", "ratings"),
        config=("sandbox", "grade", "rating"),
        dialect=True,
        sandbox=True,
    ),
    Stage(
        "update",
        version=6,
        needs={
            "proposals": When.NOW,
            "attempts": When.NOW,
            "problems": When.NOW,
            "proposal_grades": When.NOW,
            "attempt_grades": When.NOW,
            "population": When.BEFORE,
        },
        gives=("updates", "proposal_advantages", "attempt_advantages", "adapters"),
        config=("adapters", "update", "compute"),
        base=True,
    ),
    Stage(
        "evaluate",
        version=8,
        needs={
            "population": When.BEFORE,
            "adapters": When.NOW,
            "problems": When.SO_FAR,
            "problem_results": When.SO_FAR,
        },
        gives=("external_fitness", "evaluations", "evaluation_items"),
        config=("adapters", "evaluate", "compute"),
        base=True,
        dialect=True,
        sandbox=True,
        sampler=True,
    ),
    Stage(
        "evolve",
        version=6,
        needs={
            "population": When.BEFORE,
            "ratings": When.NOW,
            "external_fitness": When.NOW,
            "adapters": When.NOW,
        },
        gives=("population", "evolutions", "retired", "adapters"),
        config=("adapters", "rating", "evolve"),
    ),
)

STAGES: dict[str, Stage] = {stage.name: stage for stage in (FOUND, *LOOP)}


def stages_of(generation: int) -> tuple[Stage, ...]:
    """The stages of a generation: generation 0 founds the population, every other one is a turn of the loop."""
    return (FOUND,) if generation == 0 else LOOP


def as_configured(stage: Stage, config: Config) -> Stage:
    """The stage with what decides its result, where more does than usual.

    `solve` with extra attempts also depends on the sandbox; `propose` with refills on all that decides what is a new
    problem, and `verify` then on what was asked for; `verify` that asks past problems again, on their results;
    `grade` that pays for new cells, on past problems; `update` that averages, on the averages' settings; and all that
    know islands, on who lives where. Hyperparameters that members inherit are made where members are, and read where
    they play and learn.
    """
    if config.pbt.on:
        stage = _with_hyperparameters(stage)
    if config.population.islands > 1 and stage.name in ON_ISLANDS:
        stage = replace(stage, config=(*stage.config, "population"))
    if stage.name == "propose" and config.propose.refills:
        stage = replace(stage, config=(*stage.config, "sandbox", "verify"), sandbox=True)
    if stage.name == "verify" and config.propose.refills:
        stage = replace(stage, config=(*stage.config, "propose"))
    if stage.name == "verify" and config.anchors.share and config.anchors.source in AGAIN:
        asked = {"matches": When.NOW, "attempts": When.PAST} if config.anchors.source == PEERS else {}
        return replace(stage, needs={**stage.needs, "problem_results": When.PAST, **asked})
    if stage.name == "solve" and config.anchors.share and config.anchors.source == PEERS:
        stage = replace(stage, config=(*stage.config, "anchors", "population"))
    if stage.name == "solve" and config.solve.extra_attempts:
        read_by = ("grade",) if config.grade.cut_answers != "refuse" else ()
        return replace(stage, config=(*stage.config, "sandbox", *read_by), sandbox=True)
    if stage.name == "update" and config.evolve.average_every:
        return replace(stage, gives=(*stage.gives, "averages"), config=(*stage.config, AVERAGE))
    if stage.name == "grade" and config.grade.new_cell_bonus:
        return replace(stage, needs={**stage.needs, "problems": When.SO_FAR})
    return stage


def _with_hyperparameters(stage: Stage) -> Stage:
    needs = {**stage.needs, "hyperparameters": When.BEFORE}
    match stage.name:
        case "found":
            return replace(stage, gives=(*stage.gives, "hyperparameters"), config=(*stage.config, "pbt"))
        case "evolve":
            gives, config = (*stage.gives, "hyperparameters"), (*stage.config, "pbt")
            return replace(stage, needs=needs, gives=gives, config=config)
        case "propose" | "solve" | "grade" | "update":
            return replace(stage, needs=needs)
        case _:
            return stage


BESIDE = "[!.]*-*"
"""The names of folders of stages with a parameter, as a pattern: no stage of the loop has a dash."""


def folder_name(stage: str) -> str:
    """The name in folders and manifests of a stage as it is typed: evaluate:tiny lies in evaluate-tiny."""
    return stage.replace(":", "-", 1)


def typed_name(folder: str) -> str:
    """The name by which a person types the stage that lies in a folder: evaluate-tiny is evaluate:tiny."""
    return folder.replace("-", ":", 1)


def file_name(artifact: str) -> str:
    return f"{artifact}.parquet"


def giver(artifact: str, stages: tuple[Stage, ...]) -> Stage:
    """The last of `stages` that gives `artifact`."""
    return next(stage for stage in reversed(stages) if artifact in stage.gives)
