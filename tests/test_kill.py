"""`kill -9` at any moment: the resumed run ends equal to an undisturbed one, and nothing is left behind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import CORPUS, PATIENCE, alive, commits, contents, small_config, start, wait_for
from forked import COMMAND, Forked

from populora_core.runs.heartbeat import Beat, Life
from populora_core.stages.table import stages_of
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support import leftovers
from populora_core.support.digest import file_sha256
from populora_core.support.processes import Owner, descendants

ROOT = Path(__file__).resolve().parent.parent
SHARE = 10  # of the kills, one hits a run through Prefect, and one a process before its first stage
START_SECONDS = 4.0  # of Python, its modules, and the check of what is done
GENERATIONS = 2  # the second is the first in which members breed

TINY: dict[str, dict[str, Any]] = {
    "run": {"generations": GENERATIONS},
    "population": {"teachers": 2, "students": 2},
    "match": {"hall_of_fame": 0.5},
    "propose": {"per_type": 2, "max_tokens": 64},
    "solve": {"attempts": 2, "extra_attempts": 2, "max_tokens": 32},
    "anchors": {"share": 0.2, "source": "replay", "parameters": {"largest": 0.5}},
    "update": {"corpus_share": 0.2, "corpus": str(CORPUS)},
    "grade": {"new_cell_bonus": 0.5, "new_cell_window": 1},
    "evolve": {"every": 1, "average_every": 1, "average_share": 0.5},
    "compute": {"backend": "local", "shards": 1},
}

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


class Moment(NamedTuple):
    """When to kill: some seconds after a stage has begun, or after the process has."""

    position: tuple[int, str] | None
    seconds: float


def _positions() -> list[tuple[int, str]]:
    """Everything that a run does, in order."""
    return [
        (generation, name)
        for generation in range(GENERATIONS + 1)
        for name in (*(stage.name for stage in stages_of(generation)), "publish")
    ]


def _next(position: tuple[int, str]) -> tuple[int, str]:
    positions = _positions()
    return positions[positions.index(position) + 1]


def _moments(undisturbed: Path, kills: int, rng: random.Random) -> Iterator[Moment]:
    """Moments over the whole run in their order, every stage as likely as any other, however short."""
    positions = _positions()
    last = positions.index((GENERATIONS, "update"))  # what follows may be over before the signal comes
    early = set(rng.sample(range(kills), round(kills / SHARE)))
    later = iter(sorted(rng.choices(range(last), k=kills - len(early))))
    for number in range(kills):
        if number in early:
            yield Moment(None, rng.uniform(0.0, START_SECONDS))
            continue
        generation, name = positions[next(later)]
        manifest = read_manifest(stage_dir(undisturbed, generation, name))
        usual = 0.5 if manifest is None else manifest.seconds
        yield Moment((generation, name), rng.uniform(0.0, usual))


def _start(directory: Path, home: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "populora_core.commands", "resume", str(directory), *options],
        cwd=ROOT,
        env=os.environ | {"PREFECT_HOME": str(home)},
        stdout=subprocess.DEVNULL,
    )


def _reached(directory: Path, process: subprocess.Popen[bytes] | Forked, position: tuple[int, str]) -> bool:
    """Whether the process is at the position, beyond it, or has ended."""
    beat = Beat.read(directory)
    if process.poll() is not None:
        return True
    if beat is None or beat.pid != process.pid or beat.generation is None:
        return False
    positions = _positions()
    return positions.index((beat.generation, beat.stage)) >= positions.index(position)


def _left(pids: set[int], docker: bool) -> list[str]:
    """Containers and folders of sockets of the processes."""
    from populora_core.sandbox import containers

    def is_theirs(text: str) -> bool:
        owner = Owner.parse(text.partition("@")[0])
        return owner is not None and owner.pid in pids

    found = []
    for mark in Path(tempfile.gettempdir()).glob(f"{leftovers.PREFIX}*/{leftovers.OWNER}"):
        with suppress(OSError):  # of another process, which removes it
            if is_theirs(mark.read_text()):
                found.append(str(mark.parent))
    if docker:
        listed = containers.connect_daemon().containers.list(
            all=True, filters={"label": containers.LABEL}, ignore_removed=True
        )
        found += [each.name for each in listed if is_theirs(each.labels[containers.LABEL])]
    return found


def _files(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}


@pytest.fixture(scope="module")
def docker() -> bool:
    from populora_core.sandbox.containers import DockerBackend
    from populora_core.support.errors import SandboxUnavailable

    try:
        DockerBackend()
    except SandboxUnavailable:
        return False
    return True


@pytest.fixture(scope="module")
def create(docker: bool) -> Callable[[Path], Path]:
    """Starts a tiny run, in containers where there is a daemon."""

    def make(directory: Path) -> Path:
        start(directory, small_config(**TINY, sandbox={"backend": "docker" if docker else "auto"}))
        return directory

    return make


@pytest.fixture(scope="module")
def undisturbed(create: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kill")
    directory = create(folder / "undisturbed")
    assert _start(directory, folder, "--plain").wait(PATIENCE) == 0
    return directory


@pytest.mark.parametrize(("kills", "places"), [(1, 1), pytest.param(15, 5, marks=pytest.mark.thorough)])
def test_killed_at_random_moments_a_run_ends_equal_and_leaves_nothing(
    create: Callable[[Path], Path], undisturbed: Path, docker: bool, tmp_path: Path, kills: int, places: int
) -> None:
    directory, home, rng = create(tmp_path / "killed"), tmp_path / "prefect", random.Random(6)
    through_prefect = set(rng.sample(range(kills), round(kills / SHARE)))
    pids, hit = set(), []
    for number, (position, seconds) in enumerate(_moments(undisturbed, kills, rng)):
        process: subprocess.Popen[bytes] | Forked
        if number in through_prefect:
            process = _start(directory, home, "--prefect")
        elif position is None or number == 0:
            process = _start(directory, home, "--plain")
        else:  # as any process, but that the modules of its start are there
            process = Forked(COMMAND, "resume", directory, "--plain", cwd=ROOT)
        pids.add(process.pid)
        if position is not None:
            wait_for(lambda: _reached(directory, process, position))  # noqa: B023  # called at once
            # A stage that took long in the undisturbed run may be quick in this one, and the run be over.
            with suppress(AssertionError):
                wait_for(lambda: _reached(directory, process, _next(position)), seconds, 0.01)  # noqa: B023
        else:
            time.sleep(seconds)
        children = descendants(process.pid)
        assert process.poll() is None, f"the run ended before moment {number}, {position}"
        process.kill()
        process.wait()
        wait_for(lambda: not any(map(alive, children)))  # noqa: B023
        beat = Beat.read(directory)
        if beat is not None and beat.pid == process.pid:
            assert beat.life is Life.DEAD
            hit.append(beat.stage)
    assert len(set(hit)) >= places, hit

    assert _start(directory, home, "--plain").wait(PATIENCE) == 0
    assert contents(directory) == contents(undisturbed)
    assert _files(directory) == _files(undisturbed), "no temporary file, no lock, nothing set aside"
    for path in (undisturbed / "members").rglob("*.*"):
        assert file_sha256(directory / path.relative_to(undisturbed)) == file_sha256(path)
    assert set(commits(directory).values()) == {1}, "no finished stage is done twice"
    wait_for(lambda: not _left(pids, docker))
    beat = Beat.read(directory)
    assert beat is not None
    assert beat.life is Life.ENDED
