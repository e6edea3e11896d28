"""Deployment: makes or updates prefect.yaml's work pool and deployments on the server of PREFECT_API_URL.

    python -m flows.deploy LIMIT

Before that, flow runs that a killed process left under way are set to Crashed, and of nights that passed meanwhile
the newest stays. One process for all, since Prefect's import costs seconds; `populora ui` calls it.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

POOL = "populora"
NIGHTLY = "evaluate-nightly"


def make_pool(limit: int) -> None:
    """The pool of processes on this machine, with at most `limit` runs at a time."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.workers.process import ProcessWorker

    # Given here, the template is not asked of the server, which would ask the internet.
    pool = WorkPoolCreate(
        name=POOL,
        type=ProcessWorker.type,
        base_job_template=ProcessWorker.get_default_base_job_template(),
        concurrency_limit=limit,
    )
    with get_client(sync_client=True) as client:
        client.create_work_pool(pool, overwrite=True)


def remove_missed_nights() -> None:
    """Remove all but the newest nightly run of those whose time passed before any began.

    Prefect keeps three to come, and a worker would begin what is left of them at once, ahead of anything launched.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType
    from prefect.client.schemas.sorting import FlowRunSort

    past = filters.FlowRunFilter(
        state=filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
        next_scheduled_start_time=filters.FlowRunFilterNextScheduledStartTime(before_=datetime.now(UTC)),
    )
    nightly = filters.DeploymentFilter(name=filters.DeploymentFilterName(any_=[NIGHTLY]))
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(
            deployment_filter=nightly, flow_run_filter=past, sort=FlowRunSort.EXPECTED_START_TIME_DESC
        )
        missed = [run for run in found if run.auto_scheduled and run.run_count == 0]
        for run in missed[1:]:
            client.delete_flow_run(run.id)


def main() -> None:
    from prefect.cli import app

    from flows.notify import notify
    from flows.server import crash_orphaned_flow_runs

    for line in crash_orphaned_flow_runs():
        notify({"state": "Crashed", "message": line})
    remove_missed_nights()
    make_pool(int(sys.argv[1]))
    sys.argv = ["prefect", "--no-prompt", "deploy", "--all"]
    app()


if __name__ == "__main__":
    main()
