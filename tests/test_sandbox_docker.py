"""What only the docker sandbox does: hardened containers that always go, and daemons that come and go."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import PATIENCE, wait_for
from requests import Response

from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import MIB, Job, JobResult, Limits
from populora_core.sandbox.pool import SandboxPool, outer_seconds
from populora_core.sandbox.status import Status
from populora_core.support import leftovers
from populora_core.support.errors import SandboxUnavailable
from populora_core.support.processes import Owner

docker = pytest.importorskip("docker")
from docker_daemon import Daemon, daemon_with_image  # noqa: E402  # they import docker

from populora_core.sandbox import containers  # noqa: E402
from populora_plugins.machine import sandbox_image  # noqa: E402

pytestmark = [pytest.mark.sandbox, pytest.mark.docker, pytest.mark.foreign, pytest.mark.thorough]

LIMITS = Limits(cpu_seconds=0.3, wall_seconds=30, memory_bytes=64 * MIB)
SLEEPER = (
    "import _thread\ndef f(x):\n    lock = _thread.allocate_lock()\n    lock.acquire()\n    lock.acquire()"
)


@pytest.fixture(scope="module")
def backend() -> containers.DockerBackend:
    try:
        return containers.DockerBackend()
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def pool(backend: containers.DockerBackend) -> Iterator[SandboxPool]:
    with SandboxPool(backend, LIMITS, workers=2, hash_seed=3) as pool:
        yield pool


def squares(count: int) -> list[Job]:
    return [Job(str(n), f"def f(x):\n    return x * x + {n}", (f"({n},)",)) for n in range(count)]


def right(count: int) -> list[JobResult]:
    return [JobResult(str(n), Status.OK, (str(n * n + n),)) for n in range(count)]


def containers_of(pid: int) -> list[Any]:
    client = docker.from_env()
    found = client.containers.list(all=True, filters={"label": containers.LABEL}, ignore_removed=True)
    return [each for each in found if Owner.parse(each.labels[containers.LABEL]).pid == pid]


def containers_in(pool: SandboxPool) -> list[Any]:
    """Those that programs may run in; this process may have other pools, and containers that come or go."""
    return [each for each in containers_of(os.getpid()) if each.attrs["State"]["Pid"] in pool.pids]


def is_there(container: Any) -> bool:
    return container.id in {
        each.id for each in docker.from_env().containers.list(all=True, ignore_removed=True)
    }


def left_behind(backend: containers.DockerBackend) -> tuple[Any, Path]:
    """A container and a folder of a process that is gone."""
    with subprocess.Popen(["sleep", "60"]) as dead:
        owner = Owner.this_process()
        gone = Owner(owner.boot, owner.namespace, dead.pid, "1")
        dead.kill()
    options = {**backend.options(LIMITS, 1), "auto_remove": False, "labels": {containers.LABEL: str(gone)}}
    folder = leftovers.make_folder("sandbox", 0)
    (folder / leftovers.OWNER).write_text(gone.here)
    return docker.from_env().containers.create(**options), folder


def folders_of(pid: int) -> list[Path]:
    found = []
    for mark in Path(tempfile.gettempdir()).glob(f"{leftovers.PREFIX}sandbox-*/{leftovers.OWNER}"):
        with suppress(FileNotFoundError):  # of another process, which removes it
            if f"-{pid}-" in mark.read_text():
                found.append(mark.parent)
    return found


# Containers


def test_containers_are_hardened_as_documented(pool: SandboxPool) -> None:
    mine = containers_in(pool)
    assert len(mine) == 2
    for container in mine:
        host = container.attrs["HostConfig"]
        assert host["NetworkMode"] == "none"
        assert host["ReadonlyRootfs"] and not host["Privileged"] and host["AutoRemove"]
        assert host["CapDrop"] == ["ALL"]
        assert {name.removeprefix("CAP_") for name in host["CapAdd"]} == {"SETUID", "SETGID", "KILL"}
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["IpcMode"] == "none"
        assert host["PidsLimit"] == 16
        assert host["Memory"] == host["MemorySwap"] == LIMITS.memory_bytes + containers.RUNNER_BYTES
        assert host["NanoCpus"] == 10**9
        assert host["LogConfig"]["Type"] == "none"
        assert not host.get("Tmpfs") and not host["Binds"]
        assert [(mount["Destination"], mount["RW"]) for mount in container.attrs["Mounts"]] == [
            (containers.LINK_INSIDE, False)
        ]
        assert container.top()["Processes"]


def test_nobody_else_on_the_host_can_reach_the_link(pool: SandboxPool) -> None:
    folders = {Path(mount["Source"]).parent for each in containers_in(pool) for mount in each.attrs["Mounts"]}
    assert len(folders) == 2 and folders <= set(folders_of(os.getpid()))
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


HOST = """
import os, signal, sys, time
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job, Limits
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
pool = open_sandbox("docker", Limits(), workers=2)
print("open", flush=True)
if sys.argv[1] == "return":
    sys.exit()
if sys.argv[1] == "raise":
    raise RuntimeError
pool.run([Job(str(n), {sleeper!r}, ("(1,)",)) for n in range(4)])
"""


@pytest.mark.parametrize("way", ["return", "raise", "SIGTERM", "SIGINT", "SIGKILL"])
def test_containers_and_folders_go_with_their_process(backend: containers.DockerBackend, way: str) -> None:
    script = HOST.replace("{sleeper!r}", repr(SLEEPER))
    with subprocess.Popen(
        [sys.executable, "-c", script, way], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as host:
        assert host.stdout and host.stdout.readline() == "open\n"
        if way.startswith("SIG"):
            assert len(containers_of(host.pid)) == 2
            wait_for(lambda: any(len(each.top()["Processes"]) > 1 for each in containers_of(host.pid)))
            host.send_signal(getattr(signal, way))
    wait_for(lambda: not containers_of(host.pid))
    if way in ("SIGKILL", "SIGTERM"):  # no one was left to tidy up: the next start does
        containers.DockerBackend()
    wait_for(lambda: not folders_of(host.pid))


def test_a_start_sweeps_what_dead_processes_left_and_nothing_else(
    pool: SandboxPool, backend: containers.DockerBackend
) -> None:
    stale, folder = left_behind(backend)
    containers.DockerBackend()
    wait_for(lambda: not is_there(stale))  # a sweep of another test may have begun with it
    wait_for(lambda: not folder.exists())
    assert pool.run(squares(3)) == right(3)


def test_a_sweep_goes_on_past_a_container_that_another_is_removing(
    backend: containers.DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale, folder = left_behind(backend)

    def busy(self: Any, **options: Any) -> None:
        answer = Response()
        answer.status_code = 409
        raise docker.errors.APIError("removal of the container is already in progress", response=answer)

    with monkeypatch.context() as patch:
        patch.setattr(type(stale), "remove", busy)
        containers.DockerBackend()
    wait_for(lambda: not folder.exists())
    containers.DockerBackend()
    wait_for(lambda: not is_there(stale))


def test_a_container_killed_in_the_middle_of_a_batch_loses_nothing(pool: SandboxPool) -> None:
    killed = []

    def kill(done: int) -> None:
        if done >= 20 * (1 + len(killed)) and len(killed) < 2:
            containers_in(pool)[0].kill()
            killed.append(done)

    assert pool.run(squares(80), kill) == right(80)
    assert len(killed) == 2


def test_a_container_that_is_stopped_is_replaced(
    backend: containers.DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused, ahead = [], 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead)
    monkeypatch.setattr("populora_core.sandbox.pool.time", clock)
    monkeypatch.setattr("populora_core.sandbox.worker.time", clock)

    def pause(done: int) -> None:
        nonlocal ahead
        if done >= 10 and not paused:
            paused.append(containers_in(pool)[0])
            paused[0].pause()
        elif paused and not ahead:  # what it had answered before has been read
            ahead = outer_seconds(LIMITS) + 1.0  # whatever is under way is overdue

    with SandboxPool(backend, LIMITS, workers=2, hash_seed=3) as pool:
        assert pool.run(squares(60), pause) == right(60)
        assert paused[0].id not in {each.id for each in containers_of(os.getpid())}


# The daemon


@pytest.fixture(scope="module")
def own_daemon(backend: containers.DockerBackend) -> Iterator[Daemon]:
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("needs root and dockerd for a daemon of its own")
    with daemon_with_image() as daemon:
        yield daemon


@pytest.fixture
def daemon(own_daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    if not own_daemon.running:  # an earlier test ended it
        own_daemon.start()
    monkeypatch.setenv("DOCKER_HOST", own_daemon.address)
    return own_daemon


def test_a_daemon_restarted_in_the_middle_of_a_run_loses_nothing(daemon: Daemon) -> None:
    restarts = []

    def restart(done: int) -> None:
        if done >= 20 and not restarts:
            daemon.stop()  # which ends its containers
            daemon.start()
            restarts.append(done)

    with open_sandbox("docker", LIMITS, workers=2) as pool:
        assert pool.run(squares(80), restart) == right(80)
        assert pool.outage is None
    assert restarts


def test_a_dead_daemon_gives_infrastructure_and_never_a_verdict(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers.DockerBackend, "patience_seconds", 2.0)

    def stop(done: int) -> None:
        if done >= 20:
            daemon.stop()

    with open_sandbox("docker", LIMITS, workers=2) as pool:
        results = pool.run(squares(80), stop)
        assert pool.outage is not None and pool.outage.fix
        for result, expected in zip(results, right(80), strict=True):
            assert result == expected or result.status is Status.INFRASTRUCTURE
        assert {result.status for result in results} == {Status.OK, Status.INFRASTRUCTURE}
        daemon.start()
        assert pool.run(squares(10)) == right(10)
        assert pool.outage is None


# The image


def test_an_image_that_is_not_built_names_the_command(
    backend: containers.DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "runner_digest", lambda: "0" * 16)
    with pytest.raises(SandboxUnavailable, match="not built") as caught:
        containers.DockerBackend()
    assert "populora image build" in caught.value.fix


def test_a_build_is_offline_and_repeats_itself(
    backend: containers.DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = docker.from_env()
    before = client.images.get(containers.image_tag())
    sandbox_image.build(
        f"populora-python:{sandbox_image.SUITE}" if _has_base() else before.id, say=lambda line: None
    )
    after = client.images.get(containers.image_tag())
    assert after.attrs["Config"]["Entrypoint"][-1] == "/runner.py"
    assert after.attrs["RootFS"]["Layers"][-1] == before.attrs["RootFS"]["Layers"][-1]


def _has_base() -> bool:
    return any(
        f"populora-python:{sandbox_image.SUITE}" in each.tags for each in docker.from_env().images.list()
    )


def test_a_base_image_that_cannot_be_had_is_a_clear_error(backend: containers.DockerBackend) -> None:
    with pytest.raises(SandboxUnavailable, match="could not be built") as caught:
        sandbox_image.build("populora-no-such-image:none", say=lambda line: None)
    assert "--from-debootstrap" in caught.value.fix


# A disk that fills


@pytest.fixture
def full_disk() -> Iterator[Path]:
    """A folder in which not even an empty file has room."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    folder = Path(tempfile.mkdtemp(prefix="disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=1", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def test_a_full_disk_gives_infrastructure_and_what_was_done_stays(
    backend: containers.DockerBackend, full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers.DockerBackend, "patience_seconds", 1.0)

    def fill(done: int) -> None:
        if done >= 20 and tempfile.tempdir != str(full_disk):
            monkeypatch.setattr(tempfile, "tempdir", str(full_disk))
            containers_in(pool)[0].kill()

    with SandboxPool(backend, LIMITS, workers=2, hash_seed=0) as pool:
        results = pool.run(squares(80), fill)
        assert {result.status for result in results} == {Status.OK, Status.INFRASTRUCTURE}
        for result, expected in zip(results, right(80), strict=True):
            assert result == expected or result.status is Status.INFRASTRUCTURE
        assert pool.outage is not None and "No space left" in pool.outage.got
        monkeypatch.setattr(tempfile, "tempdir", None)
        assert pool.run(squares(10)) == right(10)


def test_json_lines_of_an_outage_say_infrastructure_and_the_command_fails(
    daemon: Daemon, tmp_path: Path
) -> None:
    lines = [json.dumps({"id": str(n), "program": SLEEPER, "inputs": ["(1,)"]}) for n in range(2)]
    file = tmp_path / "jobs.jsonl"
    file.write_text("\n".join(lines))
    # so long a limit that the daemon is gone before a sleeper times out, however busy the machine is
    command = ["populora", "verify", str(file), "--sandbox", "docker", "--no-policy", "--time-limit", "100"]
    code = (
        "from populora_core.sandbox import containers; containers.DockerBackend.patience_seconds = 1\n"
        f"import sys; sys.argv = {command!r}\n"
        "from populora_core.sandbox.pool import SandboxPool; run = SandboxPool.run\n"
        "def told(*arguments, **options):\n"
        "    print('open', file=sys.stderr, flush=True)\n"
        "    return run(*arguments, **options)\n"
        "SandboxPool.run = told\n"
        "from populora_core.commands.app import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr and any(line == "open\n" for line in process.stderr)
        daemon.stop()
        out, err = process.communicate(timeout=PATIENCE)
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["infrastructure"] * 2
    assert process.returncode == 2
    assert "Fix" in err
