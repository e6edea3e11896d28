"""Prefect's part of the command line. `commands.app` finds it by name, so that the core runs without."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import flows  # sets Prefect's environment before anything imports it
from populora_core.runs.session import Session


def server_url() -> str:
    """The address of a Prefect server that is configured or runs under `populora ui`; empty for none."""
    if url := flows.ui_to_ask():
        return url
    flows.quieten_prefect(home=False)  # which Prefect heeds when it is imported
    # Of the environment, or of the profile, which only Prefect can read.
    from prefect.settings import PREFECT_API_URL

    return PREFECT_API_URL.value() or ""


def train(session: Session, generations: int, say: Callable[[str], None]) -> None:
    """Go on to this generation, each a flow of Prefect's; where no server is there, one is started for the time."""
    url = server_url()
    if url:
        say(f"Prefect shows this run at {url.removesuffix('/api')}/runs; --plain runs without it")
    else:
        say("starting Prefect, about 20 seconds; --plain runs without it")
    flows.quieten_prefect()
    from flows.observed import Observed
    from flows.reports import linked
    from flows.server import own_server
    from populora_core.lifecycle.loop import train
    from populora_core.support.keys import kept_key

    if url and url == flows.running_ui():
        os.environ |= linked(url, kept_key(flows.PREFECT_KEY))
    with own_server():
        train(session, generations, Observed(say))


def crash_left(directory: Path) -> list[str]:
    """Set flow runs of a run directory that stayed Running to Crashed; what was done, a line each."""
    from flows.server import answers, crash_left_flow_runs, existing_server

    with existing_server() as url:
        if not url:
            return []
        return crash_left_flow_runs(directory) if answers() else ["Prefect's server does not answer"]


def ui(port: int, limit: int) -> None:
    """Prefect's server, a worker and the deployments on this machine, until Ctrl-C.

    Args:
        limit: runs at the same time.
    """
    from flows.door import login
    from flows.notify import destination
    from flows.ui import serve
    from populora_core.support.keys import kept_key

    def say(address: str, index: str) -> None:
        print(f"Prefect  {login(address, kept_key(flows.PREFECT_KEY))}")
        print(f"runs     {index}")
        print(f"key      {flows.PREFECT_KEY}, which the first link holds: it logs in")
        print(f"notices  of runs that fail or crash go to {destination()}")
        print("Ctrl-C here stops everything; what runs committed stays", flush=True)

    print("starting Prefect, about half a minute ...", flush=True)
    try:
        serve(port, limit, say)
    except KeyboardInterrupt:
        print("stopped; what runs committed stays, and Retry goes on from there")
