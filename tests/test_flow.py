"""A run as a person starts it: through Prefect, from the command line, interrupted by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, alive, contents, ran, small_config, wait_for

from populora_core.support.processes import descendants

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


TINY: dict[str, dict[str, Any]] = {  # to be interrupted: one worker process, little to wait for
    "propose": {"per_type": 2, "max_tokens": 64},
    "compute": {"backend": "local", "shards": 1},
}


def _config(folder: Path, **sections: dict[str, Any]) -> Path:
    """The small configuration, with some sections' settings replaced, as a TOML file."""
    path = folder / "small.toml"
    lines = []
    for section, settings in small_config(**sections).as_json().items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {_toml(value)}" for key, value in settings.items() if value is not None]
    path.write_text("\n".join(lines))
    return path


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value)


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"PREFECT_HOME": str(home / "prefect"), "COLUMNS": "160"}


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a run, in a process group of its own; what is still there at the end is killed."""
    started = []

    def begin(directory: Path, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "populora_core.commands", "run", *options]
        process = subprocess.Popen(
            [*command, "--config", str(_config(tmp_path, **TINY)), "--run-dir", str(directory)],
            cwd=ROOT,
            env=_environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell's background job, which the test suite may be, ignores Ctrl-C and hands that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.foreign
def test_a_run_through_prefect_gives_what_the_plain_loop_gives(finished: Path, tmp_path: Path) -> None:
    directory = tmp_path / "flow"
    command = [sys.executable, "-m", "populora_core.commands", "run", "--prefect"]
    command += ["--config", str(_config(tmp_path))]
    command += ["--run-dir", str(directory), "--generations", "1"]
    done = ran(command, cwd=ROOT, env=_environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "nothing that a newcomer would take for an error"
    assert "generation   1/1" in done.stdout
    assert "what to try next" in done.stdout
    made = contents(directory)
    assert {name[:4] for name in made} == {"0000", "0001"}
    # generations is not part of any key, so a longer run begins exactly like this
    assert made == {name: content for name, content in contents(finished).items() if name in made}


def test_a_prefect_server_that_cannot_be_reached_is_named_with_the_way_around(
    copy_of: Callable[[], Path],
) -> None:
    directory = copy_of()
    done = ran(
        [sys.executable, "-m", "populora_core.commands", "resume", str(directory), "--generations", "4"],
        cwd=ROOT,
        env=_environment(directory)
        | {"PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_CLIENT_MAX_RETRIES": "0"},
    )
    assert done.returncode == 2
    assert "Prefect's server cannot be reached" in done.stderr
    assert "--plain" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_in_order_and_leaves_no_process(
    begin: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    directory = tmp_path / "run"
    process = begin(directory, "--plain")
    wait_for(lambda: (directory / "generations" / "0001" / "verify").exists())
    children = descendants(process.pid)
    assert len(children) >= 2
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err
    if number is signal.SIGINT:
        assert process.returncode == 130
        assert "populora resume" in out
    else:
        assert process.returncode == 128 + signal.SIGTERM
    wait_for(lambda: not any(map(alive, children)))
    assert not list(directory.rglob(".tmp-*"))


@pytest.mark.foreign
@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_flow_in_order_and_is_told_plainly(
    begin: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    directory = tmp_path / "run"
    process = begin(directory, "--prefect")
    wait_for(lambda: (directory / "generations" / "0001" / "match").exists())
    children = descendants(process.pid)
    os.killpg(process.pid, number)  # a terminal, and who ends a job, send it to every process of the group
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, (out, err)
    assert "interrupted" in out
    assert "populora resume" in out
    assert err == ""
    wait_for(lambda: not any(map(alive, children)))
    assert not [path for path in directory.rglob(".*") if path.name.startswith((".tmp-", ".lock"))]


INTERRUPTED_AT_ITS_END = """
import os, signal
import flows
from prefect import flow
from tasks.interruption import heeding_ctrl_c
signal.signal(signal.SIGINT, signal.default_int_handler)
finished = flow(on_completion=[lambda *_: os.kill(os.getpid(), signal.SIGINT)])(lambda: None)
finished()
print("dropped", flush=True)
try:
    with heeding_ctrl_c():
        finished()
except KeyboardInterrupt:
    print("heeded")
"""


@pytest.mark.foreign
@pytest.mark.thorough
def test_a_ctrl_c_that_prefect_drops_at_the_end_of_a_flow_run_is_heeded(tmp_path: Path) -> None:
    done = ran([sys.executable, "-c", INTERRUPTED_AT_ITS_END], cwd=ROOT, env=_environment(tmp_path))
    assert done.stdout.split() == ["dropped", "heeded"], done.stderr
