"""Clusters that runs start for themselves: each is its user's alone and ends with its run."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import pytest
from conftest import PATIENCE, alive, small_config, start, wait_for

from populora_core.runs.heartbeat import Beat
from populora_core.runs.reap import reap
from populora_core.runs.run import Run
from populora_core.support import leftovers
from populora_core.support.errors import SandboxUnavailable
from populora_core.support.processes import Owner

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed: pip install -e '.[ray]'", allow_module_level=True)

pytestmark = [pytest.mark.ray, pytest.mark.foreign, pytest.mark.thorough]

ROOT = Path(__file__).resolve().parents[3]


def _ray_folders(pid: int) -> list[Path]:
    """Folders of clusters that the process started."""
    found = []
    for parent in {Path(leftovers.tempfile.gettempdir()), Path("/tmp")}:
        for folder in parent.glob(f"{leftovers.PREFIX}ray-*"):
            with suppress(OSError):  # of another process, which removes it
                if f"-{pid}-" in (folder / leftovers.OWNER).read_text():
                    found.append(folder)
    return found


def _sandboxes(pids: list[int]) -> list[str]:
    """Containers that the processes started."""
    from populora_core.sandbox.containers import LABEL, connect_daemon

    try:
        found = connect_daemon().containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    except SandboxUnavailable:
        return []
    owners = {each.name: Owner.parse(each.labels[LABEL]) for each in found}
    return [name for name, owner in owners.items() if owner is not None and owner.pid in pids]


def _started(directory: Path, stage: str) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A process that resumes the run on a cluster of its own, at a stage, and the processes of the cluster."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-m", "populora_core.commands", "resume", str(directory), "--plain"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        env=environment,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # ignored by what a script starts aside
    )

    workers: list[int] = []

    def at_work() -> bool:
        beat = Beat.read(directory)
        if beat is not None and beat.pid == process.pid and beat.stage == stage:
            workers[:] = [owner.pid for owner in map(Owner.parse, beat.children) if owner is not None]
        return len(workers) > 4

    wait_for(lambda: at_work() or process.poll() is not None)
    return process, workers


@pytest.fixture
def own_cluster(tmp_path: Path) -> Path:
    """A run for which a cluster is started."""
    few = {"population": {"teachers": 1, "students": 1}, "propose": {"per_type": 8}, "evolve": {"every": 0}}
    return start(tmp_path / "run", small_config(**few, compute={"backend": "ray"})).directory


@pytest.mark.loop
@pytest.mark.sandbox
@pytest.mark.parametrize(("number", "stage"), [(signal.SIGINT, "found"), (signal.SIGTERM, "solve")])
def test_an_interrupted_run_ends_its_cluster_with_it(
    own_cluster: Path, number: signal.Signals, stage: str
) -> None:
    process, workers = _started(own_cluster, stage)
    assert workers
    assert _ray_folders(process.pid)
    assert listened_to([process.pid, *workers]) == {"127.0.0.1"}
    process.send_signal(number)
    assert process.wait(PATIENCE) == 128 + number
    assert not any(map(alive, workers))
    assert not _ray_folders(process.pid)
    wait_for(lambda: not _sandboxes(workers))


@pytest.mark.loop
@pytest.mark.sandbox
def test_reap_ends_the_cluster_of_a_killed_run(own_cluster: Path) -> None:
    process, workers = _started(own_cluster, "solve")
    assert workers
    process.kill()
    process.wait()
    done = reap(Run.open(own_cluster))
    assert "was killed: pid" in done[0]
    assert not any(map(alive, workers))
    assert not _ray_folders(process.pid)
    wait_for(lambda: not _sandboxes(workers))


OWN_CLUSTER = """
import os, sys
from populora_plugins.cluster.ray_cluster import RayCluster
cluster = RayCluster("")
print(cluster.folder, os.environ["RAY_AUTH_TOKEN_PATH"], *cluster.pids, flush=True)
sys.stdin.read()
cluster.close()
"""


def test_a_cluster_of_one_machine_is_its_users_alone() -> None:
    """No other user gets at its token or its folder, and no one beyond this machine at its ports."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-c", OWN_CLUSTER]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder, token, *pids = process.stdout.readline().split()
        assert Path(token).parent == Path(folder)
        assert [Path(path).stat().st_mode & 0o777 for path in (folder, token)] == [0o700, 0o600]
        assert listened_to([process.pid, *map(int, pids)]) == {"127.0.0.1"}


def listened_to(pids: Sequence[int]) -> set[str]:
    """The addresses on which processes wait for connections."""
    owned = set()
    for pid in pids:
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    owned.add(os.readlink(link))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in owned:
                found.add(_address(fields[1].partition(":")[0]))
    return found


def _address(words: str) -> str:
    """An address of /proc/net/tcp: words of four bytes, each with its lowest byte first."""
    plain = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    place = ip_address(plain)
    return str(getattr(place, "ipv4_mapped", None) or place)
