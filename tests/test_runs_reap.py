"""What a killed process left is ended and removed, by the next one or by `reap`; what lives is let alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import alive, ran, small_config, start, wait_for

from populora_core.runs.heartbeat import HEARTBEAT, SILENT_SECONDS, Beat, Life
from populora_core.runs.lock import LOCK, lock
from populora_core.runs.reap import clear, reap
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.store.artifacts import GIVEN_UP_SECONDS
from populora_core.support import leftovers, revision
from populora_core.support.errors import RunDirectoryError
from populora_core.support.processes import GONE, Owner
from populora_core.support.revision import version_of

# A process that dies by SIGKILL at work, and leaves a worker that hangs.
KILLED = """
import os, signal, subprocess, sys, time
from pathlib import Path
from populora_core.runs.heartbeat import Beat, Heartbeat
from populora_core.runs.lock import lock
from populora_core.support.durable import temporary_name

directory = Path(sys.argv[1])
worker = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
with lock(directory), Heartbeat(directory, lambda: (worker.pid,)) as heartbeat:
    for parent in ("", "generations/0002", "members/teacher-00-g0000"):
        (directory / parent).mkdir(parents=True, exist_ok=True)
        temporary_name(directory / parent, "solve").mkdir()
    heartbeat.at(2, "solve")
    while (beat := Beat.read(directory)) is None or beat.stage != "solve":
        time.sleep(0.01)
    print(worker.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return start(tmp_path / "run", small_config())


@pytest.fixture
def worker(run: Run) -> Iterator[int]:
    """The process id of a worker that a killed process left in the run."""
    command = [sys.executable, "-c", KILLED, str(run.directory)]
    done = ran(command)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)
    owner = Owner.of(pid)
    assert alive(pid)
    yield pid
    if not owner.is_gone():
        subprocess.run(["kill", "-9", str(pid)])


def _own(lines: list[str]) -> list[str]:
    """Without what was removed of other processes on this machine."""
    return [line for line in lines if not line.startswith(("removed the sandbox ", "removed /"))]


def _left(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob(".*")]


def test_reap_ends_and_removes_what_was_left_and_says_so(run: Run, worker: int) -> None:
    done = reap(run)
    assert "was killed: pid" in done[0]
    assert "solve of generation 2" in done[0]
    assert f"ended its worker process {worker}" in done
    assert [line.endswith("half-written") for line in done].count(True) == 3
    assert f"removed {LOCK}, which no one held" in done
    assert not alive(worker)
    assert _left(run.directory) == []
    assert _own(reap(run)) == [], "nothing more to do"


def test_inspect_tells_a_killed_run_from_one_at_work(
    run: Run, worker: int, capsys: pytest.CaptureFixture[str]
) -> None:
    from populora_core.commands.inspection import show_run

    show_run(run)
    assert "killed: pid" in capsys.readouterr().out
    with Session(run):
        wait_for(lambda: (beat := Beat.read(run.directory)) is not None and beat.life is Life.ALIVE)
        show_run(run)
    assert "at work: pid" in capsys.readouterr().out


def test_the_next_session_clears_up_by_itself(run: Run, worker: int) -> None:
    with Session(run):
        assert not alive(worker)
        wait_for(lambda: _left(run.directory) == [LOCK])  # a beat of its own is there while it is written
    assert _own(reap(run)) == []


def test_a_run_at_work_on_another_machine_is_left_alone(run: Run) -> None:
    beat = _beat(host="elsewhere")
    (run.directory / HEARTBEAT).write_text(json.dumps(asdict(beat)))
    with pytest.raises(RunDirectoryError, match="is at work, so nothing was touched") as refusal:
        reap(run)
    assert "on elsewhere" in refusal.value.got


def test_the_record_of_workers_on_another_machine_stays_for_a_reap_there(run: Run) -> None:
    silent = datetime.now(UTC) - timedelta(seconds=SILENT_SECONDS + 1)
    worker = replace(Owner.this_process(), boot="00000000")
    beat = _beat(host="elsewhere", time=silent.isoformat(), children=(str(worker),)).marked()
    (run.directory / HEARTBEAT).write_text(json.dumps(asdict(beat)))
    assert "run populora reap on elsewhere to end the workers that it left there" in reap(run)
    assert Beat.read(run.directory) == beat
    given_up = datetime.now(UTC) - timedelta(seconds=GIVEN_UP_SECONDS + 1)
    (run.directory / HEARTBEAT).write_text(
        json.dumps(asdict(replace(beat, time=given_up.isoformat()).marked()))
    )
    reap(run)
    assert Beat.read(run.directory) is None, "that machine will not come back"


def test_a_run_that_ends_in_order_while_reap_begins_was_not_killed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = _beat(process=str(replace(Owner.this_process(), started="1")))
    (run.directory / HEARTBEAT).write_text(json.dumps(asdict(beat)))

    @contextmanager
    def lock_that_was_held(directory: Path) -> Iterator[None]:
        (directory / HEARTBEAT).write_text(json.dumps(asdict(replace(beat, ended=True))))
        with lock(directory):
            yield

    monkeypatch.setattr("populora_core.runs.reap.lock", lock_that_was_held)
    assert _own(reap(run)) == []
    assert Beat.read(run.directory) == replace(beat, ended=True)


def test_a_process_with_the_id_of_a_worker_that_ended_is_left_alone(run: Run) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        earlier = replace(Owner.of(other.pid), started="1")
        beat = _beat(process=str(replace(Owner.this_process(), started="1")), children=(str(earlier),))
        (run.directory / HEARTBEAT).write_text(json.dumps(asdict(beat.marked())))
        assert clear(run.directory) == []
        assert alive(other.pid)
        other.kill()


def test_a_worker_that_had_ended_when_it_was_recorded_is_not_waited_for(run: Run) -> None:
    with subprocess.Popen(["true"]) as worker:
        # Not collected, so that its id stays its own.
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        recorded = Owner.of(worker.pid)
        assert recorded.started == GONE and recorded.is_gone()
        beat = _beat(process=str(replace(Owner.this_process(), started="1")), children=(str(recorded),))
        (run.directory / HEARTBEAT).write_text(json.dumps(asdict(beat.marked())))
        assert clear(run.directory) == []


def test_a_heartbeat_that_came_with_a_run_ends_no_process(run: Run) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        dead = str(replace(Owner.this_process(), started="1"))
        sent = _beat(process=dead, children=(str(Owner.of(other.pid)),))
        moved = replace(_beat(process=dead).marked(), children=sent.children)  # under the mark of another
        for beat in (sent, moved):
            (run.directory / HEARTBEAT).write_text(json.dumps(asdict(beat)))
            assert clear(run.directory) == [] and alive(other.pid)
        (run.directory / HEARTBEAT).write_text(json.dumps(asdict(sent.marked())))
        assert clear(run.directory) == [f"ended its worker process {other.pid}"]


def test_workers_of_a_run_that_ended_in_order_are_left_alone(run: Run) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        beat = _beat(
            process=str(replace(Owner.this_process(), started="1")),
            children=(str(Owner.of(other.pid)),),
            ended=True,
        )
        (run.directory / HEARTBEAT).write_text(json.dumps(asdict(beat.marked())))
        assert clear(run.directory) == []
        assert alive(other.pid)
        other.kill()


@pytest.mark.parametrize("text", ["", "abc", "0123abcd-1-2", "../../etc", "0123abcd-1-2-3-4"])
def test_only_an_owner_is_read_as_one(text: str) -> None:
    assert Owner.parse(text) is None


def test_an_owner_of_an_earlier_boot_is_gone_and_one_out_of_sight_is_not() -> None:
    me = Owner.this_process()
    assert Owner.parse(str(me)) == me
    assert not me.is_gone()
    assert Owner("00000000", me.namespace, me.pid, me.started).is_gone()
    assert not Owner(me.boot, me.namespace + 1, me.pid, "1").is_gone()


# The kernel keeps 15 bytes of a process's name, here seven letters and a half.
NAMED = """
import ctypes
from populora_core.sandbox.host import can_spare_uids
from populora_core.support.processes import Owner
ctypes.CDLL(None).prctl(15, "обучение.py".encode())  # PR_SET_NAME
can_spare_uids()
me = Owner.this_process()
print(Owner.parse(str(me)) == me and me.started.isdigit() and not me.is_gone())
"""


def test_a_process_whose_name_is_cut_inside_a_letter_is_known() -> None:
    done = ran([sys.executable, "-c", NAMED])
    assert done.stdout == "True\n", done.stderr


@pytest.mark.docker
def test_containers_of_ended_processes_go_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = pytest.importorskip("docker")
    from populora_core.sandbox import containers
    from populora_core.sandbox.jobs import Limits
    from populora_core.support.errors import SandboxUnavailable

    # Every sandbox that is opened elsewhere sweeps too, and would find it first.
    monkeypatch.setattr(containers, "LABEL", f"populora.sandbox.of-{os.getpid()}")

    try:
        options = containers.DockerBackend().options(Limits(), 1)
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    gone = replace(Owner.this_process(), started="1")
    options |= {"auto_remove": False, "labels": {containers.LABEL: str(gone)}}
    container = docker.from_env().containers.create(**options)
    assert f"removed the sandbox {container.name} of process {gone.pid}" in reap(run)
    left = docker.from_env().containers.list(all=True, ignore_removed=True)
    assert container.id not in {each.id for each in left}


def _beat(**fields: Any) -> Beat:
    me = Owner.this_process()
    beat = Beat(me.pid, socket.gethostname(), str(me), 1, "solve", datetime.now(UTC).isoformat(), False)
    return replace(beat, **fields)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_a_folder_of_another_user_is_neither_read_nor_removed() -> None:
    """A pipe in it would be waited for without end."""
    with tempfile.TemporaryDirectory(prefix=leftovers.PREFIX, dir="/tmp") as folder:
        os.mkfifo(Path(folder, leftovers.OWNER))
        os.chown(folder, 65534, 65534)
        leftovers.sweep()
        assert Path(folder, leftovers.OWNER).exists()


def test_a_folder_of_another_host_is_left_alone() -> None:
    """Where several share a disk, a living one's boot is not ours."""
    earlier = replace(Owner.this_process(), boot="00000000")
    folder = leftovers.make_folder("children", 0)
    (folder / leftovers.OWNER).write_text(f"{earlier}@elsewhere")
    leftovers.sweep()
    assert folder.exists()
    (folder / leftovers.OWNER).write_text(earlier.here)
    leftovers.sweep()
    assert not folder.exists()


@pytest.mark.parametrize("letter", ["a", "ж"])
def test_a_folder_lies_where_a_socket_in_it_can_be_bound(
    letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts a path's bytes."""
    socket_name = "s" * 29
    with tempfile.TemporaryDirectory(prefix=letter * 30, dir="/tmp") as parent:
        monkeypatch.setattr(tempfile, "tempdir", parent)
        folder = leftovers.make_folder("children", len(f"/{socket_name}"))
        try:
            assert (folder.parent == Path(parent)) == letter.isascii()
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(folder / socket_name))
        finally:
            shutil.rmtree(folder)


def test_an_installed_package_names_its_version_and_no_repository_that_holds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(revision, "IN_CLONE", False)
    assert revision.code_revision.__wrapped__() == version_of("populora-core")
