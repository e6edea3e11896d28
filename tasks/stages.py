"""One Prefect task a stage. The artifact on disk decides what is done, so Prefect caches and persists nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from populora_core.runs.session import attach
from populora_core.stages.engine import StageResult, run_stage
from populora_core.stages.table import STAGES, Stage
from tasks.show import progress_shown, show


def _task(stage: Stage) -> Task[..., StageResult]:
    @task(
        name=stage.name,
        task_run_name="{run_name} g{generation:04d} " + stage.name,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    def run(
        run_dir: str, run_name: str, generation: int, how: Mapping[str, Any] | None = None
    ) -> StageResult:
        """Make the stage unless it is done; `how` holds further arguments of `run_stage`."""
        with attach(run_dir) as session:
            with progress_shown(session, generation, stage.name):
                result = run_stage(session, generation, stage, **(how or {}))
            show(session, result)
        return result

    return run


def task_of(stage: Stage) -> Task[..., StageResult]:
    """The task of a stage; one with a parameter has its own."""
    return _task(stage) if stage.own else TASKS[stage.name]


TASKS: dict[str, Task[..., StageResult]] = {name: _task(stage) for name, stage in STAGES.items()}
