"""Study: every run of a study is one task, some at a time; the verdicts appear as a table artifact."""

from __future__ import annotations

import os
from contextvars import copy_context
from pathlib import Path
from threading import Event
from typing import Annotated, Any

from prefect import get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Cancelled, Completed, Failed, State

from flows.forms import launched, titled
from populora_core.support.aliases import Say
from populora_core.support.errors import StudyError
from populora_plugins.study.conduct import conduct, plan, play_apart, require_current
from populora_plugins.study.play import Assignment
from populora_plugins.study.report import write_report
from populora_plugins.study.verdicts import as_json, read_results
from tasks.show import artifact_key


@launched(lambda given: f"study {Path(given['config']).stem}")
def study(
    config: Annotated[str, titled("Study file")],
    again: Annotated[bool, titled("Make void runs again")] = False,
) -> State[Any]:
    """Make what is left of a study, then its verdicts and report. What was interrupted goes on.

    Args:
        config: A study's file, such as configs/levers/baseline.toml.
        again: Set aside and make again what other code or settings made.

    Returns:
        A failed state that names every run that could not be made.
    """
    planned = plan(os.path.expanduser(config))
    for line in planned.lines():
        _log(line)
    if not again:
        require_current(planned)
    here = copy_context()  # tasks are called from the conductor's threads, which know of no flow run

    def play_as_task(run: Assignment, say: Say, stop: Event) -> None:
        here.copy().run(play, run.name, run, say, stop)

    failure: StudyError | None = None
    try:
        conduct(planned, _log, play_as_task)
    except StudyError as error:
        failure = error
    write_report(planned.study.results)
    _show(planned.study.name, as_json(read_results(planned.study.results)))
    if failure is not None:
        get_run_logger().error("%s", failure)
        return Failed(message=failure.problem)
    return Completed(message=f"all {planned.runs} runs of {planned.study.name} are done")


@task(name="study run", task_run_name="{name}", cache_policy=NO_CACHE, persist_result=False)
def play(name: str, run: Assignment, say: Say, stop: Event) -> State[Any] | None:
    """Make one run in a process of its own, and its summary."""
    play_apart(run, say, stop)
    ended = stop.is_set() and not run.summary.exists()
    return Cancelled(message="it was ended before its summary") if ended else None


def _log(line: str) -> None:
    """Log a line in the flow run, or in the task run that is under way."""
    get_run_logger().info(line)


def _show(name: str, table: dict[str, Any]) -> None:
    create_table_artifact(
        key=artifact_key("verdicts", name),
        table=[{key: claim[key] for key in ("title", "verdict")} for claim in table["claims"]],
        description=f"the claims of study {name}, {len(table['runs'])} runs",
    )
