"""A Docker daemon that is down is told at once, before anything is computed, and nothing is lost."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
from command import populora
from conftest import GENERATIONS, contents

from populora_core.lifecycle.loop import train
from populora_core.runs.run import RECORD, Run
from populora_core.runs.session import Session
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.store.manifest import stage_dir
from populora_core.support.errors import SandboxUnavailable

pytest.importorskip("docker")
from populora_core.sandbox import containers  # it imports docker

TOLD = ("no Docker daemon answers", "Expected: one that answers within", "Got: ", "No such file", "Fix: ")


@pytest.fixture
def down(tmp_path: Path) -> str:
    """The address of a daemon that is not there."""
    return f"unix://{tmp_path}/none.sock"


def test_a_new_run_is_refused_and_leaves_nothing(tmp_path: Path, down: str) -> None:
    chosen = ("--set", 'sandbox.backend="docker"', "--run-dir", tmp_path / "run")
    done = populora("run", "--preset", "quick", "--plain", *chosen, DOCKER_HOST=down)
    assert done.returncode == 2 and all(part in done.stderr for part in TOLD), done.stderr
    assert not (tmp_path / "run").exists()


def test_a_batch_of_programs_is_refused_before_one_runs(tmp_path: Path, down: str) -> None:
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text(json.dumps({"id": "1", "program": "def f(x):\n return x", "inputs": ["(1,)"]}) + "\n")
    done = populora("verify", jobs, "--sandbox", "docker", DOCKER_HOST=down)
    assert done.returncode == 2 and all(part in done.stderr for part in TOLD), done.stderr
    assert not done.stdout


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_run_that_chose_docker_ends_before_its_first_stage_and_goes_on_later(
    finished: Path, tmp_path: Path, down: str
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(finished, directory)
    shutil.rmtree(stage_dir(directory, GENERATIONS, "propose"))
    record, before = (directory / RECORD).read_text(), contents(directory)
    chosen = json.loads(record)
    chosen["config"]["sandbox"]["backend"] = "docker"
    (directory / RECORD).write_text(json.dumps(chosen))
    done = populora("resume", directory, "--plain", DOCKER_HOST=down)
    assert done.returncode == 2 and all(part in done.stderr for part in TOLD), done.stderr
    assert contents(directory) == before, "nothing was made or set aside"
    (directory / RECORD).write_text(record)
    with Session(Run.open(directory)) as session:
        train(session, GENERATIONS)
    assert contents(directory) == contents(finished)


def test_a_daemon_that_takes_calls_and_answers_none_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "DAEMON_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "socket"))
        deaf.listen()
        jobs = tmp_path / "jobs.jsonl"
        jobs.write_text("")
        done = populora("verify", jobs, "--sandbox", "docker", DOCKER_HOST=f"unix://{tmp_path}/socket")
    assert done.returncode == 2 and "within 0.2 s" in done.stderr, done.stderr


def test_a_daemon_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(SandboxUnavailable, match="on this machine"):
        open_sandbox("docker", Limits(), workers=1)
