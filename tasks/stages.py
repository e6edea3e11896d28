"""One Prefect task a stage. The artifact on disk decides what is done, so Prefect caches and persists nothing."""

from __future__ import annotations

from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from populora_core.session import attach
from populora_core.stages.engine import run_stage
from populora_core.stages.table import STAGES, Stage


def _task(stage: Stage) -> Task[..., dict[str, Any]]:
    @task(
        name=stage.name,
        task_run_name=stage.name + " g{generation:04d}",
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    def run(run_dir: str, generation: int) -> dict[str, Any]:
        with attach(run_dir) as session:
            result = run_stage(session, generation, stage)
        return {"stage": result.stage, "reused": result.reused, "seconds": round(result.seconds, 2)}

    return run


TASKS: dict[str, Task[..., dict[str, Any]]] = {name: _task(stage) for name, stage in STAGES.items()}
