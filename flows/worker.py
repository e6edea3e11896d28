"""Prefect's worker for processes, which cancels a flow run as often as a person asks, and keeps the desk in order.

    python -m flows.worker      the worker of `populora ui`

Prefect's runner remembers what it has cancelled and ignores a second request: a flow run retried in between would go
on, and the server would show it as Cancelled five minutes later. Nothing settles a flow run that ended before its
cancellation arrived: it would stay Cancelling, or become Cancelled if its process had not quite gone.
"""

from __future__ import annotations

import sys
import time
from threading import Thread
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import FlowRun
from prefect.logging import get_logger
from prefect.runner import Runner

from flows.choices import lists, offer
from flows.deploy import POOL
from flows.notify import on_end
from flows.server import before_cancelling, settle_cancelled_flow_runs, unanswered_reviews
from populora_core.support.shipped import REPOSITORY

EVERY = 5.0  # seconds


class Forgetful(Runner):
    """A runner that forgets what it has cancelled once that starts again, and cancels nothing that has ended."""

    async def execute_flow_run(self, flow_run_id: UUID, *how: Any, **more: Any) -> Any:
        self._cancelling_flow_run_ids.discard(flow_run_id)
        return await super().execute_flow_run(flow_run_id, *how, **more)

    async def _mark_flow_run_as_cancelled(self, flow_run: FlowRun, *how: Any, **more: Any) -> bool:
        if before_cancelling(await self._client.read_flow_run_states(flow_run.id)).is_final():
            return False  # settled by `keep_order`
        return await super()._mark_flow_run_as_cancelled(flow_run, *how, **more)


def keep_order() -> None:
    """Settle what was cancelled too late, tell of reviews that expired, keep the lists of the forms, for ever."""
    offered: object = None
    gone: frozenset[UUID] = frozenset()
    while True:
        try:
            gone = settle_cancelled_flow_runs(gone)
            for review in unanswered_reviews():
                on_end(*review)
            if (now := lists(REPOSITORY)) != offered:
                offer(now)
                offered = now
        except Exception as error:  # the server is busy, or going down
            get_logger("populora").debug("is tried again: %s", error)
        time.sleep(EVERY)


def main() -> None:
    from prefect.cli import app
    from prefect.workers import process

    process.Runner = Forgetful  # type: ignore[misc]  # a worker makes its own, and lets none be given
    Thread(target=keep_order, daemon=True).start()
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
