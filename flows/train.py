"""Train: one generation is one flow run, one stage one task in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from prefect import Task, flow
from prefect.context import FlowRunContext, SettingsContext, get_settings_context
from prefect.exceptions import ObjectNotFound

from populora_core.lifecycle import loop
from populora_core.lifecycle.progress import score_progress
from populora_core.runs.session import Session, attach
from populora_core.stages.engine import StageResult
from populora_core.stages.table import Stage, stages_of
from populora_core.support.errors import ServerUnreachable
from tasks.interruption import heeding_ctrl_c, interruption
from tasks.plainly import plainly
from tasks.show import shown_beside
from tasks.stages import task_of


def as_task(session: Session, generation: int, stage: Stage, **how: Any) -> StageResult:
    """Run a stage as a task, in place of `run_stage`."""
    return task_of(stage)(str(session.run.directory), session.run.name, generation, how)


@flow(name="generation", flow_run_name="{run_name} g{generation:04d}", persist_result=False)
@plainly
def generation(run_dir: str, run_name: str, generation: int, before: str | None = None) -> None:
    """Match, propose, verify, solve, grade, update, evaluate, evolve, scores; or those before one of them."""
    with attach(run_dir) as session, shown_beside():
        for stage in stages_of(generation):
            if stage.name == before:
                return
            as_task(session, generation, stage)
        score_progress(session, generation, as_task)


@flow(name="rerun", flow_run_name="{run_name} g{generation:04d} again from {stage}", persist_result=False)
@plainly
def rerun(
    run_dir: str,
    run_name: str,
    generation: int,
    stage: str,
    seed: int | None,
    truncate: bool,
    before: str | None = None,
) -> None:
    """Make one stage again, and what follows from it in its generation, up to `before` one of the stages."""
    with attach(run_dir) as session, shown_beside():
        loop.rerun(session, generation, stage, seed=seed, truncate=truncate, run_one=as_task, up_to=before)


def run_generation(session: Session, number: int, before: str | None = None) -> None:
    """Run one generation, or its stages before one of them, as a flow in this process.

    Raises:
        ServerUnreachable: Prefect's server is not there, or went away; stages that were finished stay.
    """
    try:
        _find_again(number)
        with heeding_ctrl_c(), _no_heartbeats():
            generation(str(session.run.directory), session.run.name, number, before)
    except Exception as error:
        if (ended_by := interruption(error)) is not None:
            raise ended_by from None
        if not _is_silence(error):
            raise
        raise unreachable(str(error) or type(error).__name__) from error


@contextmanager
def _no_heartbeats() -> Iterator[None]:
    """No thread of heartbeats in a generation: a flow waits at its end while that sleeps whole seconds.

    The flow run of the whole run has one.
    """
    now = get_settings_context()
    flows = now.settings.flows.model_copy(update={"heartbeat_frequency": None})
    with SettingsContext(profile=now.profile, settings=now.settings.model_copy(update={"flows": flows})):
        yield


def unreachable(came: str) -> ServerUnreachable:
    """The error for a server that should answer and does not."""
    return ServerUnreachable(
        "Prefect's server cannot be reached",
        expected="the server of PREFECT_API_URL, or a temporary one in PREFECT_HOME",
        got=came,
        fix="fix that setting, or add --plain to run without Prefect: the results are the same",
    )


def _is_silence(error: Exception) -> bool:
    """True if Prefect raised this because its server did not answer."""
    if isinstance(error, RuntimeError):  # which it says many other things by
        return any(words in str(error) for words in ("Prefect API", "reach API"))
    return isinstance(error, (httpx.HTTPError, ObjectNotFound))


def _find_again(number: int) -> None:
    """Let a surrounding flow run that is retried find the generation's own flow run.

    Prefect finds it by the count of calls so far, but a retry calls no finished generation.
    """
    if (context := FlowRunContext.get()) is not None:
        key = Task(generation.fn, name=generation.name).task_key
        context.task_run_dynamic_keys[key] = number - 1  # the call adds one
