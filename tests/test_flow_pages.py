"""What the pages of Prefect's UI say of a run: its log, its artifacts, its name, and why it failed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import GENERATIONS, ran

from populora_core.support.shipped import REPOSITORY

pytestmark = [pytest.mark.foreign, pytest.mark.loop, pytest.mark.sandbox, pytest.mark.thorough]

FLOWS = """
import json, sys
from pathlib import Path
from flows.server import own_server
from populora_core.support.errors import ArtifactError
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow
from prefect.logging.handlers import APILogWorker
from flows.evaluate import evaluate
from flows.finished import compare, export, fork
from flows.launch import resume
from tasks import stages

run, folder, generations = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])

def told(flow, **given):
    state = flow(**given, return_state=True)
    return state.type.value, state.message

def full(*arguments, **named):
    raise ArtifactError("the disk is full")

with own_server(), get_client(sync_client=True) as client:
    typed = client.create_flow_run(resume, name="my own name", parameters={"run_dir": run})
    asked = {"run_dir": run, "generations": generations + 1}
    run_flow(resume, flow_run=typed, parameters=asked)
    again = {"redo_generation": 1, "redo_stage": "solve", "redo_seed": 7}
    states = {
        "refused": told(resume, run_dir=run, **again),
        "absent": told(evaluate, run_dirs=[str(folder / "absent")], suite="configs/suites/tiny.toml"),
        "fork": told(fork, source=run, generation=1, to=str(folder / "forked")),
        "fork of nothing": told(fork, source=run, generation=99, to=str(folder / "nothing")),
        "compare": told(compare, run_dirs=[run, str(folder / "forked")], to=str(folder / "both")),
        "export": told(export, source=run, member="student-00-g0000", to=str(folder / "exported")),
    }
    stages.run_stage = full
    states["disk is full"] = told(resume, run_dir=str(folder / "forked"), generations=2)
    APILogWorker.drain_all()
    names = {found.id: found.name for found in client.read_flow_runs()}
    logs = [(names.get(log.flow_run_id), log.message, log.level) for log in client.read_logs(limit=200)]
    artifacts = [
        (found.key, names.get(found.flow_run_id) if found.task_run_id is None else None, found.type, str(found.data))
        for found in client.read_artifacts(limit=200)
    ]
    tasks = [found.name for found in client.read_task_runs(limit=200)]
    known = {"names": sorted(names.values()), "tasks": tasks, "states": states, "logs": logs}
    print(json.dumps(known | {"artifacts": artifacts}))
"""


@pytest.fixture(scope="module")
def told(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder, and what one Prefect server knows after the flows were run in it."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copytree(finished, folder / "first")
    home = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_LOGGING_LEVEL": "INFO", "COLUMNS": "160"}
    done = ran(
        [sys.executable, "-c", FLOWS, str(folder / "first"), str(folder), str(GENERATIONS)],
        cwd=REPOSITORY,
        env=os.environ | home | {"PYTHONPATH": str(REPOSITORY)},
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_a_typed_name_is_kept_and_a_random_one_says_what_is_done(told: tuple[Path, dict[str, Any]]) -> None:
    names = told[1]["names"]
    assert {"my own name", "first resume", "fork first to forked", "compare first, forked"} <= set(names)
    assert "export student-00-g0000" in names


def test_the_log_of_a_run_has_a_line_per_generation(told: tuple[Path, dict[str, Any]]) -> None:
    lines = [line for name, line, _ in told[1]["logs"] if name == "my own name"]
    (line,) = (line for line in lines if line.startswith("generation "))
    assert f"generation   {GENERATIONS + 1}/{GENERATIONS + 1}  valid function" in line


def test_a_run_has_one_summary_and_one_progress_of_its_own(told: tuple[Path, dict[str, Any]]) -> None:
    own = {key: data for key, name, _, data in told[1]["artifacts"] if name == "my own name"}
    assert sorted(own) == ["first-generations", "first-run"]
    assert len([key for key, name, *_ in told[1]["artifacts"] if name == "my own name"]) == 2
    assert float(own["first-generations"]) == 100.0
    summary = own["first-run"]
    assert f"All {GENERATIONS + 1} generations are done." in summary
    assert "## What to look at" in summary and "[Report of first](" in summary
    assert f"generation   {GENERATIONS + 1}/{GENERATIONS + 1}  valid function" in summary


def test_an_error_ends_a_flow_with_its_message_alone_in_the_words_of_the_form(
    told: tuple[Path, dict[str, Any]],
) -> None:
    folder, found = told
    kind, message = found["states"]["refused"]
    assert kind == "FAILED"
    assert message.startswith(f"generations 2 to {GENERATIONS + 1} would no longer follow")
    assert '"Redo: set later generations aside" (--truncate)' in message
    assert found["states"]["absent"][0] == "FAILED"
    assert "absent is not a run directory" in found["states"]["absent"][1]
    assert "evaluate tiny: absent" in found["names"]
    assert not any("Traceback" in line for _, line, _ in found["logs"]), "nor in the log of a task"
    errors = [
        line for name, line, level in found["logs"] if name == "first resume" and level >= logging.ERROR
    ]
    assert errors == [message], "in its log it is an error, with its lines as they are"
    assert "\n" in message
    assert not list((folder / "first").rglob("superseded"))


def test_a_stage_that_fails_ends_its_generation_and_the_run(told: tuple[Path, dict[str, Any]]) -> None:
    _, found = told
    assert found["states"]["disk is full"] == ["FAILED", "the disk is full"]
    assert [name for name in found["tasks"] if name.startswith("forked g0002")] == ["forked g0002 match"]


def test_runs_are_forked_compared_and_exported_from_forms(told: tuple[Path, dict[str, Any]]) -> None:
    folder, found = told
    assert [found["states"][name][0] for name in ("fork", "compare", "export")] == ["COMPLETED"] * 3
    assert (folder / "forked" / "report.html").is_file()
    assert (folder / "both" / "report.html").is_file()
    assert (folder / "exported" / "adapter_model.safetensors").is_file()
    kind, message = found["states"]["fork of nothing"]
    assert kind == "FAILED"
    assert f"one of its generations 0 to {GENERATIONS + 1}" in message
