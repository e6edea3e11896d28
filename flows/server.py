"""Prefect's server as a run needs it: one of its own where none is configured; what killed runs left on it."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import Flow, FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events.worker import EventsWorker
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_CSRF_SUPPORT_ENABLED,
    temporary_settings,
)
from prefect.states import Cancelled, Crashed, Failed

import flows
from flows.forms import run_folder
from flows.guard import HOST, guarded, serve_below
from populora_core.runs.lock import lock
from populora_core.store.record import RECORD
from populora_core.support.children import end
from populora_core.support.errors import ArtifactError, RunInUse, ServerUnreachable
from populora_core.support.keys import kept_key, new_key

PROBE_SECONDS = 5.0
START_SECONDS = 300.0
"""Seconds to wait for a server on a busy machine, where Prefect's own 20 are too few; one that fails ends at once."""
END_SECONDS = 3.0
PAGE = 200
NEWEST = 20  # failures that are looked through, every few seconds
EXPIRED = "The flow was paused and never resumed."  # in the words of Prefect's server


@contextmanager
def existing_server() -> Iterator[str]:
    """Ask the server that `commands.server_url` names; its address, empty where there is none."""
    if url := flows.ui_to_ask():
        with temporary_settings(_asking(url, kept_key(flows.PREFECT_KEY))):
            yield url
    else:
        yield PREFECT_API_URL.value() or ""


@contextmanager
def own_server(home: Path | None = None) -> Iterator[None]:
    """A Prefect server for as long as the block lasts; nothing is started where there is one to ask.

    Prefect's own temporary server outlives a process that is killed, and a Ctrl-C in the terminal ends it before
    the run could tell it so. This one ends with its parent however that goes, and in a session of its own.

    Args:
        home: where it keeps its database; `PREFECT_HOME` by default.

    Raises:
        ServerUnreachable: it does not come up.
    """
    with existing_server() as url:
        if url:
            yield
            return
    key = new_key()
    with socket.create_server((HOST, 0)) as listener:
        # asyncio sets this only on sockets that name their protocol; without it every answer takes 40 ms more
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        port = listener.getsockname()[1]
        url = f"http://{HOST}:{port}/api"
        environment = guarded(port, key) | ({"PREFECT_HOME": str(home)} if home is not None else {})
        process = multiprocessing.get_context("spawn").Process(
            target=serve_below,
            args=(listener, environment),
            name="populora-prefect",
            daemon=True,
        )
        process.start()
    try:
        _wait(url, process)
        with temporary_settings(_asking(url, key)):
            yield
            if process.is_alive():
                EventsWorker.drain_all(timeout=END_SECONDS)
    finally:
        end(process, END_SECONDS)


def answers() -> bool:
    """True if the configured server answers."""
    with get_client(sync_client=True) as client:
        return client.api_healthcheck() is None


def forget_events() -> None:
    """Drop the events that a server which is gone has not taken: at exit Prefect would try for seconds with each."""
    queue = EventsWorker.instance()._queue
    with suppress(Empty):
        while True:
            queue.get_nowait()
            queue.task_done()


def crash_left_flow_runs(directory: Path) -> list[str]:
    """Set flow runs on the run directory that are Running to Crashed. Only under its lock: then no one runs them,
    but for the flow run that this is called in.

    Returns:
        What was done, a line each.
    """
    return _crash(
        lambda run: run_folder(run) == directory and str(run.id) != runtime.flow_run.id,
        StateType.RUNNING,
        StateType.CANCELLING,
    )


def crash_orphaned_flow_runs() -> list[str]:
    """Set flow runs under way to Crashed, those of deployments and generations, unless somebody writes to their run.

    Only while there is no worker. After a power cut nothing else does it, and those of deployments would block the work
    pool for good.

    Returns:
        What was done, a line each.
    """
    return _crash(_is_orphaned, StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


def settle_cancelled_flow_runs(gone: frozenset[UUID]) -> frozenset[UUID]:
    """Settle flow runs that are shown as Cancelling while no process runs them. What had ended gets its state back.

    Args:
        gone: those without a process when this was called before: the runner takes a moment to report a cancellation.

    Returns:
        Those without a process now.
    """
    with get_client(sync_client=True) as client:
        left = {
            run.id
            for run in _under_way(client, StateType.CANCELLING)
            if run.deployment_id is not None and not _is_at_work(run)
        }
        for flow_run_id in left & gone:
            before = before_cancelling(client.read_flow_run_states(flow_run_id))
            ended = before if before.is_final() else Cancelled(message="its process had ended")
            again = State(type=ended.type, name=ended.name, message=ended.message)
            client.set_flow_run_state(flow_run_id, again, force=True)
    return frozenset(left)


def unanswered_reviews() -> Iterator[tuple[Flow, FlowRun, State]]:
    """Flow runs whose review no one answered in time, each once, with the state that says so from now on.

    Prefect's server fails them itself, and calls no hook of theirs.
    """
    with get_client(sync_client=True) as client:
        failed = client.read_flow_runs(
            flow_run_filter=_in(StateType.FAILED), sort=FlowRunSort.END_TIME_DESC, limit=NEWEST
        )
        for run in failed:
            if run.parameters.get("review") and run.state is not None and run.state.message == EXPIRED:
                state: State[Any] = Failed(message="no one answered its review in time; Retry asks again")
                client.set_flow_run_state(run.id, state, force=True)
                yield client.read_flow(run.flow_id), run, state


def before_cancelling(states: Iterable[State]) -> State:
    """The newest state of a flow run but for Cancelling."""
    return max((state for state in states if not state.is_cancelling()), key=lambda state: state.timestamp)


def _is_at_work(run: FlowRun) -> bool:
    """True if the process that a worker started for a flow run lives; after a reboot its number is another's."""
    pid = (run.infrastructure_pid or "").rpartition(":")[2]
    try:
        return pid.isdigit() and b"prefect" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _under_way(client: SyncPrefectClient, *states: StateType) -> list[FlowRun]:
    """The flow runs in these states."""
    found: list[FlowRun] = []
    while page := client.read_flow_runs(flow_run_filter=_in(*states), limit=PAGE, offset=len(found)):
        found += page
    return found


def _in(*states: StateType) -> FlowRunFilter:
    return FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(states))))


def _crash(is_left: Callable[[FlowRun], bool], *states: StateType) -> list[str]:
    with get_client(sync_client=True) as client:
        left = [run for run in _under_way(client, *states) if is_left(run)]
        for run in left:
            client.set_flow_run_state(run.id, Crashed(message="the process of this run is gone"), force=True)
    return [f"set the flow run {run.name} from {run.state_name} to Crashed" for run in left]


def _is_orphaned(run: FlowRun) -> bool:
    folder, launched = run_folder(run), run.deployment_id is not None
    if not (launched or _is_generation_here(run, folder)):
        return False
    try:
        with nullcontext() if folder is None else lock(folder):
            return True
    except RunInUse:
        return False
    except ArtifactError:  # a deployment's has no folder yet; that of a generation is another user's
        return launched


def _is_generation_here(run: FlowRun, folder: Path | None) -> bool:
    """True if a flow run is a generation of a run directory that is here.

    On a server that machines share, another may have a directory of the same path, whose lock cannot be seen here.
    """
    of_this_machine = urlsplit(PREFECT_API_URL.value() or "").hostname == HOST
    here = folder is not None and (folder / RECORD).is_file()
    return of_this_machine and here and "run_name" in run.parameters


def _asking(url: str, key: str) -> dict[Any, Any]:
    """The settings of who asks a server with this key."""
    return {
        PREFECT_API_URL: url,
        PREFECT_API_AUTH_STRING: key,
        PREFECT_CLIENT_CSRF_SUPPORT_ENABLED: True,
    }


def _wait(url: str, process: BaseProcess) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.is_alive() and time.monotonic() < deadline:
        with suppress(httpx.TransportError):  # until it listens to what has connected already
            if httpx.get(f"{url}/health", timeout=PROBE_SECONDS).is_success:
                return
        time.sleep(0.05)
    raise ServerUnreachable(
        "Prefect's temporary server does not start",
        got="no answer" if process.is_alive() else f"exit code {process.exitcode}",
        fix="set PREFECT_API_URL to a server that runs, or leave --prefect out; the results are the same",
    )
