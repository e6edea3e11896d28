"""Deployment: makes or updates prefect.yaml's work pool and deployments on the server of PREFECT_API_URL.

    python -m flows.deploy LIMIT

Before that, flow runs that an earlier worker left under way are set to Crashed. One process for all, since Prefect's
import costs seconds; `populora ui` calls it.
"""

from __future__ import annotations

import sys

POOL = "populora"


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


def main() -> None:
    from prefect.cli import app

    from flows.notify import notify
    from flows.server import crash_orphaned_flow_runs

    for line in crash_orphaned_flow_runs():
        notify({"state": "Crashed", "message": line})
    make_pool(int(sys.argv[1]))
    sys.argv = ["prefect", "--no-prompt", "deploy", "--all"]
    app()


if __name__ == "__main__":
    main()
