"""What trains a run: Prefect where somebody can look at it, else the plain loop."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import pytest
from command import populora
from conftest import GENERATIONS, ran, small_config, start
from store_run import write_run
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.commands.console import ConsoleObserver
from populora_core.commands.training import trainer
from populora_core.lifecycle import loop
from populora_core.runs.heartbeat import HEARTBEAT, Beat
from populora_core.runs.run import Run
from populora_core.support.errors import EXIT_INTERRUPTED, ConfigError
from populora_core.support.shipped import REPOSITORY
from populora_core.terminal.screen import Screen

URL = "http://127.0.0.1:9/api"


def chosen(home: Path, *options: str) -> str:
    """How a command trains whose Prefect has this home: in a process of its own, since Prefect reads it once."""
    code = (
        "from populora_core.commands.training import trainer; from populora_core.lifecycle import loop; "
        "print('plain' if trainer(None) is loop.train else 'prefect')"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = kept | {"PREFECT_HOME": str(home)} | dict(option.split("=", 1) for option in options)
    done = ran([sys.executable, "-c", code], cwd=REPOSITORY, env=environment)
    return done.stdout.strip() or done.stderr


def test_without_a_server_that_one_can_look_at_a_run_takes_the_plain_loop(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert chosen(home) == "plain"
    (home / "populora.address").write_text(URL)  # of a `populora ui` that was killed
    assert chosen(home) == "plain"


def test_a_server_of_the_environment_is_used(tmp_path: Path) -> None:
    assert chosen(tmp_path, f"PREFECT_API_URL={URL}") == "prefect"


def test_a_server_of_the_active_profile_is_used(tmp_path: Path) -> None:
    (tmp_path / "profiles.toml").write_text(
        f'active = "there"\n[profiles.there]\nPREFECT_API_URL = "{URL}"\n[profiles.here]\n'
    )
    assert chosen(tmp_path) == "prefect"
    assert chosen(tmp_path, "PREFECT_PROFILE=here") == "plain"


def test_the_server_of_a_running_ui_is_used_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import flows

    monkeypatch.setattr(flows, "PREFECT_UI", tmp_path / "populora.address")
    with flows.announced(URL):
        assert flows.running_ui() == URL
        assert chosen(tmp_path) == "prefect"
        with flows.announced("http://127.0.0.1:10/api"):
            assert flows.running_ui() == URL, "the first one stays"
    assert flows.running_ui() == ""
    with open(tmp_path / "populora.address") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # who looked holds nothing


@pytest.mark.parametrize("asked", [True, False])
def test_what_is_asked_for_decides(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", URL)
    taken: Callable[..., object] = trainer(asked)
    assert (taken is loop.train) is not asked


WITHOUT_HOME = """
import os, pwd

def unknown(uid):
    raise KeyError(uid)

os.environ.pop("HOME", None)
pwd.getpwuid = unknown
from populora_core.commands.app import main
main()
"""


def test_a_user_without_a_home_does_without_prefect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user id is in no list of users; Prefect cannot even be imported there."""
    run = start(tmp_path / "run", small_config())
    for home in ({}, {"PREFECT_HOME": str(tmp_path / "prefect")}):
        reaped = ran(
            [sys.executable, "-c", WITHOUT_HOME, "reap", run.directory],
            cwd=REPOSITORY,
            env=os.environ | home,
        )
        assert (reaped.returncode, reaped.stdout) == (0, "nothing was left behind\n"), reaped.stderr

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setenv("PREFECT_API_URL", URL)
    assert trainer(None) is loop.train
    with pytest.raises(ConfigError, match="Prefect needs a home folder") as refused:
        trainer(True)
    assert "set HOME" in refused.value.fix


@pytest.mark.parametrize("more", [["--seed", "7"], ["--truncate"], []], ids=str)
def test_an_interrupted_rerun_is_repeated_and_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    """The stage that it forced was not committed, so `resume` would find the old one whole."""

    def interrupted(*given: object, **settings: object) -> None:
        raise KeyboardInterrupt

    run = Run.create(tmp_path / "a run", small_config(), "0" * 64)
    monkeypatch.setattr("populora_core.runs.session.Session", lambda *given: nullcontext())
    monkeypatch.setattr(loop, "rerun", interrupted)
    words = ["rerun", str(run.directory), "--generation", "1", "--stage", "solve", *more]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == EXIT_INTERRUPTED
    assert f"populora {shlex.join(words)} goes on from there" in done.output


@pytest.mark.parametrize(
    ("stage", "told"), [("evaluate-tiny", "held-out problems"), ("assemble-tiny", "assemble-tiny is made")]
)
def test_progress_tells_of_every_stage_also_of_a_plug_ins(tmp_path: Path, stage: str, told: str) -> None:
    seen = io.StringIO()
    with ConsoleObserver(Screen(file=seen, width=120, force_terminal=True), tmp_path, 3) as observer:
        observer.stage_started(2, stage)
        assert observer.position == f"{stage} of generation 2"
    assert f"generation 2: {told}" in seen.getvalue()


@pytest.mark.parametrize(
    ("generation", "further"), [(1, ""), (GENERATIONS, f" --generations {GENERATIONS + 10}")]
)
def test_a_fork_names_the_command_that_trains_it_further(
    finished: Path, tmp_path: Path, generation: int, further: str
) -> None:
    to = tmp_path / "forked"
    done = populora("fork", finished, "--generation", generation, "--to", to)
    assert done.returncode == 0, done.stderr
    assert f"resume {to}{further} goes on from there" in done.stdout


@pytest.mark.parametrize(("last", "further"), [(3, ""), (1, " --generations 12")])
def test_inspect_names_the_command_that_goes_on_with_a_killed_run(
    tmp_path: Path, last: int, further: str
) -> None:
    """One that was extended has its own last generation behind it."""
    run = Run.create(tmp_path / "run", small_config(run={"generations": last}), "0" * 64)
    write_run(run.directory, generations=2)
    beat = Beat(1, "elsewhere", "1:1:1:1", 3, "solve", "2020-01-01T00:00:00+00:00", ended=False)
    (run.directory / HEARTBEAT).write_text(json.dumps(asdict(beat)))
    done = populora("inspect", run.directory)
    assert f"resume {run.directory}{further} clears up and goes on" in done.stdout, done.stderr
