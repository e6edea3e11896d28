"""Prefect's part: the flows, and what the command line takes from them."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Nothing leaves the machine unless its owner says so: no usage statistics, no advertisements in the UI.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT", "false")
# A temporary server on a busy two-core machine takes longer to come up than Prefect's own 20 seconds.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "300")
# Prefect looks for this file in ~/.prefect even where PREFECT_HOME is another folder, and warns where that is missing.
PREFECT_HOME = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
os.environ.setdefault("PREFECT_SERVER_MEMO_STORE_PATH", str(PREFECT_HOME / "memo_store.toml"))
# The server of `populora ui` asks for a key, which commands beside it take from where it is kept.
PREFECT_KEY = PREFECT_HOME / "populora.key"
PREFECT_UI = PREFECT_HOME / "populora.address"  # of that server, locked while it runs
if os.environ.get("PREFECT_API_URL", "").startswith("http://127.0.0.1:") and os.access(PREFECT_KEY, os.R_OK):
    os.environ.setdefault("PREFECT_API_AUTH_STRING", PREFECT_KEY.read_text())
# A proxy of the environment reaches no server on this machine.
_unproxied = os.environ.get("no_proxy", os.environ.get("NO_PROXY", ""))
if "127.0.0.1" not in _unproxied and _unproxied != "*":
    os.environ["no_proxy"] = f"{_unproxied},127.0.0.1,localhost".lstrip(",")


@contextmanager
def announced(url: str) -> Iterator[None]:
    """Announce a server for as long as the block lasts: `running_ui` finds it there, unless another was there first."""
    with open(PREFECT_UI, "a+") as file:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            file.write(url)
            file.flush()
        yield


def running_ui() -> str:
    """The address of the server of `populora ui`, while that runs under this PREFECT_HOME; else empty."""
    try:
        with open(PREFECT_UI) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # the kernel lets a lock go when its holder ends
    except BlockingIOError:
        return PREFECT_UI.read_text()
    except OSError:
        pass
    return ""


def ui_to_ask() -> str:
    """The address of the server of `populora ui` while that runs, unless the environment names a server; else empty.

    It comes before the one of Prefect's active profile, which may be a server of others.
    """
    return "" if os.environ.get("PREFECT_API_URL") else running_ui()


def quieten_prefect(home: bool = True) -> None:
    """Settings of a command that runs flows itself, where nothing else was said. Before Prefect is imported."""
    # We print our own account of every error; Prefect's tracebacks would bury it.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")
    # Prefect's queue of events warns at the end of every one that is still to be sent.
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)
    # A server that is gone would be asked for minutes, while the run can go on without it.
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "1")
    if home:  # a run without Prefect leaves no folder of it
        PREFECT_HOME.mkdir(parents=True, exist_ok=True)
