"""`populora ui`: Prefect's server, a worker, the deployments and the reports on this machine, until Ctrl-C.

Everything listens on the loopback address alone, and the server asks for a key (flows/guard.py). What was started is
stopped at the end, runs included. They are shown as Crashed; what they committed stays, and Retry goes on from there.
If this process is killed, the kernel ends server and worker, and each run ends itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from uuid import uuid4

import httpx

import flows
from flows.below import RUN_STOP_SECONDS, below
from flows.deploy import POOL
from flows.guard import HOST, guarded
from flows.reports import index_path, linked, reports_port, serve_reports
from populora_core.runs.lock import lock
from populora_core.support.errors import PopuloraError, RunInUse
from populora_core.support.keys import kept_key
from populora_core.support.ports import require_free_port
from populora_core.support.processes import Owner, descendants
from populora_core.support.shipped import REPOSITORY

START_SECONDS = 300.0
"""A server that makes its database again on a busy two-core machine."""
READY_SECONDS = 60.0
"""The longest that the link waits for the worker; then the page says which deployments are not ready."""
PART_STOP_SECONDS = 5.0
"""Server and worker hold nothing that is lost when they are killed."""
SERVER_LOG = "server.log"
WORKER_LOG = "worker.log"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_LIBC = ctypes.CDLL(None)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold this PREFECT_HOME from the first check on: a second server would call the first one's flow runs crashed."""
    flows.PREFECT_HOME.mkdir(parents=True, exist_ok=True)
    other = flows.running_ui()
    with ExitStack() as held:
        try:
            held.enter_context(lock(flows.PREFECT_HOME))
        except RunInUse as error:
            other = other or error.got
        if other:
            raise PopuloraError(
                "populora ui runs already, with the same PREFECT_HOME",
                got=other,
                fix="use it, or stop it first; another PREFECT_HOME holds another server",
            )
        yield


@_alone()
def serve(port: int, limit: int, say: Callable[[str, str], None]) -> None:
    """Run until SIGINT, SIGTERM or SIGHUP, whose exceptions pass through.

    Args:
        port: of Prefect's UI; reports are served on the next one.
        limit: flow runs at the same time.
        say: called with the addresses of Prefect's UI and of the index of runs, once both answer.

    Raises:
        PopuloraError: another runs, the port is taken, or a part does not start or ends by itself.
    """
    for taken in (port, reports_port(port)):
        require_free_port(HOST, taken)
    _adopt_orphans()
    key = kept_key(flows.PREFECT_KEY)
    runs = REPOSITORY / "runs"
    runs.mkdir(exist_ok=True)  # which the nightly evaluation walks through
    with (
        serve_reports(HOST, reports_port(port), key, runs, f"http://{HOST}:{port}") as reports,
        _ended_with_everything_below(),
    ):
        environment = _environment(port, key)
        server = _start(["flows.guard", str(port)], environment, SERVER_LOG)
        _wait_healthy(port, server)
        _deploy(environment, limit)
        worker = _start(["flows.worker"], environment, WORKER_LOG)
        try:
            api = environment["PREFECT_API_URL"]
            _wait(lambda: worker.poll() is not None or _is_ready(api, key), READY_SECONDS, every=0.5)
            with flows.announced(api):
                say(f"http://{HOST}:{port}", reports + index_path(key, runs))
                _watch({"server": (server, SERVER_LOG), "worker": (worker, WORKER_LOG)})
        finally:
            pause_pool(environment["PREFECT_API_URL"], key)
            _stop(worker, server)


def _environment(port: int, key: str) -> dict[str, str]:
    api = f"http://{HOST}:{port}/api"
    return (
        os.environ
        | guarded(port, key)
        | linked(api, key)
        | below(Owner.this_process())
        | {
            "PREFECT_HOME": str(flows.PREFECT_HOME),
            "PREFECT_API_URL": api,
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "PREFECT_CLIENT_MAX_RETRIES": "3",
            "POPULORA_HOME": str(REPOSITORY),
        }
    )


def _adopt_orphans() -> None:
    """Adopt, from now on, processes whose parents end below this one, so that none is lost."""
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_with_us() -> None:
    """Have the kernel kill this child when its parent ends, however that happens."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _start(module: Sequence[str], environment: Mapping[str, str], log: str) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in the terminal reaches us alone, and we end the parts in order.
    with open(flows.PREFECT_HOME / log, "ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_us,
        )


def _wait_healthy(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise _ended("server", server, SERVER_LOG)
        with suppress(httpx.HTTPError):
            if httpx.get(f"http://{HOST}:{port}/api/health", timeout=5.0).is_success:
                return
        time.sleep(0.5)
    raise PopuloraError(
        f"Prefect's server did not answer within {START_SECONDS:.0f} s",
        fix=f"see {flows.PREFECT_HOME / SERVER_LOG}, or try again on a less busy machine",
    )


def _deploy(environment: Mapping[str, str], limit: int) -> None:
    """Make the work pool and the deployments of prefect.yaml, or bring them up to date."""
    done = subprocess.run(
        [sys.executable, "-m", "flows.deploy", str(limit)],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise PopuloraError(
            "the deployments could not be made",
            got=(done.stderr or done.stdout).strip()[-2000:],
            fix="fix prefect.yaml, or what the message names",
        )


def _known(key: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(key.encode()).decode()}"}


def pause_pool(api: str, key: str) -> None:
    """Let no waiting flow run take the place of one that is being ended; the next start ends the pause."""
    client = str(uuid4())
    with suppress(httpx.HTTPError), httpx.Client(base_url=api, headers=_known(key), timeout=5.0) as server:
        token = server.get("/csrf-token", params={"client": client}).raise_for_status().json()["token"]
        server.headers.update({"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": client})
        server.patch(f"/work_pools/{POOL}", json={"is_paused": True}).raise_for_status()


def _is_ready(api: str, key: str) -> bool:
    """True once the worker has asked for runs: until then the first page marks every deployment in red."""
    with suppress(httpx.HTTPError):
        answer = httpx.get(f"{api}/deployments/name/train/train", headers=_known(key), timeout=5.0)
        return answer.is_success and answer.json()["status"] == "READY"
    return False


def _watch(parts: Mapping[str, tuple[subprocess.Popen[bytes], str]]) -> None:
    while True:
        for name, (process, log) in parts.items():
            if process.poll() is not None:
                raise _ended(name, process, log)
        _collect({process.pid for process, _ in parts.values()})
        time.sleep(0.5)


def _collect(ours: set[int]) -> None:
    """Let adopted orphans that have ended go."""
    for pid in set(descendants(os.getpid(), depth=1)) - ours:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _ended(name: str, process: subprocess.Popen[bytes], log: str) -> PopuloraError:
    path = flows.PREFECT_HOME / log
    return PopuloraError(
        f"Prefect's {name} has ended by itself",
        got=f"exit code {process.returncode}; the end of {path}:\n"
        + "\n".join(path.read_text(errors="replace").splitlines()[-15:]),
        fix="start populora ui again; Retry goes on with runs that were under way",
    )


def _stop(worker: subprocess.Popen[bytes], server: subprocess.Popen[bytes]) -> None:
    """End the runs, then the worker, which reports them, then the server."""
    told = set(descendants(worker.pid))
    for pid in told:
        _signal(pid, signal.SIGTERM)

    def ended() -> bool:
        for pid in set(descendants(worker.pid, depth=1)) - told:  # a flow run that started just now
            told.add(pid)
            _signal(pid, signal.SIGTERM)
        return not descendants(worker.pid)

    _wait(ended, RUN_STOP_SECONDS)
    for part in (worker, server):
        part.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            part.wait(PART_STOP_SECONDS)


@contextmanager
def _ended_with_everything_below() -> Iterator[None]:
    """Kill whatever still lives below this process at the end; a second Ctrl-C does not prevent it."""
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while left := descendants(os.getpid()):
            for pid in left:
                _signal(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.05)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait(condition: Callable[[], bool], seconds: float, every: float = 0.1) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(every)
