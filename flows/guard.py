"""Prefect's server behind a key: it answers those who know the key, its own pages, and requests under its own name.

On its own it answers everyone: any user of the machine, or any page in the owner's browser, could start runs, and
through them commands. Prefect takes its settings from the environment when it is imported, so this module imports it
late.

    python -m flows.guard PORT      the server of `populora ui`
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flows.door import Door
from populora_core.support.children import end_with_parent

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")


def guarded(port: int, key: str) -> dict[str, str]:
    """The environment of a server and of its clients."""
    return {
        "PREFECT_SERVER_API_AUTH_STRING": key,
        "PREFECT_API_AUTH_STRING": key,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(f"http://{name}:{port}" for name in NAMES),
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true",
    }


def serve_below(listener: socket.socket, environment: Mapping[str, str]) -> None:
    """The temporary server's process, which ends with its parent."""
    os.setsid()  # a Ctrl-C in the terminal is for the run to handle, which still has to tell us
    end_with_parent()
    os.environ |= {**environment, "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT_UI_ENABLED": "0"}
    import uvicorn

    config = uvicorn.Config(_app, factory=True, log_level="critical", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


def _app() -> ASGIApp:
    """Prefect's server under its own names alone: a foreign one that leads here is a page that should not read."""
    from prefect.server.api.server import create_app
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    return TrustedHostMiddleware(Door(create_app(final=True)), allowed_hosts=list(NAMES))


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(_app, factory=True, host=HOST, port=int(sys.argv[1]), log_level="warning")
