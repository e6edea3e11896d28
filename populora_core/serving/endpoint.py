"""A server for the endpoint, in this process."""

from __future__ import annotations

import uvicorn

from populora_core.serving.app import application
from populora_core.serving.fleet import Fleet

KEPT_SECONDS = 120
"""Seconds that a connection stays open between two requests: a trainer learns in between."""


def serve_fleet(fleet: Fleet, key: str, host: str, port: int, *, waiting: int = 512) -> None:
    """Answer until SIGINT or SIGTERM; what is under way then has a moment to end.

    Args:
        waiting: completions that may wait; requests beyond them get status 429.
    """
    app = application(fleet, key, waiting=waiting)
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=KEPT_SECONDS,
    )
