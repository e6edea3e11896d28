"""Ports of this machine: one that is taken is refused before anything starts."""

from __future__ import annotations

import socket

from populora_core.support.errors import ConfigError


def require_free_port(host: str, port: int) -> None:
    """Raise ConfigError unless a server can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"no server can listen on port {port} of {host}",
                got=str(error),
                fix="stop what listens there, or choose another --port",
            ) from error
