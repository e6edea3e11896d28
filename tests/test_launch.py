"""What can be launched: every deployment has a flow, a described form, and presets that are there."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import pytest
import yaml
from command import populora
from conftest import PATIENCE, small_config, start
from prefect.client.schemas.objects import FlowRun
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema
from prefect.utilities.names import generate_slug

import flows
from flows import launch, ui
from flows.below import below
from flows.finished import joined
from flows.forms import chosen_runs, in_the_form, is_random, run_folder
from flows.launch import Preset, resume, unreviewed
from flows.notify import on_end
from flows.study import study
from flows.ui import serve
from populora_core.runs.lock import lock
from populora_core.runs.session import Session
from populora_core.support.errors import ConfigError, PopuloraError, ServerUnreachable
from populora_core.support.processes import Owner
from populora_core.support.shipped import REPOSITORY

DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]
CONFIGS = REPOSITORY / "configs"


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment["name"])
def test_every_field_of_a_form_is_described_and_has_the_parameters_that_are_preset(
    deployment: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    flow = load_flow_from_entrypoint(deployment["entrypoint"])
    schema = parameter_schema(flow)
    assert schema.properties
    for name, field in schema.properties.items():
        assert field.get("description", "").endswith("."), f"{name} has no sentence that describes it"
        assert field["title"] != name, f"{name} has no title"
        assert {"type": "null"} not in field.get("anyOf", ()), (
            f"{name} may be nothing, which a form cannot show"
        )
    assert set(deployment["parameters"]) <= set(schema.properties)
    assert deployment["work_pool"]["name"] == "populora"
    assert [flow.on_failure_hooks, flow.on_crashed_hooks] == [[on_end], [on_end]], "who fails is told of"


def test_the_night_has_a_time_a_zone_and_a_name() -> None:
    (nightly,) = [deployment for deployment in DEPLOYMENTS if deployment.get("schedules")]
    (schedule,) = nightly["schedules"]
    assert schedule["slug"] and schedule["cron"] and schedule["timezone"]
    assert nightly["parameters"]["suite"] == ""


def test_the_presets_are_the_configurations_of_whole_runs() -> None:
    runs = {path.stem for path in CONFIGS.glob("*.toml") if "arms" not in tomllib.loads(path.read_text())}
    assert set(get_args(get_args(Preset)[0])) == runs


def test_a_stage_to_make_again_needs_its_generation(tmp_path: Path) -> None:
    state = resume.fn(str(tmp_path), redo_stage="solve")
    assert state.is_failed()
    assert "needs a generation and a name" in (state.message or "")


def test_a_study_file_may_lie_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    state = study.fn("~/absent.toml")
    assert state.is_failed()
    assert str(tmp_path / "absent.toml") in (state.message or "")


@pytest.mark.parametrize(
    ("name", "random"),
    [
        ("theta751-eriador-quadrant", True),
        ("mu-canis-majoris", True),
        ("my-run", False),
        ("second", False),
        ("first train", False),
        pytest.param(generate_slug(2), True, id="what Prefect makes up now"),
    ],
)
def test_a_name_that_prefect_made_up_is_told_from_one_that_was_typed(name: str, random: bool) -> None:
    assert is_random(name) is random


def test_options_are_named_as_the_form_names_them() -> None:
    told = in_the_form("repeat with --truncate, another --seed or --merge", resume.fn)
    assert told == (
        'repeat with "Redo: set later generations aside" (--truncate), another "Redo: seed" (--seed) or --merge'
    )


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ({"run_dir": "", "preset": "quick", "config_file": ""}, REPOSITORY / "runs/2026-11-23-151607-quick"),
        (
            {"run_dir": "", "preset": "quick", "config_file": "a/my.toml"},
            REPOSITORY / "runs/2026-11-23-151607-my",
        ),
        ({"run_dir": "~/big/run", "preset": "quick"}, Path("~/big/run").expanduser()),
        ({"run_dir": "runs/first"}, REPOSITORY / "runs/first"),
        ({"run_dir": str(REPOSITORY / "runs/first")}, REPOSITORY / "runs/first"),
        ({"run_dirs": ["runs"]}, None),
    ],
)
def test_a_run_folder_is_the_forms_or_named_by_moment_and_configuration(
    given: dict[str, Any], folder: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the command is given."""
    monkeypatch.chdir(tmp_path)
    created = datetime(2026, 11, 23, 15, 16, 7, tzinfo=UTC)
    assert run_folder(FlowRun(flow_id=uuid4(), parameters=given, created=created)) == folder


def test_runs_of_a_schedule_that_were_created_together_have_folders_of_their_own() -> None:
    """Prefect makes the next three flow runs of a schedule in one batch."""
    created = datetime(2026, 11, 23, 15, 16, 7, tzinfo=UTC)
    hours = (created + timedelta(hours=1), created + timedelta(hours=2))
    batch = [
        FlowRun(
            flow_id=uuid4(),
            parameters={"run_dir": ""},
            created=created,
            expected_start_time=hour,
            auto_scheduled=True,
        )
        for hour in hours
    ]
    assert [run_folder(run) for run in batch] == [
        REPOSITORY / "runs/2026-11-23-161607-run",
        REPOSITORY / "runs/2026-11-23-171607-run",
    ]


def test_a_field_of_several_runs_needs_one() -> None:
    assert chosen_runs("runs/a, runs/b,") == ["runs/a", "runs/b"]
    for nothing in ("", " , ", []):
        with pytest.raises(ConfigError, match="no run is chosen"):
            chosen_runs(nothing)


def test_runs_are_compared_in_a_folder_whose_name_fits_a_disk() -> None:
    assert joined(["one", "two"]) == "one-and-two"
    many = [f"2026-11-26-12000{number}-frontier" for number in range(9)]
    assert len(joined(many)) < 255 and joined(many) != joined([*many[:-1], "other"])


def test_the_ui_runs_as_many_at_a_time_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(ui, "serve", lambda port, limit, say: asked.append(limit))
    assert populora("ui", "--limit", 3).returncode == 0
    assert asked == [3]


def test_a_second_ui_under_one_prefect_home_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would call every flow run of the first one crashed."""
    monkeypatch.setattr(flows, "running_ui", lambda: "http://127.0.0.1:4200/api")
    with pytest.raises(PopuloraError, match="runs already") as refused:
        serve(4300, 1, lambda *said: None)
    assert refused.value.got == "http://127.0.0.1:4200/api"


def test_a_second_ui_is_refused_while_the_first_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "PREFECT_HOME", tmp_path)
    monkeypatch.setattr(flows, "PREFECT_UI", tmp_path / "populora.address")
    with lock(tmp_path), pytest.raises(PopuloraError, match="runs already") as refused:
        serve(4300, 1, lambda *said: None)
    assert refused.value.got.startswith(f"pid {os.getpid()} on ")


LAUNCHED = """
import time
from flows.forms import launched

@launched(lambda given: "waits")
def waits():
    print("waits", flush=True)
    time.sleep(600)

waits.fn()
"""


@pytest.mark.thorough
def test_a_flow_run_ends_once_the_ui_that_it_runs_under_is_killed() -> None:
    with subprocess.Popen(["sleep", "600"]) as ui:
        environment = os.environ | below(Owner.of(ui.pid))
        command = [sys.executable, "-c", LAUNCHED]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, cwd=REPOSITORY
        ) as run:
            try:
                assert run.stdout is not None and run.stdout.readline() == "waits\n"
                ui.kill()
                assert run.wait(PATIENCE) == -signal.SIGTERM
            finally:
                ui.kill()
                run.kill()


def test_nobody_is_replaced_unseen_where_a_review_was_asked_for_and_the_server_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[int] = []
    monkeypatch.setattr(launch, "run_alone", lambda session, number: alone.append(number))
    session = Session(start(tmp_path / "run", small_config(evolve={"every": 2})))
    for number in (0, 1):
        unreviewed(session, number)
    with pytest.raises(ServerUnreachable, match="generation 2 waits for a review"):
        unreviewed(session, 2)
    assert alone == [0, 1]


@pytest.mark.parametrize(
    "settings",
    [
        {"evolve": {"every": 2, "replacement": "none"}},
        {"evolve": {"every": 2}, "population": {"teachers": 1, "students": 1}},
        {"evolve": {"every": 2, "crossover_probability": 1.0}, "population": {"teachers": 2, "students": 2}},
    ],
)
def test_no_review_waits_where_all_must_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    alone: list[int] = []
    monkeypatch.setattr(launch, "run_alone", lambda session, number: alone.append(number))
    unreviewed(Session(start(tmp_path / "run", small_config(**settings))), 2)
    assert alone == [2]


def test_prefects_engine_logs_no_error_of_the_project_again(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("prefect.flow_runs")
    logger.addHandler(caplog.handler)
    try:
        for error in (ConfigError("an unknown key"), ValueError("a fault")):
            logger.error("exited by %s", error, exc_info=error)
    finally:
        logger.removeHandler(caplog.handler)
    assert {record.getMessage() for record in caplog.records} == {"exited by a fault"}
