"""Notices to people that a run failed or crashed, wherever they want to hear it.

POPULORA_NOTIFY is an http(s) address, which gets the notice as a JSON body, or a command, which gets it on standard
input. Without it notices are lines of notices.jsonl in PREFECT_HOME.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import shlex
import subprocess
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import flows

NOTIFY = "POPULORA_NOTIFY"
LOG = "notices.jsonl"
SECONDS = 30.0
_WEB = ("http://", "https://")


def notify(notice: dict[str, Any]) -> None:
    """Deliver a notice. What goes wrong is logged: a notice never ends a run."""
    line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds")} | notice)
    target = os.environ.get(NOTIFY, "")
    try:
        _deliver(target, line)
    except (OSError, ValueError, subprocess.SubprocessError, http.client.HTTPException) as error:
        logging.getLogger(__name__).warning(
            "the notice could not be given to %s: %s", destination(), _why(error)
        )


def destination() -> str:
    """The destination of notices, for a person to read: scheme and host of an address, the name of a command.

    The rest may be a secret: the path of a webhook, a user and password, a header that carries a key.
    """
    target = os.environ.get(NOTIFY, "")
    scheme, web, _ = target.strip().partition("://")
    if _is_web(target):
        try:
            return f"{scheme.lower()}://{urlsplit(target.strip()).netloc.rpartition('@')[2]}"
        except ValueError:  # brackets that do not close
            return f"{scheme.lower()}://"
    if web and " " not in scheme:
        return f"{scheme}://"
    return target.split()[0] if target.strip() else str(_log_file())


def on_end(flow: Any, flow_run: Any, state: Any) -> None:
    """Prefect's hook of a flow run that failed or crashed."""
    from prefect.utilities.urls import url_for

    notify(
        {
            "flow": flow.name,
            "flow_run": flow_run.name,
            "state": state.name,
            "message": state.message,
            "parameters": flow_run.parameters,
            "url": url_for("flow-run", obj_id=flow_run.id),
        }
    )


def _why(error: Exception) -> str:
    """The error without the target, which the text of some repeats."""
    said = (getattr(error, name, None) for name in ("code", "returncode", "strerror", "reason"))
    return " ".join([type(error).__name__, *(str(part) for part in said if part is not None)])


def _deliver(target: str, line: str) -> None:
    if not target:
        path = _log_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a") as file:
            file.write(line + "\n")
    elif _is_web(target):
        request = urllib.request.Request(target.strip(), line.encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=SECONDS).close()
    else:
        subprocess.run(shlex.split(target), input=line, text=True, timeout=SECONDS, check=True)


def _is_web(target: str) -> bool:
    return target.strip().lower().startswith(_WEB)


def _log_file() -> Path:
    return flows.PREFECT_HOME / LOG
