"""One writer a run directory: the second is refused at once, and the end of the first, however it came, lets go."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command import populora
from conftest import PATIENCE, small_config, start

from populora_core.lifecycle.loop import rerun, train
from populora_core.runs.lock import LOCK, lock
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_stage
from populora_core.stages.table import FOUND
from populora_core.support.durable import temporary_name
from populora_core.support.errors import RunDirectoryError
from populora_core.support.shipped import REPOSITORY

HOLD = """
import sys
from pathlib import Path
from populora_core.runs.lock import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
COUNT = """
import sys, time
from pathlib import Path
from populora_core.support.errors import RunDirectoryError
from populora_core.runs.lock import lock
counter = Path(sys.argv[1], "counter")
for _ in range(20):
    while True:
        try:
            with lock(Path(sys.argv[1])):
                number = int(counter.read_text())
                time.sleep(0.001)
                counter.write_text(str(number + 1))
            break
        except RunDirectoryError:
            time.sleep(0.001)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return start(tmp_path / "run", small_config())


@pytest.fixture
def holder(run: Run) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run's lock."""
    command = [sys.executable, "-c", HOLD, str(run.directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_session_beside_another_process_is_refused_with_its_pid_and_host(
    run: Run, holder: subprocess.Popen[str]
) -> None:
    before = sorted(run.directory.rglob("*"))
    with pytest.raises(RunDirectoryError) as refusal, Session(run):
        pass
    assert refusal.value.got == f"pid {holder.pid} on {socket.gethostname()}"
    assert sorted(run.directory.rglob("*")) == before


@pytest.mark.parametrize("left", [False, True], ids=["never entered", "left"])
@pytest.mark.parametrize(
    "work",
    [
        lambda session: train(session, 2),
        lambda session: rerun(session, 0, "found"),
        lambda session: run_stage(session, 0, FOUND),
    ],
    ids=["train", "rerun", "run_stage"],
)
def test_a_session_that_is_not_open_writes_nothing(
    run: Run, left: bool, work: Callable[[Session], object]
) -> None:
    session = Session(run)
    if left:
        with session:
            train(session, 0)

    def written() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in run.directory.rglob("*") if path.is_file()}

    before = written()
    with pytest.raises(RunDirectoryError, match="the session is not open") as refusal:
        work(session)
    assert "with Session(run) as session" in refusal.value.fix
    assert written() == before


@pytest.mark.parametrize("left", [False, True], ids=["open", "left"])
def test_a_session_is_entered_once(run: Run, left: bool) -> None:
    session = Session(run)
    with session:
        if not left:
            with pytest.raises(RunDirectoryError, match="entered once"):
                session.__enter__()
    if left:
        with pytest.raises(RunDirectoryError, match="entered once"):
            session.__enter__()
    with Session(run) as another:
        another.require_open()


def test_a_stage_of_the_flow_is_refused_too(run: Run, holder: subprocess.Popen[str]) -> None:
    from tasks.stages import TASKS

    with pytest.raises(RunDirectoryError, match="another process is writing"):
        TASKS["match"].fn(str(run.directory), run.name, 1)


@pytest.mark.parametrize(
    "command",
    [
        ["resume", "--plain"],
        ["resume"],
        ["rerun", "--generation", "1", "--stage", "match"],
        ["evaluate", "--suite", "configs/suites/tiny.toml"],
        ["reap"],
    ],
    ids=" ".join,
)
def test_every_command_that_writes_is_refused(
    run: Run, holder: subprocess.Popen[str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    done = populora(command[0], run.directory, *command[1:])
    assert done.returncode == 2
    assert f"pid {holder.pid} on {socket.gethostname()}" in done.stderr


def test_a_killed_holder_holds_nothing(run: Run, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (run.directory / LOCK).exists()
    with lock(run.directory):
        assert str(os.getpid()) in (run.directory / LOCK).read_text()
    assert not (run.directory / LOCK).exists()


def test_the_lock_excludes_though_its_file_comes_and_goes(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path)]) for _ in range(4)]
    assert [process.wait(timeout=PATIENCE) for process in processes] == [0] * 4
    assert (tmp_path / "counter").read_text() == "80"


def test_a_start_that_was_killed_can_be_repeated(tmp_path: Path) -> None:
    for left in (temporary_name(tmp_path, "run.json"), tmp_path / LOCK):
        left.write_text("{")
    assert Run.open(start(tmp_path, small_config()).directory).config == small_config()


def test_of_many_that_start_a_run_in_one_place_one_does(tmp_path: Path) -> None:
    directory = tmp_path / "run"

    def attempt(seed: int) -> int | None:
        try:
            return start(directory, small_config(run={"seed": seed})).config.run.seed
        except RunDirectoryError:
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = [seed for seed in pool.map(attempt, range(8)) if seed is not None]
    assert len(winners) == 1
    assert Run.open(directory).config.run.seed == winners[0]
