"""Pictures of everything that a person opens, of a run that is launched by its form, watched, and read.

What is ours is taken on a desk and on a phone, light and dark, and is no wider than the phone. The folder is that of
tests/browser.py; README and docs/tutorial.md show six of them, and `make pictures` puts them where they look.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from browser import (
    DESK,
    MARKS,
    PHONE,
    chromium,
    coloured,
    keep,
    notebook_of,
    overhang,
    screenshots,
    set_width,
)
from conftest import ran, wait_for
from desk import ASKED, ROOT, Desk, at_the_desk, fresh, populora

from flows.reports import index_path, serve_reports
from populora_core.report.write import REPORT, write_report
from populora_core.store.manifest import read_manifest, stage_dir

pytestmark = [*MARKS, pytest.mark.foreign, pytest.mark.sandbox, pytest.mark.thorough]

KEY = "a key"
# Where pictures are taken for people, tests run in one process; the pages hold as well with less on them.
GENERATIONS, FORKED = (2, 1) if {"CI", "PYTEST_XDIST_WORKER"} & os.environ.keys() else (6, 4)
MIDWAY = GENERATIONS // 2
RUN = f"""
extends = "{ROOT / "configs" / "frontier.toml"}"

[run]
generations = {GENERATIONS}

[propose]
per_type = 10

[evolve]
every = 3
minimum_age = 3

[evaluate]
report_every = 2
report_problems = 40
yardstick = 24
"""
# Prefect's own pages are dark until a person changes that, and a graph keeps its colours; ours ask the browser.
SCHEME = "localStorage.setItem('color-scheme', JSON.stringify(arguments[0])); "
PREFECTS = SCHEME + "window.left = true; location.reload()"
DRAWN = 4.0  # seconds for a page of Prefect's to draw a run's graph and log again
COLOURED = """
const there = !window.left && document.body?.innerText.length > 100;
return there && document.documentElement.classList.contains(arguments[0]);
"""
GROUND = "return getComputedStyle(document.body).backgroundColor"
# As from the project's folder.
SHORTENED = """
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) walk.currentNode.data = walk.currentNode.data.replaceAll(arguments[0], 'runs');
"""
MIXED = """
const mixed = [...document.querySelectorAll('details.sample')].find(
  sample => sample.querySelector('.right') && sample.querySelector('.other'));
mixed.open = true, mixed.id = 'mixed';
"""
OPENED = "document.querySelectorAll('details.section').forEach(d => { d.open = true })"
TALL = 1400  # so that there is room for a log below the graph of a run
FLAT = 520  # a graph alone


def take(browser: Any, name: str, settle: float = 1.0, height: int = 900) -> None:
    """Four pictures of the open page, which is ours."""
    for scheme in ("light", "dark"):
        with coloured(browser, scheme):
            _two(browser, f"{name}-{{}}-{scheme}.png", settle, height)
    set_width(browser, DESK)


def _two(browser: Any, name: str, settle: float = 1.0, height: int = 900) -> None:
    for width in (DESK, PHONE):
        set_width(browser, width, height)
        time.sleep(settle)  # fades and lazy parts
        _keep(browser, name.format(width), width)
        assert overhang(browser) <= 0, f"{name} at {width} pixels"


def _keep(browser: Any, name: str, width: int) -> None:
    keep(browser, screenshots() / name, width)
    assert len(browser.find_element("tag name", "body").text) > 100, name


def take_prefects(browser: Any, name: str, scheme: str = "dark", width: int = DESK) -> None:
    """A picture of the open page, which is Prefect's."""
    browser.execute_script(PREFECTS, scheme)
    wait_for(partial(browser.execute_script, COLOURED, scheme), every=ASKED)
    set_width(browser, width, TALL if width == DESK else 900)
    time.sleep(DRAWN)
    _keep(browser, f"{name}-{width}-{scheme}.png", width)
    set_width(browser, DESK)


def take_first_screen(desk: Desk) -> None:
    """Four pictures of where the printed link leads, opened again for each: a list of Prefect's may hang if resized."""
    browser = desk.browser
    grounds: dict[str, str] = {}
    for scheme, width in product(("light", "dark"), (DESK, PHONE)):
        browser.execute_script(SCHEME, scheme)
        browser.get("about:blank")
        set_width(browser, width)
        browser.get(desk.link)
        wait_for(partial(browser.execute_script, COLOURED, scheme), every=ASKED)
        time.sleep(1.0)  # fades and lazy parts
        keep(browser, screenshots() / f"prefect-first-screen-{width}-{scheme}.png", width)
        assert desk.alarms() == [] and overhang(browser) <= 0, f"the first screen at {width} pixels"
        grounds[scheme] = browser.execute_script(GROUND)
    assert grounds["light"] != grounds["dark"]
    browser.get("about:blank")
    set_width(browser, DESK)


def show(browser: Any, address: str, name: str) -> None:
    """Open a page in either scheme, since some pages ask for it once, and take it."""
    for scheme in ("light", "dark"):
        with coloured(browser, scheme):
            browser.get(address)
            browser.execute_script("localStorage.clear()")
            browser.refresh()
            _two(browser, f"{name}-{{}}-{scheme}.png")
    set_width(browser, DESK)


def cut(browser: Any, name: str, selector: str, folder: Path) -> None:
    """One picture of a part of the open page, for the tutorial; the folder of runs is called `runs`."""
    browser.execute_script(SHORTENED, str(folder))
    keep(browser, screenshots() / f"tutorial-{name}.webp", DESK, selector)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was launched by its form and watched to its end; each try has a folder of runs of its own."""
    runs = tmp_path_factory.mktemp("pictures") / "runs"
    runs.mkdir()
    run, given = runs / "first", runs.parent / "first.toml"
    given.write_text(RUN)
    with at_the_desk(tmp_path_factory.mktemp("prefect")) as desk:
        take_first_screen(desk)
        desk.launch("train", "train-form", run_dir=str(run), config_file=str(given))
        _watch(desk, run)
        given.write_text("[solve]\natempts = 4\n")
        desk.launch("train", "train-form-refused", run_dir=str(runs / "refused"), config_file=str(given))
        desk.open_run("refused train")
        desk.wait_state("refused train", "Failed")
        wait_for(lambda: any("Did you mean solve.attempts?" in line for line in _log(desk, "refused train")))
        desk.browser.refresh()
        desk.find("//*[contains(@class,'state-badge')]")
        take_prefects(desk.browser, "prefect-failed", "light")
        assert not any("Traceback" in line for line in _log(desk, "refused train")), "its message says it all"
        desk.browser.get(f"{desk.address}/deployments")
        desk.click("//a[normalize-space(.)='train' and contains(@class,'deployment-list__name')]")
        desk.button("Run", opens="//button[normalize-space(.)='Custom run']")
        desk.button("Custom run")
        desk.find("//span[@class='schema-form-property__label']")
        take_prefects(desk.browser, "prefect-form", "light", PHONE)
    return run


def _log(desk: Desk, name: str) -> list[str]:
    """The lines of a flow run's log that the server has so far."""
    asked = {"logs": {"flow_run_id": {"any_": [desk.run(name)["id"]]}}}
    return [line["message"] for line in desk.api("POST", "logs/filter", asked).json()]


def _watch(desk: Desk, run: Path) -> None:
    """The page of a run in the midst of it, and at its end."""
    desk.open_run("first train")
    desk.wait_state("first train", "Running")
    with desk.looking_away():
        wait_for(lambda: read_manifest(stage_dir(run, MIDWAY, "evolve")) is not None)
    desk.browser.refresh()  # or else the graph shows its beginning alone
    desk.find("//*[contains(@class,'state-badge')]")
    take_prefects(desk.browser, "prefect-midway")
    set_width(desk.browser, DESK, TALL)
    cut(desk.browser, "prefect", "body", run.parent)
    desk.wait_state("first train", "Completed")
    desk.browser.refresh()
    desk.find("//*[contains(@class,'state-badge')]")
    take_prefects(desk.browser, "prefect-finished", "light")
    desk.open_run(f"first g{MIDWAY:04d}")
    set_width(desk.browser, DESK, FLAT)
    time.sleep(DRAWN)
    cut(desk.browser, "generation", "body", run.parent)
    set_width(desk.browser, DESK)
    desk.open_run("first train")
    desk.tab("Artifacts")
    desk.click("//a[contains(@href,'/artifacts/artifact/')][.//*[normalize-space(.)='first-run']]")
    desk.find("//h2[normalize-space(.)='What to look at']")
    take_prefects(desk.browser, "prefect-summary", "dark", PHONE)


@pytest.fixture(scope="module")
def forked(first: Path) -> Path:
    """The same run from two thirds on, with larger steps."""
    other = fresh(first.parent, "larger-steps")
    populora("fork", first, "--generation", FORKED, "--to", other, "--set", "update.learning_rate=0.01")
    populora("resume", other, "--plain")
    return other


@pytest.fixture(scope="module")
def browser(first: Path) -> Iterator[Any]:
    """A browser of its own, after Prefect's has ended."""
    with chromium() as driver:
        yield driver


def test_the_report(browser: Any, first: Path) -> None:
    show(browser, (first / REPORT).as_uri(), "report")
    cut(browser, "headline", "header", first.parent)
    cut(browser, "lead", "section", first.parent)
    browser.execute_script(OPENED)
    browser.execute_script(MIXED)
    cut(browser, "problem", "#mixed", first.parent)
    take(browser, "report-open")


def test_a_comparison_and_the_index_of_runs(browser: Any, first: Path, forked: Path) -> None:
    output = write_report([first, forked], first.parent / "both.html")
    show(browser, output.as_uri(), "comparison")
    with serve_reports("127.0.0.1", 0, KEY, first.parent) as address:
        show(browser, address + index_path(KEY, first.parent), "index")
        cut(browser, "index", "table", first.parent)
        browser.find_element("link text", "first").click()
        assert "first" in browser.title


def test_the_notebook(browser: Any, first: Path) -> None:
    pytest.importorskip(
        "marimo", reason="the extra `notebook` is not installed: pip install -e '.[notebook]'"
    )
    with notebook_of(first) as address:
        browser.get(address)
        wait_for(lambda: len(browser.find_elements("tag name", "iframe")) == 3, every=0.5)
        take(browser, "notebook", settle=5.0, height=4000)


@pytest.mark.parametrize("page", ["index", "tutorial", "commands"])
def test_the_site(browser: Any, site: Path, page: str) -> None:
    show(browser, (site / f"{page}.html").as_uri(), f"site-{page}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install -e '.[site]'")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    ran(command, cwd=ROOT, check=True)
    return target
