"""Prefect's worker for processes, which cancels a flow run as often as a person asks.

    python -m flows.worker      the worker of `populora ui`

By itself Prefect's runner keeps in mind what it has cancelled, and passes over a second request: a flow run that was
retried in between would go on, and the server would show it as Cancelled five minutes later.
"""

from __future__ import annotations

import sys
from typing import Any
from uuid import UUID

from prefect.runner import Runner

from flows.deploy import POOL


class Forgetful(Runner):
    """A runner that forgets what it has cancelled once that starts again."""

    async def execute_flow_run(self, flow_run_id: UUID, *how: Any, **more: Any) -> Any:
        self._cancelling_flow_run_ids.discard(flow_run_id)
        return await super().execute_flow_run(flow_run_id, *how, **more)


def main() -> None:
    from prefect.cli import app
    from prefect.workers import process

    process.Runner = Forgetful  # type: ignore[misc]  # a worker makes its own, and lets none be given
    sys.argv = [
        "prefect",
        "worker",
        "start",
        "--pool",
        POOL,
        "--name",
        POOL,
        "--type",
        process.ProcessWorker.type,
    ]
    app()


if __name__ == "__main__":
    main()
