"""Flows that train, to launch from the Prefect UI: the deployments `train` and `resume` of prefect.yaml.

Prefect makes the forms from the signatures and docstrings below. Relative paths start at the project's folder.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import get_run_logger, suspend_flow_run
from prefect.states import Completed, State
from pydantic import Field

from flows.choices import CHOICES, STAGES
from flows.forms import KEYS, RunFolder, RunToUse, launched, run_folder, this_flow_run, titled
from flows.notify import notify
from flows.observed import Observed
from flows.page import RunPage
from flows.train import rerun as rerun_flow
from flows.train import run_generation
from populora_core.config.load import Config
from populora_core.lifecycle import loop
from populora_core.population.replacement import always_stay, evolves
from populora_core.report.write import report_address
from populora_core.runs.preflight import load_runnable
from populora_core.runs.run import RECORD, Run, begin, is_begun_with
from populora_core.runs.session import Session, attach
from populora_core.stages.engine import is_done
from populora_core.stages.engine import run_generation as run_alone
from populora_core.stages.table import folder_name, stages_of
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.errors import ConfigError, ServerUnreachable
from populora_core.support.shipped import REPOSITORY

EVOLVE = "evolve"
REVIEW_SECONDS = 30 * 24 * 3600
"""Seconds that a run waits for its review before Prefect fails it; Retry then asks again."""
AS_CONFIGURED = -1

Preset = Annotated[
    Literal[
        "16gb",
        "4x24gb",
        "demo",
        "frontier",
        "frontier-4x4",
        "h200",
        "paper-7b",
        "quick",
        "quick-instruct",
        "real",
        "solo",
        "solo-7b",
        "solo-total",
    ],
    titled("Preset"),
]
StageName = Annotated[str, titled("Redo: stage", **{CHOICES: STAGES})]
TargetGeneration = Annotated[int, titled("Generations"), Field(ge=0, le=100_000)]
Review = Annotated[bool, titled("Review replacements")]


@launched(lambda given: f"{_folder().name} train")
def train(
    run_dir: RunFolder = "",
    preset: Preset = "quick",
    config_file: Annotated[str, titled("Configuration file")] = "",
    generations: TargetGeneration = 0,
    seed: Annotated[int, titled("Seed"), Field(ge=AS_CONFIGURED)] = AS_CONFIGURED,
    settings: Annotated[tuple[str, ...], titled("Other settings", description=KEYS)] = (),
    review: Review = False,
) -> State[Any]:
    """Start a run: found a population and train it.

    Args:
        run_dir: A new folder for everything the run makes, for instance runs/first; empty for runs/DATE-NAME.
        preset: The configuration. On two cores quick takes one minute, frontier seven minutes, demo eight;
            quick-instruct tries a chat model that "Other settings" names in base.path;
            real plays a pretrained model of half a billion parameters, once `populora try --base qwen2.5-coder-0.5b`
            and `populora suite fetch cruxeval-held-out` have fetched what it needs;
            solo and solo-total are the single agent; 16gb, 4x24gb, h200, paper-7b and solo-7b need GPUs.
        config_file: A TOML file of your own, in place of the preset; empty for the preset.
        generations: How many generations; 0 for what the configuration says.
        seed: Equal seeds give equal runs; -1 for what the configuration says.
        settings: Other settings to replace, each as section.key=value, for instance solve.attempts=4.
        review: Wait before each evolution until a person has seen who may be replaced and presses Resume.
    """
    overrides = list(settings)
    overrides += [f"run.generations={generations}"] if generations else []
    overrides += [f"run.seed={seed}"] if seed != AS_CONFIGURED else []
    file = Path(os.path.expanduser(config_file)) if config_file else REPOSITORY / "configs" / f"{preset}.toml"
    config = load_runnable(file, overrides)
    folder = _folder()
    return _go_on(_begun(folder, config) or begin(folder, config), config.run.generations, review)


@launched(lambda given: f"{_folder().name} resume")
def resume(
    run_dir: RunToUse,
    generations: TargetGeneration = 0,
    redo_generation: Annotated[int, titled("Redo: generation"), Field(ge=0)] = 0,
    redo_stage: StageName = "",
    redo_seed: Annotated[int, titled("Redo: seed"), Field(ge=AS_CONFIGURED)] = AS_CONFIGURED,
    truncate: Annotated[bool, titled("Redo: set later generations aside")] = False,
    review: Review = False,
) -> State[Any]:
    """Go on with a run; or first make one of its stages again.

    Args:
        run_dir: The folder of the run.
        generations: Go on to this generation; 0 for what the run was started with.
        redo_generation: To make a stage again: its generation. 0 makes none again.
        redo_stage: To make a stage again: its name, evaluate:SUITE for scores on a suite, or assemble:SUITE. What
            follows from it is made again where it changes.
        redo_seed: Draw the stage that is made again with this seed; -1 to repeat it as it was.
        truncate: Where later generations no longer follow, move them to superseded/ and make them again.
        review: Wait before each evolution until a person has seen who may be replaced and presses Resume; not before
            one that is itself made again.
    """
    if bool(redo_generation) != bool(redo_stage):
        raise ConfigError(
            "a stage to make again needs a generation and a name",
            got=f"generation {redo_generation or 'not given'}, stage {redo_stage or 'not given'}",
            fix="give both, or neither to go on with the run as it is",
        )
    run = Run.open(_folder())
    seed = None if redo_seed == AS_CONFIGURED else redo_seed
    with Session(run):
        if redo_stage and not _made_again(run, redo_generation, redo_stage, seed):
            before = EVOLVE if review and redo_stage != EVOLVE else None
            rerun_flow(str(run.directory), run.name, redo_generation, redo_stage, seed, truncate, before)
        # A generation of which a stage was made again is finished, though it lies beyond the run's own end.
        return _go_on(run, max(redo_generation, generations or run.config.run.generations), review)


def _folder() -> Path:
    folder = run_folder(this_flow_run())
    assert folder is not None, "both flows have it in their parameters"
    return folder


def _begun(folder: Path, config: Config) -> Run | None:
    """The run that this flow run has begun already, where it is retried, or resumed after a review."""
    if not (folder / RECORD).is_file():
        return None
    run = Run.open(folder)
    return run if is_begun_with(run.config, config) and _is_ours(run.record["created_at"]) else None


def _go_on(run: Run, generations: int, review: bool) -> State[Any]:
    """Train up to the given generation, and say where everything lies."""
    logger = get_run_logger()

    def warn(message: str) -> None:
        logger.warning(message)
        notify({"run": str(run.directory), "message": message})

    with attach(run.directory) as session:
        session.observer = page = RunPage(run, generations)
        run_one = Observed(warn, reviewed, unreviewed) if review else Observed(warn)
        loop.train(session, generations, run_one, page.show)
    made = run.generations()[-1]
    return Completed(
        message=f"{run.directory} has {made} generations; report: {report_address(run.directory)}"
    )


def reviewed(session: Session, number: int) -> None:
    """A generation that is suspended before it replaces anybody; the process ends until a person resumes."""
    if _evolves(session, number):
        earlier = tuple(stage for stage in stages_of(number) if stage.name != EVOLVE)
        if not is_done(session, number, earlier):
            run_generation(session, number, before=EVOLVE)
        suspend_flow_run(timeout=REVIEW_SECONDS, key=f"review-{number}")  # returns once it was resumed
    run_generation(session, number)


def unreviewed(session: Session, number: int) -> None:
    """A generation while no server answers: no one could be asked, so no one is replaced.

    Raises:
        ServerUnreachable: the generation replaces members.
    """
    if _evolves(session, number):
        raise ServerUnreachable(
            f"generation {number} waits for a review, and Prefect's server is gone",
            fix="start it again, then press Retry; everything committed stays",
        )
    run_alone(session, number)


def _evolves(session: Session, number: int) -> bool:
    """True if members may be replaced at the end of this generation."""
    config, population = session.run.config, session.run.config.population
    most = max(population.teachers, population.students, population.solo) // population.islands
    may_go = config.evolve.replacement != "none" and most > always_stay(config.evolve)
    return may_go and evolves(config.evolve, number, config.run.generations)


def _made_again(run: Run, generation: int, stage: str, seed: int | None) -> bool:
    """True if this flow run, retried, has made the stage already, with the seed that it was given."""
    found = read_manifest(stage_dir(run.directory, generation, folder_name(stage)))
    if found is None or not _is_ours(found.started_at):
        return False
    drawn = found.seed if ":" in stage else run.redrawn(generation, stage)
    return seed is None or drawn == seed


def _is_ours(moment: str) -> bool:
    """True if an ISO 8601 time lies after this flow run was created. Its count of tries leaves out resumes."""
    created = this_flow_run().created
    assert created is not None
    return datetime.fromisoformat(moment) >= created.replace(microsecond=0)
