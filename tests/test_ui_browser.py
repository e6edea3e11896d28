"""The Prefect UI of `populora ui` in a real browser, by clicks alone: start, kill, retry, cancel, resume.

The steps follow one another on one server, as they do for a person; the second try of one makes a run of its own.
Screenshots: see tests/browser.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import MARKS
from conftest import PATIENCE, alive, commits, ran, wait_for
from desk import ASKED, ROOT, YES, Desk, fresh, made

from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.processes import descendants

pytestmark = [*MARKS, pytest.mark.foreign, pytest.mark.sandbox, pytest.mark.thorough]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ui") / "runs"


def committed(run: Path, generation: int, stage: str) -> bool:
    return read_manifest(stage_dir(run, generation, stage)) is not None


def nothing_left(desk: Desk, run: Path, engine: int) -> None:
    """No process but those of the UI, no half-written file, no lock, no container of the run's process."""
    wait_for(lambda: len(living(desk)) <= 3)
    assert not list(run.rglob(".tmp-*")) and not (run / ".lock").exists()
    wait_for(lambda: f"-{engine}-" not in containers(), every=ASKED)  # the daemon removes it in its own time


def containers() -> str:
    """The labels of every sandbox container, which name the process that they belong to."""
    if shutil.which("docker") is None:
        return ""
    listed = ["docker", "ps", "--all", "--filter", "label=populora.sandbox", "--format", "{{.Labels}}"]
    return ran(listed).stdout


def living(desk: Desk) -> list[int]:
    return [pid for pid in descendants(desk.process.pid) if alive(pid)]


def test_the_printed_link_logs_in_and_whoever_has_no_key_is_asked_for_it_without_alarms(desk: Desk) -> None:
    assert desk.alarms() == []
    desk.wait_accessible()
    desk.browser.execute_script("localStorage.clear()")
    desk.browser.get(f"{desk.address}/work-pools")
    box = "//input[@type='password']"
    desk.do(box, lambda element: element.send_keys("a guess"))
    desk.button("Open", opens="//*[@role='alert'][contains(.,'not the key')]")
    desk.keep("door")
    desk.do(box, lambda element: (element.clear(), element.send_keys(desk.link.partition("#")[2])))
    desk.button("Open", opens="//a[normalize-space(.)='populora']")
    assert desk.browser.current_url == f"{desk.address}/work-pools"
    assert desk.alarms() == []
    desk.wait_accessible()


def test_a_killed_run_is_retried_and_finishes_with_its_finished_stages_reused(desk: Desk, runs: Path) -> None:
    run, given = fresh(runs, "first"), runs.parent / "auto.toml"
    # A retry has to know its run again by a configuration that differs in what the machine chose.
    given.write_text(f'extends = "{ROOT}/configs/quick.toml"\n[base]\ndtype = "auto"')
    desk.launch("train", "train-form", run_dir=str(run), config_file=str(given), generations=2)
    wait_for(lambda: committed(run, 1, "propose"))
    os.kill(desk.flow_process(), signal.SIGKILL)
    before = commits(run)
    assert "0001/evolve" not in before

    desk.open_run(f"{run.name} train")
    desk.wait_state(f"{run.name} train", "Crashed")
    desk.keep("crashed")
    log = desk.home / "notices.jsonl"
    wait_for(lambda: log.is_file() and log.read_text().endswith("\n"))
    notices = [said for said in map(json.loads, log.read_text().splitlines()) if "state" in said]
    (notice,) = (said for said in notices if said["parameters"]["run_dir"] == str(run))
    assert notice["state"] == "Crashed"

    desk.confirmed("Retry")
    desk.wait_state(f"{run.name} train", "Completed")
    desk.keep("completed")
    after = commits(run)
    assert {name for name in after if name.startswith("0002/")}
    assert all(after[name] == 1 for name in before), "what was committed is not made again"
    desk.browser.refresh()  # a page that hears late of the end asks for no more of the log
    desk.find("//*[contains(normalize-space(.),'generation 2/2 valid')]")
    assert desk.run(f"{run.name} g0000")["run_count"] == 1, "no flow is started for a finished generation"
    assert desk.run(f"{run.name} g0002")["state_name"] == "Completed"


def test_stages_and_what_they_did_are_seen_by_clicks(desk: Desk, runs: Path) -> None:
    run = made(runs, "first")
    desk.open_run(f"{run.name} g0002")
    desk.tab("Task Runs")
    desk.find(f"//*[contains(text(),'{run.name} g0002 solve')]")
    desk.keep("stages")
    desk.tab("Artifacts")
    desk.click(f"//a[contains(@href,'/artifacts/artifact/')][.//*[normalize-space(.)='{run.name}-grade']]")
    desk.find("//h2[normalize-space(.)='ratings']")
    members = desk.browser.find_elements("xpath", "//td[starts-with(normalize-space(.),'student-')]")
    assert members
    desk.keep("artifact")
    link = f"//a[normalize-space(.)='Report of {run.name}']"
    report = desk.do(link, lambda element: element.get_attribute("href"))
    assert httpx.get(report, timeout=PATIENCE).text == (run / "report.html").read_text()


def test_the_list_of_runs_opens_without_their_generations(desk: Desk) -> None:
    desk.browser.get(f"{desk.address}/runs?hide-subflows=true")
    desk.find("//a[normalize-space(.)='first train']")
    assert not desk.browser.find_elements("xpath", "//a[normalize-space(.)='first g0002']")


def test_a_quick_run_is_a_click_and_plays_the_quick_preset_in_a_folder_of_its_own(desk: Desk) -> None:
    kept, known = set((ROOT / "runs").glob("*-quick")), desk.runs()
    desk.browser.get(f"{desk.address}/deployments")
    desk.click("//a[normalize-space(.)='train' and contains(@class,'deployment-list__name')]")
    for _ in range(3):  # a page that draws itself again loses clicks
        desk.button("Run", opens="//button[normalize-space(.)='Quick run']")
        desk.button("Quick run")
        with suppress(AssertionError):
            wait_for(lambda: len(desk.runs()) > len(known), 60, ASKED)
            break
    wait_for(lambda: set((ROOT / "runs").glob("*-quick")) > kept, every=ASKED)
    (run,) = set((ROOT / "runs").glob("*-quick")) - kept
    try:
        desk.open_run(f"{run.name} train")
        desk.wait_state(f"{run.name} train", "Completed")
        assert committed(run, 3, "evolve") and (run / "report.html").is_file()
    finally:
        shutil.rmtree(run)


def test_a_run_that_ends_before_its_cancelling_is_confirmed_stays_as_it_ended(desk: Desk, runs: Path) -> None:
    run = fresh(runs, "late")
    shutil.copytree(made(runs, "first"), run)
    desk.launch("resume", "resume-form-late", run_dir=str(run), generations=3)
    wait_for(lambda: committed(run, 3, "match"))
    engine, name = desk.flow_process(), f"{run.name} resume"
    os.kill(engine, signal.SIGSTOP)  # until the dialogue is open
    try:
        desk.open_run(name)
        desk.button("Cancel", opens=YES)
    finally:
        os.kill(engine, signal.SIGCONT)
    with desk.looking_away():
        wait_for(lambda: desk.run(name)["state_name"] == "Completed", PATIENCE)
    desk.confirm()  # most often before the process has gone
    late = ["COMPLETED", "CANCELLING", "COMPLETED"]
    wait_for(lambda: desk.states(name)[-3:] == late, PATIENCE, ASKED)
    wait_for(lambda: not alive(engine))
    desk.wait_state(name, "Completed")


def test_a_cancelled_run_leaves_nothing_behind_and_goes_on_by_retry(desk: Desk, runs: Path) -> None:
    run = fresh(runs, "second")
    desk.launch("train", "train-form-second", run_dir=str(run), preset="quick", generations=50)
    wait_for(lambda: committed(run, 1, "propose"))
    _cancelled(desk, run)
    desk.keep("cancelled")
    before = commits(run)
    desk.confirmed("Retry")
    wait_for(lambda: len(commits(run)) > len(before))
    _cancelled(desk, run)
    after = commits(run)
    assert all(after[name] == 1 for name in before), "what was committed is not made again"


def _cancelled(desk: Desk, run: Path) -> None:
    """Cancel a run's training by clicks, and see all of it end."""
    engine = desk.flow_process()
    below = [engine, *descendants(engine)]
    desk.open_run(f"{run.name} train")
    desk.confirmed("Cancel")
    desk.wait_state(f"{run.name} train", "Cancelled")
    wait_for(lambda: not any(map(alive, below)))
    nothing_left(desk, run, engine)


def test_a_reviewed_run_waits_without_a_process_until_a_person_resumes_it(desk: Desk, runs: Path) -> None:
    run = fresh(runs, "third")
    desk.launch("train", "train-form-third", run_dir=str(run), preset="quick", generations=2, review=True)
    wait_for(lambda: committed(run, 1, "match"))
    engine = desk.flow_process()
    desk.open_run(f"{run.name} train")
    desk.wait_state(f"{run.name} train", "Suspended")
    desk.keep("suspended")
    nothing_left(desk, run, engine)
    assert committed(run, 2, "update") and not committed(run, 2, "evolve")
    desk.confirmed("Resume")
    desk.wait_state(f"{run.name} train", "Completed")
    assert set(commits(run).values()) == {1}, "nothing is made twice"
    assert len(desk.runs(name={"any_": [f"{run.name} g0002"]})) == 1


def test_a_stage_is_made_again_from_the_resume_form(desk: Desk, runs: Path) -> None:
    run = made(runs, "first")
    old = read_manifest(stage_dir(run, 1, "solve"))
    assert old is not None
    # A second try of this test needs another seed: what was made with one is not made with it again.
    again: dict[str, Any] = {"redo_generation": 1, "redo_stage": "solve", "redo_seed": 6 + old.attempt}
    desk.launch("resume", "resume-form", run_dir=str(run), truncate=True, **again)
    desk.open_run(f"{run.name} resume")
    desk.wait_state(f"{run.name} resume", "Completed")
    desk.keep("resumed")
    new = read_manifest(stage_dir(run, 1, "solve"))
    assert new is not None
    assert new.attempt == old.attempt + 1 and new.seed != old.seed
    assert commits(run)["0001/propose"] == 1, "what came before stays"
    assert committed(run, 2, "evolve") and list((run / "superseded").rglob("manifest.json"))
    assert desk.run(f"{run.name} g0001 again from solve")["state_name"] == "Completed"
