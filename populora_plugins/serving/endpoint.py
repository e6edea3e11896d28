"""A server for the endpoint, in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from populora_plugins.serving.app import application
from populora_plugins.serving.fleet import Fleet

KEPT_SECONDS = 120
"""Seconds that a connection stays open between two requests: a trainer learns in between."""
REQUEST_SECONDS = 20.0
"""Seconds for all of a request to come: a client that sends half a request cannot hold a connection."""


class Punctual(H11Protocol):
    """HTTP whose requests come within `REQUEST_SECONDS`, head and body."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel()

    def _expect(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._cancel()
        elif self._late is None:
            self._late = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _cancel(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


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
        http=Punctual,
    )
