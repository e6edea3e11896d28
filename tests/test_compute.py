"""Worker processes: their errors come through whole, and losing one is said so."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path

import pytest
from conftest import PATIENCE, ran, small_config, start

from populora_core.compute.members import Found
from populora_core.compute.shards import LocalCompute, Shards
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.model.base import base_digest
from populora_core.sampler.spec import ModelSpec
from populora_core.support.errors import BaseModelError, WorkerLost
from populora_core.support.shipped import REPOSITORY

TINY = Path(__file__).resolve().parent.parent / "base_model" / "tiny"
SPEC = ModelSpec(BaseSection(), AdapterSection(rank=2, alpha=4.0), base_digest(TINY))


@pytest.fixture
def compute() -> Iterator[LocalCompute]:
    backend = LocalCompute(2, 1, SPEC)
    yield backend
    backend.close()
    assert not multiprocessing.active_children()


def mapped(backend: LocalCompute, folder: Path, *seeds: int) -> None:
    """Found a population of one per seed, each in a folder of its own, as shards of one piece of work."""
    shards = Shards(backend, "key", folder / ".shards", files=folder)
    shards.map([Found({str(seed): seed}, {}) for seed in seeds])
    shards.release()


def test_an_error_in_a_worker_is_raised_as_itself(tmp_path: Path) -> None:
    backend = LocalCompute(1, 1, replace(SPEC, base=BaseSection(path=str(tmp_path / "nowhere"))))
    with pytest.raises(BaseModelError, match="not a usable base model"):
        mapped(backend, tmp_path, 1)
    assert not multiprocessing.active_children()


def test_a_lost_worker_is_said_so_and_leaves_nothing_behind(compute: LocalCompute, tmp_path: Path) -> None:
    mapped(compute, tmp_path, 1)
    multiprocessing.active_children()[0].kill()
    with pytest.raises(WorkerLost, match="exit code -9"):
        mapped(compute, tmp_path, 1, 2)
    mapped(compute, tmp_path, 1)  # the next call starts fresh processes


def test_a_worker_that_has_ended_gets_no_signal(
    compute: LocalCompute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another process's by then."""
    compute.run([])
    ended, other = sorted(multiprocessing.active_children(), key=lambda process: process.name)
    os.kill(ended.pid or 0, signal.SIGKILL)
    assert wait([ended.sentinel], PATIENCE)
    told: set[int] = set()
    kill = os.kill

    def noted(pid: int, number: int) -> None:
        told.add(pid)
        kill(pid, number)

    monkeypatch.setattr(os, "kill", noted)
    compute.close()
    assert told == {other.pid}


DIES = """
import sys
from populora_core.support import children
children.IMPORTED = ("dies",)  # by the server that forks workers, which is gone before it has
sys.argv = ["populora", "resume", "run", "--plain"]
from populora_core.commands.app import main
main()
"""


@pytest.mark.loop
def test_a_run_whose_workers_cannot_be_started_ends_with_the_cause(tmp_path: Path) -> None:
    start(tmp_path / "run", small_config(compute={"backend": "local"}))
    (tmp_path / "dies.py").write_text("import os\nos._exit(1)\n")
    done = ran([sys.executable, "-c", DIES], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2, done.stderr
    assert "populora: the process populora-shard-0 could not be started" in done.stderr
    assert "Fix: look for memory shortage" in done.stderr


UNGUARDED = """
import os, sys
from pathlib import Path
from populora_core import Session, begin, load_config, train

settings = ["compute.backend=local", "compute.shards=1"]
run = begin(Path(sys.argv[2], f"run-{os.getpid()}"), load_config(sys.argv[1], settings))
with Session(run) as session:
    train(session, 1)
"""


@pytest.mark.thorough
@pytest.mark.sandbox
def test_a_script_without_a_guard_is_told_of_it_and_its_worker_begins_no_run(tmp_path: Path) -> None:
    (script := tmp_path / "play.py").write_text(UNGUARDED)
    (runs := tmp_path / "runs").mkdir()
    done = ran([sys.executable, script, REPOSITORY / "configs" / "quick.toml", runs], cwd=REPOSITORY)
    by_the_worker, by_the_script = done.stderr.split("WorkerLost", 1)
    for told in (by_the_worker, by_the_script):
        assert 'if __name__ == "__main__":' in told
    assert "nothing was begun" in by_the_worker and "exit code 1" in by_the_script
    assert "memory" not in by_the_script
    assert len(list(runs.iterdir())) == 1
