"""An engine in a process of its own: it ends with ours, and one that is lost is replaced with equal results."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE
from fake_engine import EndlessEngine, FakeEngine, broken

from populora_core.sampler.requests import Request, Served, Text, refuse_too_long
from populora_core.support.errors import ConfigError, PopulationError, PopuloraError, WorkerLost
from populora_plugins.vllm import process
from populora_plugins.vllm.process import ENDED_BUSY, EngineProcess
from populora_plugins.vllm.sampler import CACHE, MORE_CACHE

MEMBERS = [Served(f"m{number}", Path("none"), f"{number:064x}") for number in range(4)]
ASKED = [Request(f"m{number % 4}", (1, 2), seed=number) for number in range(12)]


@pytest.fixture
def deadly(tmp_path: Path) -> Path:
    folder = tmp_path / "deadly"
    folder.mkdir()
    return folder


@pytest.fixture
def engine(deadly: Path) -> Iterator[EngineProcess]:
    sampler = EngineProcess("fake", partial(FakeEngine, deadly), recycle_after=1000, room=4)
    yield sampler
    sampler.close()


def direct(adapters: list[Served]) -> list[object]:
    here = FakeEngine()
    here.load(adapters)
    return list(here.generate(ASKED))


def test_it_answers_as_the_sampler_does_and_counts_progress(engine: EngineProcess) -> None:
    counted: list[int] = []
    engine.load(MEMBERS)
    assert engine.generate(ASKED, counted.append) == direct(MEMBERS)
    assert sum(counted) == len(ASKED)
    assert engine.score([Text("m0", (1,), (2, 3))]) == [(-1.0, -1.0)]
    assert engine.pid not in (None, os.getpid())


def test_one_that_is_killed_in_the_middle_of_a_batch_is_replaced_with_equal_results(
    engine: EngineProcess, deadly: Path
) -> None:
    engine.load(MEMBERS)
    first = engine.pid
    (deadly / "once").touch()
    counted: list[int] = []
    assert engine.generate(ASKED, counted.append) == direct(MEMBERS)
    assert engine.pid not in (None, first)
    assert sum(counted) == len(ASKED), "nothing is counted twice"


def test_two_that_are_lost_one_after_the_other_are_replaced(engine: EngineProcess, deadly: Path) -> None:
    engine.load(MEMBERS)
    for number in range(2):
        (deadly / str(number)).touch()
    assert engine.generate(ASKED) == direct(MEMBERS)


def test_tokens_are_told_as_they_are_drawn_and_never_by_two_processes(
    engine: EngineProcess, deadly: Path
) -> None:
    engine.load(MEMBERS)
    told: list[tuple[int, int]] = []
    made = engine.generate(
        ASKED, None, lambda places, tokens, _: told.extend(zip(places, tokens, strict=True))
    )
    assert told == [(place, token) for place, each in enumerate(made) for token in each.token_ids]
    (deadly / "once").touch()
    with pytest.raises(WorkerLost, match="ended before it answered"):
        engine.generate(ASKED, None, lambda *each: None)
    assert engine.generate(ASKED) == direct(MEMBERS), "the next batch has an engine again"


def test_who_is_no_longer_waited_for_is_passed_on_to_the_engine(engine: EngineProcess) -> None:
    engine.load(MEMBERS)
    made = engine.generate(ASKED, None, lambda *drawn: [1])
    assert [bool(each.token_ids) for each in made] == [place != 1 for place in range(len(ASKED))]
    assert engine.generate(ASKED) == direct(MEMBERS)


def test_one_that_was_killed_is_not_started_to_rest(engine: EngineProcess) -> None:
    engine.load(MEMBERS)
    before = engine.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)
    engine.rest()
    assert engine.pid == before
    assert engine.generate(ASKED) == direct(MEMBERS)


def test_one_in_the_middle_of_a_batch_ends_at_once_when_no_one_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its memory is wanted by whoever resumes the run."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*given: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(real(*given, **named))
        return started[-1]

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(process, "END_SECONDS", PATIENCE)
    engine = EngineProcess("fake", EndlessEngine, recycle_after=10)
    engine.load(MEMBERS)
    (running,) = started

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(ASKED, interrupt)
    assert running.returncode == ENDED_BUSY


def test_an_engine_that_never_survives_is_given_up_by_name(engine: EngineProcess, deadly: Path) -> None:
    engine.load(MEMBERS)
    for number in range(9):
        (deadly / str(number)).touch()
    with pytest.raises(WorkerLost, match=r"(?s)the fake engine ended before it answered.*exit code 9"):
        engine.generate(ASKED)


def test_errors_come_through_and_end_no_process(engine: EngineProcess) -> None:
    engine.load(MEMBERS)
    before = engine.pid
    with pytest.raises(PopulationError, match="member m9 is not resident"):
        engine.generate([Request("m9", (1,), seed=0)])
    assert engine.generate(ASKED) == direct(MEMBERS)
    assert engine.pid == before


def test_one_that_cannot_start_says_why() -> None:
    engine = EngineProcess("fake", broken, recycle_after=10)
    with pytest.raises(PopuloraError, match=r"(?s)a defect in the engine.*no such device"):
        engine.load(MEMBERS)
    engine.close()


def test_more_adapters_than_it_has_room_for_get_a_process_with_room(engine: EngineProcess) -> None:
    engine.load(MEMBERS[:2])
    before = engine.pid
    engine.load(MEMBERS)
    assert engine.pid == before, "room for the whole population was there from the start"
    engine.load([*MEMBERS, Served("m4", Path("none"), f"{9:064x}")])
    assert engine.pid != before


ALONE = """
import sys, time
from functools import partial
from fake_engine import FakeEngine
from populora_plugins.vllm.process import EngineProcess
from populora_core.sampler.requests import Served
from pathlib import Path
from typing import Any
engine = EngineProcess("fake", FakeEngine, recycle_after=10)
engine.load([Served("m0", Path("none"), "0" * 64)])
print(engine.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_when_the_process_that_started_it_is_killed() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    engine = int(parent.stdout.readline())
    watched = os.pidfd_open(engine)
    parent.kill()
    parent.wait()
    assert select.select([watched], [], [], PATIENCE)[0], "it is still there"
    os.close(watched)


def test_what_outgrows_an_engines_context_is_refused_with_every_way_on() -> None:
    """The engine's context may be shorter than the base's, which `verify` goes by: then `solve` meets it."""
    refuse_too_long(512, 512, CACHE, MORE_CACHE)
    with pytest.raises(ConfigError, match="at most 512 tokens together") as refused:
        refuse_too_long(513, 512, CACHE, MORE_CACHE)
    for way in ("solve.max_tokens", "rerun RUN --stage propose", "sampler.gpu_memory_utilization"):
        assert way in str(refused.value)
