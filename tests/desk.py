"""`populora ui` and the browser that a person sits at: what the tests of Prefect's pages do by clicks."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any, TypeVar

import httpx
from browser import DESK, REDRAWN, SERIOUS, accessibility_faults, chromium, keep, screenshots, set_width
from conftest import PATIENCE, alive, wait_for
from prefect_key import PrefectKey

from populora_core.support.processes import descendants

ROOT = Path(__file__).resolve().parent.parent

T = TypeVar("T")
REDRAWS = 100  # of a page, while one thing is done on it
ANSWERS = 60.0  # within so many seconds a page shows what a click opens, if it heard it
ASKED = 0.5  # every so many seconds the server is asked, which has work of its own
TITLES = {
    "run_dir": "Run folder",
    "preset": "Preset",
    "config_file": "Configuration file",
    "generations": "Generations",
    "review": "Review replacements",
    "redo_generation": "Redo: generation",
    "redo_stage": "Redo: stage",
    "redo_seed": "Redo: seed",
    "truncate": "Redo: set later generations aside",
    "run_dirs": "Run folders",
    "suite": "Suite",
    "members": "Members",
}
YES = "//*[contains(@class,'p-modal__footer')]//button[normalize-space(.)!='Close']"  # of an open dialogue
ALARMS = (
    "//*[contains(@class,'p-toast')][normalize-space(.)!='']"
    " | //*[contains(@class,'deployment-status-badge--not-ready')]"
)
PROPERTY = (
    "//div[contains(@class,'p-label') and contains(@class,'schema-form-property')]"
    "[.//span[@class='schema-form-property__label' and {}]]"
)


class Desk:
    """`populora ui`, and the browser that a person sits at."""

    def __init__(
        self, process: subprocess.Popen[str], link: str, index: str, home: Path, browser: Any
    ) -> None:
        self.process, self.link, self.index, self.home, self.browser = process, link, index, home, browser
        self.address, key = link.split("/door#")
        self.auth = PrefectKey(f"{self.address}/api", key)
        self.browser.get(link)
        self.find("//a[normalize-space(.)='train']")

    def shown(self, xpath: str) -> list[Any]:
        """The elements that are visible now."""
        return [each for each in self.browser.find_elements("xpath", xpath) if each.is_displayed()]

    def alarms(self) -> list[str]:
        """The alarms of the page: messages that popped up, and deployments that no one runs."""
        return [each.text for each in self.shown(ALARMS)]

    def wait_accessible(self) -> None:
        """Wait until axe finds nothing serious on the page: its controls get their names as they come."""
        wait_for(lambda: accessibility_faults(self.browser, SERIOUS) == [], every=ASKED)

    def find(self, xpath: str, seconds: float = PATIENCE) -> Any:
        """The first visible element, once it is there."""
        found: list[Any] = []

        def there() -> bool:
            try:
                found[:] = self.shown(xpath)
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

    def insist(self, xpath: str, heard: Callable[[], bool], seconds: float = ANSWERS) -> None:
        """Click, again until the page shows that it heard: one that draws itself again loses clicks."""

        def surely() -> bool:
            try:
                return heard()
            except REDRAWN:
                return False

        for _ in range(round(PATIENCE / ANSWERS)):
            self.click(xpath)
            with suppress(AssertionError):
                wait_for(surely, seconds, ASKED)
                return
        raise AssertionError(f"is never heard: a click on {xpath}")

    def button(self, name: str, opens: str | None = None) -> None:
        """Press a button, until there is what it opens if that is named."""
        xpath = f"//button[normalize-space(.)='{name}']"
        if opens is None:
            self.click(xpath)
        else:
            self.insist(xpath, lambda: bool(self.shown(opens)))

    def tab(self, name: str) -> None:
        self.click(f"//*[contains(@class,'p-tab')][normalize-space(.)='{name}']")

    def confirmed(self, name: str) -> None:
        """Press a button, and say yes in the dialogue that it opens."""
        self.button(name, opens=YES)
        self.confirm()

    def confirm(self) -> None:
        """Say yes in the open dialogue."""
        self.insist(YES, lambda: not self.shown(YES))

    def keep(self, name: str) -> None:
        time.sleep(1.0)  # fades and lazy parts
        keep(self.browser, screenshots() / f"ui-{name}.png", DESK)

    def launch(self, deployment: str, shot: str, named: str = "", **parameters: str | int | bool) -> None:
        """Fill in the form of a deployment and submit it.

        Args:
            named: what the flow run is called then; empty for the run's name and the deployment's.
        """
        self.browser.get(f"{self.address}/deployments")
        self.click(f"//a[normalize-space(.)='{deployment}' and contains(@class,'deployment-list__name')]")
        self.button("Run", opens="//button[normalize-space(.)='Custom run']")
        self.button("Custom run")
        for name, value in parameters.items():
            self._fill(TITLES[name], value)
        self.keep(shot)
        sent = named or f"{Path(str(parameters['run_dir'])).name} {deployment}"
        self.insist("//button[normalize-space(.)='Submit']", lambda: self.run(sent) is not None, 90)

    def _fill(self, name: str, value: str | int | bool) -> None:
        place = PROPERTY.format(f"(normalize-space(.)='{name}' or normalize-space(.)='{name} (Optional)')")
        self.find(place)
        if value is True:
            self.click(f"{place}//label[contains(@class,'p-toggle')]")
            return
        for kind in ("int", "str", "enum", "literal", "type"):
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
        runs = f"{self.address}/runs"
        self.browser.get(runs)
        self.insist(f"//a[normalize-space(.)='{name}']", lambda: self.browser.current_url != runs)

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

    def states(self, name: str) -> list[str]:
        """The types of the states that a flow run has been in, one after another."""
        past = self.api("GET", f"flow_run_states/?flow_run_id={self.run(name)['id']}").json()
        return [state["type"] for state in sorted(past, key=lambda state: str(state["timestamp"]))]

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


def command(pid: int) -> list[str]:
    """What the process was started by; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def populora(*words: object) -> None:
    """Have a command done in a process of its own, beside the desk."""
    line = [sys.executable, "-m", "populora_core.commands", *map(str, words)]
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)


def start(home: Path) -> tuple[subprocess.Popen[str], str, str]:
    """`populora ui` on ports that are free, the link that logs in, and that of the index of runs.

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
        links = re.findall(r"http://\S+", told)
        if links and links[0].startswith(f"http://127.0.0.1:{port}/door#"):
            return process, links[0], links[1]
        process.terminate()
        told += process.communicate(timeout=PATIENCE)[0]
        assert re.search("is taken|already in use", told), told
    raise AssertionError("every port is taken")


@contextmanager
def at_the_desk(home: Path) -> Iterator[Desk]:
    """A desk whose Prefect keeps what it has in a folder; at the end nothing of it is left."""
    process, link, index = start(home)
    try:
        with chromium() as browser:
            set_width(browser, DESK)
            desk = Desk(process, link, index, home, browser)
            desk.set_night(active=False)  # or else it evaluates the repository's own runs at three o'clock
            yield desk
        below = descendants(process.pid)
        assert len(below) >= 2
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        assert not any(map(alive, below)), "populora ui leaves nothing behind"
    finally:
        process.terminate()
        process.wait(PATIENCE)
