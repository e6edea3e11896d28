"""The Prefect UI of `populora ui` in a real browser, by clicks alone: start, kill, retry, cancel, resume.

The steps follow one another on one server, as they do for a person; the second try of one makes a run of its own.
Screenshots: see tests/browser.py.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from browser import DESK, MARKS, REDRAWN, chromium, keep, screenshots, set_width
from conftest import PATIENCE, alive, commits, wait_for
from prefect_key import PrefectKey

from populora_core.store.artifacts import read_manifest, stage_dir
from populora_core.support.processes import descendants

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [*MARKS, pytest.mark.foreign, pytest.mark.sandbox, pytest.mark.thorough]

T = TypeVar("T")
REDRAWS = 100  # of a page, while one thing is done on it
ANSWERS = 60.0  # within so many seconds a page shows what a click opens, if it heard it
ASKED = 0.5  # every so many seconds the server is asked, which has work of its own
HEARD = 30.0  # within so many seconds the server's scheduler takes note of a new time, unless it was too busy
TITLES = {
    "run_dir": "Run folder",
    "preset": "Preset",
    "generations": "Generations",
    "review": "Review replacements",
    "redo_generation": "Redo: generation",
    "redo_stage": "Redo: stage",
    "redo_seed": "Redo: seed",
    "truncate": "Redo: set later generations aside",
}
PROPERTY = (
    "//div[contains(@class,'p-label') and contains(@class,'schema-form-property')]"
    "[.//span[@class='schema-form-property__label' and {}]]"
)


class Desk:
    """`populora ui`, and the browser that a person sits at."""

    def __init__(
        self, process: subprocess.Popen[str], address: str, key: str, home: Path, browser: Any
    ) -> None:
        self.process, self.address, self.home, self.browser = process, address, home, browser
        self.auth = PrefectKey(f"{address}/api", key)
        self._log_in(key)

    def _log_in(self, key: str) -> None:
        """Give the page the key that it asks for; the browser keeps it."""
        self.browser.get(self.address)
        self.do("//input[@type='password']", lambda box: box.send_keys(key))
        self.button("Login", opens="//a[contains(@href,'/deployments')]")

    def find(self, xpath: str, seconds: float = PATIENCE) -> Any:
        """The first visible element, once it is there."""
        found: list[Any] = []

        def there() -> bool:
            try:
                found[:] = [e for e in self.browser.find_elements("xpath", xpath) if e.is_displayed()]
            except REDRAWN:
                return False
            return bool(found)

        wait_for(there, seconds)
        return found[0]

    def do(self, xpath: str, action: Callable[[Any], T]) -> T:
        """Do something with the first visible element, again where the page draws itself again meanwhile."""
        for _ in range(REDRAWS):
            with suppress(*REDRAWN):
                return action(self.find(xpath))
            time.sleep(ASKED)
        raise AssertionError(f"is drawn again all the time: {xpath}")

    def click(self, xpath: str) -> None:
        """Click once it can be clicked."""
        self.do(xpath, lambda element: element.click())

    def button(self, name: str, opens: str | None = None) -> None:
        """Press a button, again until there is what it opens: a page that draws itself again loses clicks."""
        xpath = f"//button[normalize-space(.)='{name}']"
        for _ in range(round(PATIENCE / ANSWERS)):
            self.click(xpath)
            if opens is None:
                return
            with suppress(AssertionError):
                self.find(opens, ANSWERS)
                return
        raise AssertionError(f"{name} opens nothing")

    def tab(self, name: str) -> None:
        self.click(f"//*[contains(@class,'p-tab')][normalize-space(.)='{name}']")

    def confirmed(self, name: str) -> None:
        """Press a button, and say yes in the dialogue that it opens."""
        yes = "//*[contains(@class,'p-modal__footer')]//button[normalize-space(.)!='Close']"
        self.button(name, opens=yes)
        self.click(yes)

    def keep(self, name: str) -> None:
        time.sleep(1.0)  # fades and lazy parts
        keep(self.browser, screenshots() / f"ui-{name}.png", DESK)

    def launch(self, deployment: str, shot: str, **parameters: str | int | bool) -> None:
        """Fill in the form of a deployment and submit it."""
        self.browser.get(f"{self.address}/deployments")
        self.click(f"//a[normalize-space(.)='{deployment}' and contains(@class,'deployment-list__name')]")
        self.button("Run", opens="//button[normalize-space(.)='Custom run']")
        self.button("Custom run")
        for name, value in parameters.items():
            self._fill(TITLES[name], value)
        self.keep(shot)
        self._submit(f"{Path(str(parameters['run_dir'])).name} {deployment}")

    def _submit(self, name: str) -> None:
        """Send the form, again unless the server has the run; a page that draws itself again loses clicks."""
        for _ in range(3):
            self.button("Submit")
            with suppress(AssertionError):
                wait_for(lambda: self.run(name) is not None, 90, ASKED)
                return
        raise AssertionError(f"the form of {name} was not sent")

    def _fill(self, name: str, value: str | int | bool) -> None:
        place = PROPERTY.format(f"(normalize-space(.)='{name}' or normalize-space(.)='{name} (Optional)')")
        self.find(place)
        if value is True:
            self.click(f"{place}//label[contains(@class,'p-toggle')]")
            return
        for kind in ("int", "str", "enum", "literal"):
            choice = f"{place}//button[normalize-space(.)='{kind}']"
            if self.browser.find_elements("xpath", choice):
                self.click(choice)

        def enter(box: Any) -> None:
            box.clear()
            box.send_keys(str(value))

        box = (
            f"{place}//*[self::textarea or self::input or self::select[not(contains(@class,'placeholder'))]]"
        )
        if self.do(box, lambda element: element.tag_name) == "select":
            self.click(f"{place}//option[@value='{value}' or normalize-space(.)='{value}']")
        else:
            self.do(box, enter)

    def open_run(self, name: str) -> None:
        """Go to a flow run's page by the list of runs."""
        wait_for(lambda: self.run(name) is not None, PATIENCE, ASKED)
        self.browser.get(f"{self.address}/runs")
        self.click(f"//a[normalize-space(.)='{name}']")

    def wait_state(self, name: str, state: str) -> None:
        """Until the open page of a run says so."""
        with self.looking_away():
            wait_for(lambda: (self.run(name) or {}).get("state_name") in (state, "Failed"), PATIENCE, ASKED)
        assert self.run(name)["state_name"] == state, self.run(name)
        self.find(f"//*[contains(@class,'state-badge')][normalize-space(.)='{state}']")

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """Have another tab before the open page: one in view draws a run's graph all the time, by half a core."""
        page = self.browser.current_window_handle
        self.browser.switch_to.new_window("tab")
        try:
            yield
        finally:
            self.browser.close()
            self.browser.switch_to.window(page)

    def run(self, name: str) -> Any:
        """What the server knows of the newest flow run of that name."""
        found = self.runs(name={"any_": [name]})
        return found[0] if found else None

    def runs(self, **where: Any) -> list[Any]:
        asked = {"flow_runs": where, "sort": "START_TIME_DESC"}
        return self.api("POST", "flow_runs/filter", asked).json()

    def api(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Ask the server, again where it is too busy: SQLite may be locked for a minute after a client was killed."""
        for patience in (10, 70, 70):
            try:
                answer = httpx.request(
                    method, f"{self.address}/api/{path}", json=body, timeout=patience, auth=self.auth
                )
                if answer.is_success:
                    return answer
            except httpx.TransportError:
                continue
            time.sleep(2.0)  # it has answered at once that it is too busy
        raise AssertionError(f"{method} {path} was not answered")

    def nightly(self) -> Any:
        """What the server knows of the deployment that evaluates at night."""
        return self.api("GET", "deployments/name/evaluate/evaluate-nightly").json()

    def set_night(self, **change: Any) -> None:
        """Change the schedule of that deployment; Prefect forgets the runs that were to come of it."""
        deployment = self.nightly()
        (schedule,) = deployment["schedules"]
        self.api("PATCH", f"deployments/{deployment['id']}/schedules/{schedule['id']}", change)

    def flow_process(self) -> int:
        """The process of the only flow run under way, which comes before a child that it has only just forked."""
        return next(pid for pid in descendants(self.process.pid) if "prefect.engine" in command(pid))


def command(pid: int) -> list[str]:
    """What the process was started by; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def start(home: Path) -> tuple[subprocess.Popen[str], str, str]:
    """`populora ui` on ports that are free, its address, and its key.

    Only the program can tell that they are free, since it takes them seconds later. They are none of those that the
    kernel hands to whoever connects.
    """
    own = {
        "PREFECT_HOME": str(home),
        # By default the server looks for changed schedules once a minute, and the next minute would be missed.
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",
    }
    kernels = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.SystemRandom().sample(range(10_000, max(kernels, 20_000) - 1, 2), 5):
        process = subprocess.Popen(
            [sys.executable, "-m", "populora_core.commands", "ui", "--port", str(port)],
            cwd=ROOT,
            env=os.environ | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        told = "".join(process.stdout.readline() for _ in range(6))
        address = f"http://127.0.0.1:{port}"
        if f"\n{address}/" in told and (key := re.search(r"the key (\S+),", told)):
            return process, address, key[1]
        process.terminate()
        told += process.communicate(timeout=90)[0]
        assert re.search("is taken|already in use", told), told
    raise AssertionError("every port is taken")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    home = tmp_path_factory.mktemp("prefect")
    process, address, key = start(home)
    try:
        with chromium() as browser:
            set_width(browser, DESK)
            desk = Desk(process, address, key, home, browser)
            desk.set_night(active=False)  # or else it evaluates the repository's own runs at three o'clock
            yield desk
        below = descendants(process.pid)
        assert len(below) >= 2
        process.send_signal(signal.SIGTERM)
        process.wait(90)
        assert not any(map(alive, below)), "populora ui leaves nothing behind"
    finally:
        process.terminate()
        process.wait(90)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ui") / "runs"


def fresh(runs: Path, name: str) -> Path:
    """Where a run goes: where an earlier try of the test has left one, beside it, and that one is taken away."""
    left = sorted(runs.glob(f"{name}*"))
    for folder in left:
        shutil.rmtree(folder)
    return runs / (f"{left[-1].name}-again" if left else name)


def made(runs: Path, name: str) -> Path:
    """The run that an earlier test made."""
    (run,) = runs.glob(f"{name}*")
    return run


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
    return subprocess.run(listed, capture_output=True, text=True).stdout


def living(desk: Desk) -> list[int]:
    return [pid for pid in descendants(desk.process.pid) if alive(pid)]


def test_a_killed_run_is_retried_and_finishes_with_its_finished_stages_reused(desk: Desk, runs: Path) -> None:
    run = fresh(runs, "first")
    desk.launch("train", "train-form", run_dir=str(run), preset="quick", generations=2)
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


def test_a_cancelled_run_leaves_nothing_behind(desk: Desk, runs: Path) -> None:
    run = fresh(runs, "second")
    desk.launch("train", "train-form-second", run_dir=str(run), preset="quick", generations=50)
    wait_for(lambda: committed(run, 1, "propose"))
    engine = desk.flow_process()
    below = [engine, *descendants(engine)]
    desk.open_run(f"{run.name} train")
    desk.confirmed("Cancel")
    desk.wait_state(f"{run.name} train", "Cancelled")
    desk.keep("cancelled")
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
    again: dict[str, Any] = {"redo_generation": 1, "redo_stage": "solve", "redo_seed": 7}
    desk.launch("resume", "resume-form", run_dir=str(run), truncate=True, **again)
    desk.open_run(f"{run.name} resume")
    desk.wait_state(f"{run.name} resume", "Completed")
    desk.keep("resumed")
    new = read_manifest(stage_dir(run, 1, "solve"))
    assert old is not None and new is not None
    assert new.attempt == old.attempt + 1 and new.seed != old.seed
    assert commits(run)["0001/propose"] == 1, "what came before stays"
    assert committed(run, 2, "evolve") and list((run / "superseded").rglob("manifest.json"))
    assert desk.run(f"{run.name} g0001 again from solve")["state_name"] == "Completed"


def test_the_nightly_evaluation_fires_by_itself_and_measures_only_what_changed(
    desk: Desk, runs: Path
) -> None:
    run, suite = made(runs, "first"), runs.parent / "small.toml"
    text = (ROOT / "configs/suites/tiny.toml").read_text()
    suite.write_text(re.sub("validation = 0.5", "validation = 0.95", text))
    deployment = desk.nightly()
    (schedule,) = deployment["schedules"]
    assert (schedule["slug"], schedule["schedule"]["timezone"]) == ("nightly", "UTC")
    where = {"run_dirs": [str(runs)], "suite": str(suite), "members": "best"}
    desk.api("PATCH", f"deployments/{deployment['id']}", {"parameters": where})

    def fired() -> list[Any]:
        """The runs that the cron started or soon will, without what was refused beside another."""
        soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        found = desk.runs(deployment_id={"any_": [deployment["id"]]}, expected_start_time={"before_": soon})
        return [each for each in found if each["auto_scheduled"] and each["state_type"] != "CANCELLED"]

    def night() -> str:
        """Let the cron fire, and wait for its run; what that says at its end."""
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
        said = [each["state"]["message"] for each in new if each["end_time"]]
        assert said, new
        return said[0]

    def evaluations() -> list[str]:
        return sorted(
            str(path.parent.relative_to(runs))
            for path in runs.glob("*/generations/*/evaluate-tiny/manifest.json")
        )

    assert night().startswith("3 runs evaluated")
    first = evaluations()
    assert [name.split("/")[0] for name in first] == sorted(path.name for path in runs.iterdir())
    assert first[0] == f"{run.name}/generations/0002/evaluate-tiny"
    written = {name: (runs / name / "manifest.json").stat().st_mtime_ns for name in first}

    subprocess.run(
        [sys.executable, "-m", "populora_core.commands", "resume", str(run), "--generations", "3", "--plain"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert night().startswith("1 runs evaluated"), "only what went on since"
    assert evaluations() == [*first[:1], f"{run.name}/generations/0003/evaluate-tiny", *first[1:]]
    assert {name: (runs / name / "manifest.json").stat().st_mtime_ns for name in first} == written
