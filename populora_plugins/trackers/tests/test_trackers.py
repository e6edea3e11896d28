"""Trackers are told every generation once, whatever came in between, and never stand in a run's way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import GENERATIONS, contents, needs, ran, small_config, start, wait_for

from populora_core.lifecycle.loop import fork, rerun, train
from populora_core.report.figures import read_figures
from populora_core.report.scalars import by_generation, whole_generations
from populora_core.runs.preflight import load_runnable
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.runs.trackers import TRACKERS, Trackers, TrackerWarning
from populora_core.store.artifacts import supersede
from populora_core.store.catalogue import publish
from populora_core.store.manifest import generation_dir
from populora_core.support.errors import ConfigError
from populora_core.support.processes import descendants
from populora_plugins.trackers.once import RECORD

NAMES = ("tensorboard", "wandb")
pytestmark = [pytest.mark.loop, pytest.mark.sandbox, *(needs(package, package) for package in NAMES)]

ROOT = Path(__file__).resolve().parents[3]
ALONE = (
    f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}, {str(Path(__file__).parent)!r}]\n"
)
Told = dict[int, dict[str, float]]


@pytest.fixture(autouse=True)
def nobody_is_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No account of this machine's user is used, and nothing is written to the user's home."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB__SERVICE_WAIT", "300")
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "300")


def using(directory: Path, *names: str, **settings: object) -> Path:
    """The run, with these trackers in its configuration."""
    record = json.loads((directory / "run.json").read_text())
    record["config"]["trackers"] = {"use": names, **settings}
    (directory / "run.json").write_text(json.dumps(record))
    return directory


def follow(directory: Path) -> None:
    """What a process does that finds the run as it is."""
    with Trackers(Run.open(directory)) as trackers:
        trackers.follow(whole_generations(read_figures(directory, samples=False)))


def killed_while_it_tells(directory: Path, place: str) -> None:
    """A process that follows the run and is killed right after it called `place` for the first time."""
    module, _, method = place.rpartition(":")
    code = f"""
import os, signal
from pathlib import Path
import {module} as module
from test_trackers import follow
kind, name = {method!r}.split(".")
kind = getattr(module, kind)
whole = getattr(kind, name)
def cut(*arguments):
    whole(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(kind, name, cut)
follow(Path({str(directory)!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", ALONE + code])
    assert process.wait() == -signal.SIGKILL
    wait_for(lambda: not services_of(process.pid))


def services_of(pid: int) -> list[str]:
    """Command lines of the services that W&B started for a process."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            lines.append(path.read_text(errors="replace").replace("\0", " "))
    return [line for line in lines if "wandb-core" in line and f"--pid {pid} " in line]


def lose_last(directory: Path) -> None:
    """The run as it was one generation earlier."""
    supersede(directory, generation_dir(directory, GENERATIONS))
    publish(directory)


def ids(directory: Path) -> dict[str, str]:
    return {name: kept["id"] for name, kept in json.loads((directory / RECORD).read_text()).items()}


def in_tensorboard(directory: Path) -> Told:
    """What TensorBoard's own reader finds; every step of a name at most once."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    reader = EventAccumulator(str(directory / "tensorboard"), size_guidance={SCALARS: 0})
    reader.Reload()
    found: Told = {}
    for name in reader.Tags()[SCALARS]:
        for event in reader.Scalars(name):
            own = found.setdefault(event.step, {})
            assert name not in own, f"{name} twice at step {event.step}"
            own[name] = event.value
    return found


def in_wandb(directory: Path) -> Told:
    """What W&B's offline files hold, all of them together; every step at most once."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: Told = {}
    for path in sorted((directory / "wandb").glob("offline-run-*/run-*.wandb")):
        for data in _records(path.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                row = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in record.history.item
                }
                step = int(row["_step"])
                assert step not in found, f"step {step} twice"
                found[step] = {name: value for name, value in row.items() if not name.startswith("_")}
    return found


def _records(file: bytes) -> list[bytes]:
    """The records of a LevelDB log, which is what a .wandb file is after its own header of 7 bytes."""
    place, records, pending = 7, [], b""
    while place + 7 <= len(file):
        rest = 32768 - place % 32768
        if rest < 7:  # the padding of a block
            place += rest
            continue
        _, length, kind = struct.unpack_from("<IHB", file, place)
        pending += file[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            records.append(pending)
            pending = b""
    return records


def figures_of(directory: Path) -> Told:
    return by_generation(read_figures(directory, samples=False))


def same(found: Told, directory: Path) -> bool:
    """Whether these are the run's figures; TensorBoard keeps single precision."""
    expected = figures_of(directory)
    return found.keys() == expected.keys() and all(
        found[generation] == pytest.approx(expected[generation], rel=1e-6) for generation in expected
    )


@pytest.mark.thorough
def test_a_run_that_goes_on_is_told_as_it_goes_in_the_same_logs(copy_of: Callable[[], Path]) -> None:
    ours = set(descendants(os.getpid()))
    directory = using(copy_of(), "tensorboard", "wandb")
    lose_last(directory)
    follow(directory)
    before = ids(directory)
    with Session(Run.open(directory)) as session:
        train(session, GENERATIONS)
        assert max(in_tensorboard(directory)) == GENERATIONS
    assert ids(directory) == before
    assert same(in_tensorboard(directory), directory)
    assert same(in_wandb(directory), directory)
    assert len(list((directory / "wandb").glob(f"offline-run-*-{before['wandb']}"))) == 1
    wait_for(lambda: set(descendants(os.getpid())) <= ours)


@pytest.mark.thorough
def test_a_killed_process_leaves_no_step_twice_and_none_out(copy_of: Callable[[], Path]) -> None:
    directory = using(copy_of(), "tensorboard", "wandb")
    killed_while_it_tells(directory, "populora_plugins.trackers.tensorboard:TensorBoard.flush")
    assert max(in_tensorboard(directory)) == GENERATIONS
    killed_while_it_tells(directory, "populora_plugins.trackers.wandb:WandbRun.tell")
    before = ids(directory)
    follow(directory)
    assert ids(directory) == before
    assert same(in_tensorboard(directory), directory)
    assert same(in_wandb(directory), directory)


@pytest.mark.thorough
def test_a_generation_that_came_out_different_takes_the_old_ones_place(copy_of: Callable[[], Path]) -> None:
    directory = using(copy_of(), "tensorboard", "wandb")
    follow(directory)
    before, old = ids(directory), figures_of(directory)
    with Session(Run.open(directory)) as session:
        rerun(session, 2, "propose", seed=99, truncate=True)
    assert figures_of(directory)[2] != old[2]
    assert ids(directory) == before
    assert same(in_tensorboard(directory), directory)
    assert same(in_wandb(directory), directory)


@pytest.mark.thorough
def test_a_stage_that_was_only_repeated_is_not_told_again(copy_of: Callable[[], Path]) -> None:
    directory = using(copy_of(), "tensorboard")
    follow(directory)
    told = in_tensorboard(directory)
    with Session(Run.open(directory)) as session:
        rerun(session, 2, "grade")
    assert in_tensorboard(directory) == told


@pytest.mark.thorough
def test_a_fork_has_logs_of_its_own(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    source = using(copy_of(), "wandb")
    follow(source)
    forked = fork(Run.open(source), 2, tmp_path / "fork", Run.open(source).config).directory
    assert not (forked / RECORD).exists()
    follow(forked)
    assert ids(forked)["wandb"] != ids(source)["wandb"]
    assert same(in_wandb(forked), forked)


def test_without_trackers_nothing_is_written_and_nothing_imported(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    before = sorted(path.name for path in directory.iterdir())
    code = f"""
from pathlib import Path
from populora_core.report.write import refresh
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.runs.trackers import Trackers
from populora_core.report.scalars import whole_generations
with Session(Run.open({str(directory)!r})) as session:
    with Trackers(session.run) as trackers:
        trackers.follow(whole_generations(refresh(session.run.directory)))
print(*sorted({{"tensorboard", "wandb"}} & set(sys.modules)))
"""
    done = ran([sys.executable, "-c", ALONE + code], check=True)
    assert done.stdout.strip() == ""
    assert sorted(path.name for path in directory.iterdir()) == before


@pytest.mark.thorough
def test_no_tracker_opens_a_connection(copy_of: Callable[[], Path]) -> None:
    directory = using(copy_of(), "tensorboard", "wandb")
    without_network = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*without_network, "true"]).returncode:
        pytest.skip("no network namespaces here")
    code = f"""
import socket
from pathlib import Path
from test_trackers import follow

def tries():  # the kernel's count for all processes of the namespace, which has no route
    keys, values = (line.split()[1:] for line in open("/proc/self/net/snmp") if line.startswith("Ip:"))
    counts = dict(zip(keys, map(int, values)))
    return counts["OutRequests"] + counts["OutNoRoutes"]

follow(Path({str(directory)!r}))
print(tries())
try:
    socket.create_connection(("192.0.2.1", 443))
except OSError:
    print(tries())
"""
    done = ran([*without_network, sys.executable, "-c", ALONE + code], check=True)
    assert done.stdout.split() == ["0", "1"]
    assert same(in_wandb(directory), directory)


def test_trackers_decide_no_result(copy_of: Callable[[], Path], finished: Path) -> None:
    directory = using(copy_of(), "tensorboard")
    with Session(Run.open(directory)) as session:
        train(session, GENERATIONS)
    assert contents(directory) == contents(finished)
    assert not (directory / "superseded").exists()  # no stage was made again because the section is another


@pytest.mark.thorough
def test_a_tracker_that_fails_stops_no_run_and_is_told_later(tmp_path: Path) -> None:
    few = {"population": {"teachers": 1, "students": 1}, "propose": {"per_type": 2}}
    run = start(tmp_path / "run", small_config(**few, trackers={"use": ("tensorboard",)}))
    directory = run.directory
    (directory / "tensorboard").write_text("a file where the folder should be")
    with Session(run) as session, pytest.warns(TrackerWarning) as warned:
        train(session, 1)  # which asks it after the founding and after the generation
    (warning,) = [w for w in warned if w.category is TrackerWarning]
    said = str(warning.message)
    assert "tensorboard is left out" in said and "File exists" in said and "Fix: fix the cause" in said
    assert read_figures(directory).last == 1
    (directory / "tensorboard").unlink()
    follow(directory)
    assert same(in_tensorboard(directory), directory)


def test_wandb_online_asks_for_no_login_in_the_middle_of_a_run(copy_of: Callable[[], Path]) -> None:
    directory = using(copy_of(), "wandb", wandb={"mode": "online"})
    with pytest.warns(TrackerWarning, match=r"(?s)wandb is left out.*no login.*wandb login"):
        follow(directory)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a tracker's package one that is not installed."""

    def uninstall(name: str) -> None:
        monkeypatch.setattr(TRACKERS, "made", {})
        monkeypatch.delitem(sys.modules, f"populora_plugins.trackers.{name}", raising=False)
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.setitem(sys.modules, name, None)

    return uninstall


@pytest.mark.parametrize("name", NAMES)
def test_a_tracker_that_is_not_installed_is_refused_at_the_start(
    tmp_path: Path, without: Callable[[str], None], name: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[trackers]\nuse = ['{name}']\n")
    assert load_runnable(file).trackers.use == (name,)
    without(name)
    with pytest.raises(ConfigError, match=rf"(?s)not installed.*pip install -e '\.\[{name}\]'"):
        load_runnable(file)


def test_a_run_resumed_where_a_tracker_is_not_installed_goes_on_without(
    copy_of: Callable[[], Path], without: Callable[[str], None]
) -> None:
    directory = using(copy_of(), "wandb", "tensorboard")
    without("wandb")
    with pytest.warns(TrackerWarning, match=r"wandb is left out.*pip install -e '\.\[wandb\]'"):
        follow(directory)
    assert same(in_tensorboard(directory), directory)
