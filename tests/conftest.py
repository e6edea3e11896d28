"""Shared fixtures: a small finished run on the bundled base, and one of a single agent, each made once."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from timings import Recorded

from populora_core import open_run
from populora_core.config.load import Config, apply_overrides, build_config
from populora_core.lifecycle.loop import fork, train
from populora_core.model.base import base_digest
from populora_core.runs.run import Run, chosen_here
from populora_core.runs.session import Session
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits, Sandbox
from populora_core.store.manifest import read_manifest, stage_folders
from populora_core.support import owner, trust

PATIENCE = 600.0
"""Seconds for anything to happen on a busy machine; whoever waits goes on as soon as it has."""

# A busy machine fails no test.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNTIMED, derandomize=True)  # each change is judged by the same examples
settings.register_profile("new", UNTIMED, derandomize=False, print_blob=True)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "same")
settings.load_profile(PROFILE)
if PROFILE == "same":
    # Hypothesis also draws constants of whatever modules of ours a process has imported by then, so that examples
    # would follow from which tests it has run before.
    providers._get_local_constants = lambda: providers._local_constants

# Tests keep no answer and no key in the home of whoever runs them, write to no Prefect server of theirs, and start
# with none of their permissions; their subprocesses inherit this. `make audit` alone reads a run of theirs, which may
# name code that they trust.
CALLERS = ("PREFECT_", "POPULORA_SHARED") + (() if os.environ.get("POPULORA_RUN") else (trust.VARIABLE,))
if "PYTEST_XDIST_WORKER" not in os.environ:  # one user's key for all processes: they share finished runs
    for setting in [name for name in os.environ if name.startswith(CALLERS)]:
        del os.environ[setting]
    os.environ[owner.FOLDER] = tempfile.mkdtemp(prefix="populora-tests-config-")
    os.environ["PREFECT_HOME"] = os.path.join(os.environ[owner.FOLDER], "prefect")
    atexit.register(shutil.rmtree, os.environ[owner.FOLDER], ignore_errors=True)
trust.remember(["base_model.anchors:tiny"])  # what shared runs name, whichever process of the tests made them

CORPUS = Path(__file__).resolve().parent / "data" / "corpus.jsonl"  # documents of the tiny base
GENERATIONS = 3
SMALL = {
    "run": {"generations": GENERATIONS, "seed": 5},
    "population": {"teachers": 3, "students": 2},
    "adapters": {"rank": 4, "alpha": 8.0},
    "propose": {"per_type": 4},
    "solve": {"attempts": 3},
    "evolve": {"every": 2, "minimum_age": 1},
    "compute": {"backend": "inline", "shards": 2, "threads": 1},
}

SOLO = {  # what the single agent has instead
    "population": {"teachers": 0, "students": 0, "solo": 1},
    "verify": {"largest_chance": 0.5, "slack": True},
    "solve": {"attempts": 2, "extra_attempts": 3},
    "anchors": {"share": 0.2, "source": "base_model.anchors:tiny"},
    "grade": {
        "teacher_reward": "zone",
        "chance": "subtract",
        "teacher_unsolved": -0.5,
        "teacher_always_solved": -0.5,
        "new_cell_bonus": 0.25,
        "new_cell_window": 1,
    },
    "update": {"estimator": "trr_pp"},
    "evolve": {"every": 1},
}

PAST = {  # what a run has instead in which past members play
    "match": {"hall_of_fame": 0.7},
    "anchors": {"share": 0.2, "source": "replay", "parameters": {"largest": 0.5}},
    "grade": {
        "chance": "reject",
        "niche": 0.4,
        "teacher_reward": ["one_minus_p", "zone", "learnability"],  # by slot
    },
    "update": {"corpus_share": 0.2, "corpus": str(CORPUS), "decay_steps": 2},
    "evolve": {"every": 1, "average_every": 2, "average_share": 0.5},
}

BRED = {  # what a run has instead that inherits, on islands that write the same programs, some members without a step
    "run": {"seed": 0},
    "population": {"teachers": 6, "students": 6, "islands": 2},
    "propose": {"types": ["code_o"], "per_type": 3},
    "solve": {"attempts": 2},
    "anchors": {"share": 0.25, "source": "replay"},
    "update": {"minibatches": 2},
    "evolve": {"every": 1, "crossover_probability": 1.0},
    "pbt": {"temperature": [0.5, 1.5], "teacher_reward": ["learnability", "one_minus_p"]},
}


def needs(package: str, extra: str) -> pytest.MarkDecorator:
    """Skips where the package is not installed. It is looked for, not imported, since every process collects."""
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs the extra `{extra}`")


def small_config(**sections: dict) -> Config:
    """The small configuration with some sections' settings replaced."""
    data = {name: {**settings, **sections.pop(name, {})} for name, settings in SMALL.items()}
    return build_config(data | sections, "the test's configuration")


FORKED = (  # what a fork has instead of the finished run's
    "propose.per_type=3",
    "solve.attempts=2",
    "grade.teacher_reward=zone",
    "grade.student_wrong=-0.25",
    "rating.beta=2.0",
    "update.roles=students",
    "evolve.every=1",
    "evolve.last_share=0.0",
    "evolve.inherit=false",
)


def start(directory: Path, config: Config) -> Run:
    return Run.create(directory, config, base_digest(config.base.folder()))


def contents(directory: Path) -> dict[str, str]:
    """stage folder and file -> content hash, for every committed file of a run."""
    found = {}
    for folder in stage_folders(directory):
        manifest = read_manifest(folder)
        if manifest is not None:
            for file in manifest.files:
                found[f"{folder.parent.name}/{folder.name}/{file.name}"] = file.content
    return found


def commits(directory: Path) -> dict[str, int]:
    """generation/stage -> how often it was committed."""
    return {
        f"{folder.parent.name}/{folder.name}": manifest.attempt
        for folder in stage_folders(directory)
        if (manifest := read_manifest(folder)) is not None
    }


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE, every: float = 0.05) -> None:
    """Wait until the condition holds, asked `every` so many seconds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(every)


def ran(command: Sequence[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended, with what it wrote."""
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **more)


def write_lines(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as lines of JSON; the file."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def ask(run: Path, sql: str) -> list[dict[str, Any]]:
    """The rows of a run's catalogue that answer a question."""
    with open_run(run) as catalogue:
        return catalogue.rows(sql)


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not yet collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="session", autouse=True)
def nobody_cuts_the_power() -> Iterator[None]:
    """No file is forced to disk by this process: a kill leaves what was written, and a test waits for no disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small products in several processes at once are slowest when each of them has threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox of the kind that this machine has, under the limits of a run."""
    with open_sandbox("auto", Limits(), workers=2) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from browser import chromium

    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from desk import at_the_desk

    with at_the_desk(tmp_path_factory.mktemp("prefect")) as desk:
        yield desk


@pytest.fixture(scope="session")
def shared_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of this session share; the environment of one may name those of another session."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session")
def finished(shared_folder: Path) -> Path:
    """A finished run of three generations; read it, never write to it."""
    return _made_once(shared_folder, "finished", lambda to: start(to, chosen_here(small_config())))


@pytest.fixture(scope="session")
def finished_solo(shared_folder: Path) -> Path:
    """A finished run of a single agent; read it, never write to it."""
    return _made_once(shared_folder, "finished_solo", lambda to: start(to, small_config(**SOLO)))


@pytest.fixture(scope="session")
def finished_with_a_past(shared_folder: Path) -> Path:
    """A finished run in which past members play; read it, never write to it."""
    return _made_once(shared_folder, "finished_with_a_past", lambda to: start(to, small_config(**PAST)))


@pytest.fixture(scope="session")
def finished_and_bred(shared_folder: Path) -> Path:
    """A finished run whose members inherit hyperparameters, on two islands; read it, never write to it."""
    return _made_once(shared_folder, "finished_and_bred", lambda to: start(to, small_config(**BRED)))


@pytest.fixture(scope="session")
def finished_fork(finished: Path, shared_folder: Path) -> Path:
    """A finished run whose first two generations are another's; read it, never write to it."""
    source = Run.open(finished)
    config = apply_overrides(source.config, FORKED)
    return _made_once(shared_folder, "finished_fork", lambda to: fork(source, 2, to, config))


UNTIL = "POPULORA_TESTS_UNTIL"
"""Seconds since the epoch after which no case of the second tier begins: a slow machine says what it left out, where a
limit on all of it would leave no answer at all."""

FINISHED = {"finished", "finished_solo", "finished_with_a_past", "finished_and_bred", "finished_fork"}
THOROUGH = pytest.StashKey[int]()
UNKNOWN = 60.0  # seconds of a case that was never timed: its file starts early


def pytest_itemcollected(item: pytest.Item) -> None:
    """What reads a finished run has it made, by whole generations in a sandbox."""
    if FINISHED & set(getattr(item, "fixturenames", ())):
        item.add_marker("loop")
        item.add_marker("sandbox")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first: processes that share the files then end at about the same time. A case of a file
    without a record counts as a long one.

    In CI, what looks at other people's servers has a second try.
    """
    if os.environ.get("CI"):
        for item in items:
            if item.get_closest_marker("foreign"):
                item.add_marker(pytest.mark.flaky(reruns=1))
    recorded, files = Recorded(), Counter[Path]()
    for item in items:
        files[item.path] += recorded.seconds(item.nodeid, unknown=UNKNOWN)
    items.sort(key=lambda item: (-files[item.path], item.path))


@pytest.hookimpl(tryfirst=True)  # before any fixture is made for it
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("thorough") and time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip(f"{UNTIL} has passed: this machine was too slow for all")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors, since some tests wait for other people's servers."""
    return min(len(os.sched_getaffinity(0)) + 1, 4)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[THOROUGH] = 0


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        item.config.stash[THOROUGH] += item.get_closest_marker("thorough") is not None


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # a process of xdist tells the one that reports
        session.config.workeroutput["thorough"] = session.config.stash[THOROUGH]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", {}).get("thorough", 0)
    node.config.stash[THOROUGH] = max(node.config.stash[THOROUGH], told)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left := config.stash[THOROUGH]:
        terminalreporter.line(f"left to make test-all: {left:,} cases")
    skipped = terminalreporter.stats.get("skipped", ())
    late = Counter(each.nodeid.partition("::")[0] for each in skipped if UNTIL in str(each.longrepr))
    if late:
        terminalreporter.line(f"out of time, left to make test-rest: {late.total():,} cases")
        for file, count in sorted(late.items()):
            terminalreporter.line(f"  {count:5,}  {file}")


def _made_once(shared: Path, name: str, begin: Callable[[Path], Run]) -> Path:
    """The run of that name, which all test processes share: the first that asks makes it."""
    directory, done = shared / name, shared / f"{name}.done"
    with FileLock(shared / f"{name}.lock"):
        if not done.exists():
            with Session(begin(directory)) as session:
                train(session, GENERATIONS)
            done.touch()
    return directory


@pytest.fixture
def copy_of(finished: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes a private copy of the finished run."""

    def copy() -> Path:
        target = tmp_path / "copy"
        shutil.copytree(finished, target)
        return target

    return copy
