"""A Prefect server as a run starts its own, for tests that ask it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
from conftest import PATIENCE, alive, wait_for
from prefect_key import PrefectKey

from flows.deploy import POOL
from populora_core.support.processes import descendants

ROOT = Path(__file__).resolve().parent.parent
SERVE = """
import sys
import flows
if __name__ == "__main__":
    flows.quieten_prefect()
    from flows.server import own_server
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL
    with own_server():
        print(PREFECT_API_URL.value(), PREFECT_API_AUTH_STRING.value(), flush=True)
        sys.stdin.read()
"""


class Server:
    """A Prefect server, and the process that started it."""

    def __init__(self, home: Path) -> None:
        script = home / "serve.py"
        script.write_text(SERVE)
        self.environment = os.environ | {
            "PREFECT_HOME": str(home / "prefect"),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "160",
        }
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url, self.key = self.process.stdout.readline().split()
        self.environment |= {"PREFECT_API_URL": self.url, "PREFECT_API_AUTH_STRING": self.key}

    def populora(self, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "populora_core.commands", *map(str, arguments)]
        return subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        """Kill what started the server, which ends with its parent."""
        children = descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        wait_for(lambda: not any(map(alive, children)))

    def ask(self, path: str, body: object) -> Any:
        """The answer to a request with the key."""
        auth = PrefectKey(self.url, self.key)
        return (
            httpx.post(f"{self.url}/{path}", json=body, timeout=PATIENCE, auth=auth).raise_for_status().json()
        )

    def found(self, what: str, **where: Any) -> list[dict[str, Any]]:
        """All flows, flow runs, artifacts or work pools, or those where something holds."""
        found: list[dict[str, Any]] = self.ask(f"{what}/filter", where)
        return found

    def asked(self) -> AbstractContextManager[object]:
        """A block in which this process asks the server."""
        from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

        return temporary_settings({PREFECT_API_URL: self.url, PREFECT_API_AUTH_STRING: self.key})

    def flow_runs(self, directory: Path) -> list[tuple[str, str]]:
        """(name, state) of every flow run of a run's."""
        found = self.found("flow_runs")
        own = [run for run in found if run["name"].startswith(f"{directory.name} ")]
        return sorted((run["name"], run["state"]["name"]) for run in own)

    def make_pool(self) -> None:
        subprocess.run(
            [sys.executable, "-c", "from flows.deploy import make_pool; make_pool(2)"],
            cwd=ROOT,
            env=self.environment,
            check=True,
        )

    def pool_is_paused(self) -> bool:
        return next(bool(pool["is_paused"]) for pool in self.found("work_pools") if pool["name"] == POOL)
