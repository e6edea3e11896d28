"""Evaluations of `populora ui` in a real browser: from their form, and at night what has changed since."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from browser import MARKS
from conftest import PATIENCE, wait_for
from desk import ASKED, Desk, fresh, made, populora

from populora_core.benchmarks.suite import YARDSTICK

pytestmark = [*MARKS, pytest.mark.foreign, pytest.mark.sandbox, pytest.mark.thorough]

HEARD = 30.0  # within so many seconds the server's scheduler takes note of a new time, unless it was too busy


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ui")


SUITES = {"quick": "tiny", "frontier": "frontier", "repl": "own"}
"""Runs of three kinds, and the suite of each: of its preset, or a file of its configuration."""


def three_kinds(home: Path) -> Path:
    """A folder with a run of each kind."""
    folder, suite = fresh(home, "nights"), home / "own.toml"
    rows = (
        f'{{"id": "{n}", "code": "def f(x):\\n return x+{n}", "input": "1", "output": "{1 + n}"}}'
        for n in (1, 2)
    )
    suite.with_suffix(".jsonl").write_text("\n".join(rows))
    entry = f'benchmark = "cruxeval_o"\ndataset = "file:{suite.with_suffix(".jsonl")}"\nmax_tokens = 32\n'
    suite.write_text(f'suite = "own"\n[[benchmarks]]\n{entry}')
    own = {
        "quick": [],
        "frontier": ["solve.attempts=2", "evaluate.report_every=0", "evaluate.yardstick=0"],
        "repl": ['base.dialect="repl"', f'evaluate.suite="{suite}"', "propose.types=['code_o']"],
    }
    for name, settings in own.items():
        preset = "frontier" if name == "frontier" else "quick"
        words = ["run", "--preset", preset, "--run-dir", str(folder / name), "--generations", "1", "--plain"]
        populora(*words, *(word for each in ["propose.per_type=4", *settings] for word in ("--set", each)))
    return folder


def evaluations(folder: Path) -> dict[str, int]:
    """Run, generation and suite of every evaluation, and when it was written."""
    found = sorted(folder.glob("*/generations/*/evaluate-*/manifest.json"))
    return {
        "{0} {2} {3}".format(*path.relative_to(folder).parent.parts): path.stat().st_mtime_ns
        for path in found
    }


def test_three_kinds_of_runs_are_measured_from_the_nightly_form_and_at_night_what_has_changed(
    desk: Desk, home: Path
) -> None:
    deployment, folder = desk.nightly(), three_kinds(home)
    (schedule,) = deployment["schedules"]
    assert (schedule["slug"], schedule["schedule"]["timezone"]) == ("nightly", "UTC")
    assert deployment["parameters"] == {"run_dirs": ["runs"], "suite": "", "members": "all"}

    name = f"evaluate own suite: {folder.name}"
    desk.launch("evaluate-nightly", "nightly-form", named=name, run_dirs=str(folder), members="best")
    desk.open_run(name)
    desk.wait_state(name, "Completed")
    assert desk.run(name)["state"]["message"].startswith("3 runs evaluated on their own suites")
    first = evaluations(folder)
    assert first.keys() == {f"{run} 0001 evaluate-{suite}" for run, suite in SUITES.items()}
    desk.tab("Artifacts")
    desk.find("//a[contains(@href,'/artifacts/')][.//*[normalize-space(.)='scores-quick-tiny']]")

    populora("resume", str(folder / "quick"), "--generations", "2", "--plain")
    where = {"run_dirs": [str(folder)], "suite": "", "members": "best"}
    desk.api("PATCH", f"deployments/{deployment['id']}", {"parameters": where})
    assert night(desk, deployment).startswith("1 run evaluated on their own"), "only what went on since"
    later = evaluations(folder)
    assert later.keys() - first.keys() == {"quick 0002 evaluate-tiny"}
    assert {name: later[name] for name in first} == first


def night(desk: Desk, deployment: Any) -> str:
    """Let the cron fire, and wait for its run; what that says at its end."""

    def fired() -> list[Any]:
        """The runs that the cron started or soon will, without what was refused beside another."""
        soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        found = desk.runs(deployment_id={"any_": [deployment["id"]]}, expected_start_time={"before_": soon})
        return [each for each in found if each["auto_scheduled"] and each["state_type"] != "CANCELLED"]

    earlier = {each["id"] for each in fired()}
    new: list[Any] = []

    def ended() -> bool:
        new[:] = [each for each in fired() if each["id"] not in earlier]
        return any(each["end_time"] for each in new)

    with desk.looking_away():
        for _ in range(round(PATIENCE / HEARD)):
            if not new:  # nor will there be: the minute was over before the scheduler knew of it
                at = datetime.now(UTC) + timedelta(seconds=90)
                cron = {"cron": f"{at.minute} {at.hour} * * *", "timezone": "UTC"}
                desk.set_night(schedule=cron, active=True)
            with suppress(AssertionError):
                wait_for(ended, HEARD, ASKED)
                break
    desk.set_night(active=False)
    said = [str(each["state"]["message"]) for each in new if each["end_time"]]
    assert said, new
    return said[0]


@pytest.mark.parametrize("suite", ["", YARDSTICK])
def test_a_score_that_failed_is_retried_by_a_click(desk: Desk, home: Path, suite: str) -> None:
    run = fresh(home, "retried")
    shutil.copytree(made(home, "nights") / "quick", run)
    weights = list(run.glob("members/*/*/adapter_model.safetensors"))
    for path in weights:
        path.rename(path.with_suffix(".away"))
    name = f"evaluate {suite or 'own suite'}: {run.name}"
    desk.launch(
        "evaluate-nightly", "retry-form", named=name, run_dirs=str(run), suite=suite, members="solvers"
    )
    desk.open_run(name)
    desk.wait_state(name, "Failed")
    assert f"{run.name} could not be evaluated" in desk.run(name)["state"]["message"]
    for path in weights:
        path.with_suffix(".away").rename(path)
    desk.confirmed("Retry")
    wait_for(lambda: desk.run(name)["state_name"] != "Failed", PATIENCE, ASKED)
    desk.wait_state(name, "Completed")
    assert desk.run(name)["state"]["message"].startswith("1 run evaluated")
