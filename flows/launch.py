"""What a person launches from the Prefect UI: the deployments `train` and `resume` of prefect.yaml.

Prefect makes the forms from the signatures and docstrings below. Relative paths start at the project's folder.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import flow, get_run_logger, runtime, suspend_flow_run
from prefect.artifacts import create_link_artifact
from prefect.context import FlowRunContext
from prefect.states import Completed, State
from pydantic import Field

from flows.notify import notify, on_end
from flows.observed import Observed
from flows.train import rerun as rerun_flow
from flows.train import run_generation
from populora_core.config.load import Config, apply_overrides
from populora_core.config.sections import REPOSITORY, Count
from populora_core.lifecycle import loop
from populora_core.population.replacement import evolves
from populora_core.report.write import report_address
from populora_core.runs.preflight import load_runnable
from populora_core.runs.run import RECORD, Run, begin
from populora_core.runs.session import Session, attach
from populora_core.stages.engine import is_done
from populora_core.stages.engine import run_generation as run_alone
from populora_core.stages.table import stages_of
from populora_core.store.artifacts import read_manifest, stage_dir
from populora_core.support.errors import ConfigError, ServerUnreachable
from tasks.show import artifact_key

EVOLVE = "evolve"
REVIEW_SECONDS = 30 * 24 * 3600
"""How long a run waits for its review before Prefect fails it; Retry then asks again."""

Preset = Literal["demo", "frontier", "paper-7b", "quick", "solo", "solo-7b", "solo-total"]
StageName = Literal["match", "propose", "verify", "solve", "grade", "update", "evaluate", "evolve"]

Seed = Annotated[int, Field(ge=0)]


def _name() -> str:
    """RUN and what is done with it."""
    return f"{Path(runtime.flow_run.parameters['run_dir']).name} {runtime.flow_run.flow_name}"


@flow(name="train", flow_run_name=_name, on_failure=[on_end], on_crashed=[on_end], persist_result=False)
def train(
    run_dir: str,
    preset: Preset = "quick",
    config_file: str = "",
    generations: Count | None = None,
    seed: Seed | None = None,
    settings: tuple[str, ...] = (),
    review: bool = False,
) -> State[Any]:
    """Start a run: found a population and train it.

    Args:
        run_dir: A new folder for everything the run makes, for instance runs/first.
        preset: The configuration: quick takes a minute on two cores, frontier four, demo eight, 7b a GPU;
            solo is the single agent.
        config_file: A TOML file of your own, in place of the preset; empty for the preset.
        generations: How many generations; empty for what the configuration says.
        seed: Equal seeds give equal runs; empty for what the configuration says.
        settings: Other settings to replace, each as section.key=value, for instance solve.attempts=4.
        review: Wait before each evolution until a person has seen who may be replaced and presses Resume.
    """
    overrides = list(settings)
    overrides += [f"run.generations={generations}"] if generations is not None else []
    overrides += [f"run.seed={seed}"] if seed is not None else []
    config = load_runnable(config_file or REPOSITORY / "configs" / f"{preset}.toml", overrides)
    return _go_on(_begun(run_dir, config) or begin(run_dir, config), config.run.generations, review)


@flow(name="resume", flow_run_name=_name, on_failure=[on_end], on_crashed=[on_end], persist_result=False)
def resume(
    run_dir: str,
    generations: Count | None = None,
    generation: Count | None = None,
    stage: StageName | None = None,
    seed: Seed | None = None,
    truncate: bool = False,
    review: bool = False,
) -> State[Any]:
    """Go on with a run; or first make one of its stages again.

    Args:
        run_dir: The folder of the run.
        generations: Go on to this generation; empty for what the run was started with.
        generation: To make a stage again: its generation.
        stage: To make a stage again: its name. What follows from it is made again where it changes.
        seed: Draw the stage that is made again with this seed; empty to repeat it as it was.
        truncate: Where later generations no longer follow, move them to superseded/ and make them again.
        review: Wait before each evolution until a person has seen who may be replaced and presses Resume.
    """
    if (generation is None) != (stage is None):
        raise ConfigError(
            "a stage to make again needs a generation and a name",
            came=f"generation {generation}, stage {stage}",
            remedy="give both, or neither to go on with the run as it is",
        )
    run = Run.open(run_dir)
    with Session(run):
        if generation is not None and stage is not None and not _made_again(run, generation, stage):
            rerun_flow(str(run.directory), run.name, generation, stage, seed, truncate)
        return _go_on(run, generations or run.config.run.generations, review)


def _begun(run_dir: str, config: Config) -> Run | None:
    """The run that this flow run has begun already, where it is retried, or resumed after a review."""
    if not (Path(run_dir) / RECORD).is_file():
        return None
    run = Run.open(run_dir)
    sampler, sandbox = run.config.sampler.engine, run.config.sandbox.backend
    same = apply_overrides(config, [f"sampler.engine={sampler}", f"sandbox.backend={sandbox}"])
    return run if run.config == same and _is_ours(run.record["created_at"]) else None


def _go_on(run: Run, generations: int, review: bool) -> State[Any]:
    """Train up to the given generation, and say where everything lies."""
    logger = get_run_logger()

    def warn(message: str) -> None:
        logger.warning(message)
        notify({"run": str(run.directory), "message": message})

    create_link_artifact(
        key=artifact_key(run.name, "report"),
        link=report_address(run.directory),
        link_text=f"report of {run.name}",
        description=f"{run.directory}, brought up to date after every generation",
    )
    with attach(run.directory) as session:
        loop.train(session, generations, Observed(warn, _reviewed, _unreviewed) if review else Observed(warn))
    return Completed(
        message=f"{run.directory} has {generations} generations; report: {report_address(run.directory)}"
    )


def _reviewed(session: Session, number: int) -> None:
    """A generation that is suspended before it replaces anybody; the process ends until a person resumes."""
    if _evolves(session, number):
        earlier = tuple(stage for stage in stages_of(number) if stage.name != EVOLVE)
        if not is_done(session, number, earlier):
            run_generation(session, number, before=EVOLVE)
        suspend_flow_run(timeout=REVIEW_SECONDS, key=f"review-{number}")  # returns once it was resumed
    run_generation(session, number)


def _unreviewed(session: Session, number: int) -> None:
    """A generation while no server answers: nobody could be asked, so nobody is replaced.

    Raises:
        ServerUnreachable: the generation replaces members.
    """
    if _evolves(session, number):
        raise ServerUnreachable(
            f"generation {number} waits for a review, and Prefect's server is gone",
            remedy="start it again, then press Retry; everything committed stays",
        )
    run_alone(session, number)


def _evolves(session: Session, number: int) -> bool:
    return evolves(session.run.config.evolve, number)


def _made_again(run: Run, generation: int, stage: str) -> bool:
    """Whether this flow run, retried, has made the stage already."""
    found = read_manifest(stage_dir(run.directory, generation, stage))
    return found is not None and _is_ours(found.started_at)


def _is_ours(moment: str) -> bool:
    """Whether an ISO 8601 time lies after this flow run was asked for. Its count of tries tells nothing of resumes."""
    context = FlowRunContext.get()
    assert context is not None and context.flow_run is not None and context.flow_run.created is not None
    return datetime.fromisoformat(moment) >= context.flow_run.created.replace(microsecond=0)
