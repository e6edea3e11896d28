"""The notebook in a real browser: it draws, and what is picked in it decides what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import DESK, MARKS, coloured, keep, notebook_of, screenshots, set_width
from conftest import PATIENCE, needs

from populora_core import open_run

waiting = pytest.importorskip("selenium.webdriver.support.ui", reason="selenium is not installed")

pytestmark = [needs("marimo", "notebook"), *MARKS, pytest.mark.foreign, pytest.mark.thorough]

DRAWN = """
return [...document.querySelectorAll('iframe')].map(
  frame => frame.contentDocument ? frame.contentDocument.querySelectorAll('figure.plot > svg').length : 0);
"""
HEIGHTS = """
const frames = [...document.querySelectorAll('iframe')];
return frames.map(f => [f.offsetHeight, f.contentDocument.documentElement.offsetHeight]);
"""
DARK = """
const drawn = [...document.querySelectorAll('iframe')].map(f => f.contentDocument?.querySelector('figure.plot'));
const light = figure => Number(getComputedStyle(figure.ownerDocument.body).color.match(/\\d+/)[0]) > 128;
return [document.body.classList.contains('dark'), drawn.filter(figure => figure).map(light)];
"""
FIND = """
const found = [];
const look = root => { for (const e of root.querySelectorAll('*')) {
  if (e.matches('select')) found.push(e);
  if (e.shadowRoot) look(e.shadowRoot);
} };
look(document);
return found;
"""


@pytest.fixture(scope="module")
def notebook(finished: Path) -> Iterator[str]:
    """The address of the notebook over a finished run."""
    with notebook_of(finished) as address:
        yield address


def test_the_notebook_draws_and_follows_what_is_picked(browser: Any, notebook: str, finished: Path) -> None:
    with open_run(finished) as run:
        members = [row["member_id"] for row in run.rows("SELECT member_id FROM members ORDER BY ALL")]
    wait = waiting.WebDriverWait(browser, PATIENCE)
    set_width(browser, DESK, 4000)
    browser.get(notebook)
    drawn = wait.until(
        lambda b: (found := b.execute_script(DRAWN)) and len(found) == 3 and all(found) and found
    )
    assert drawn[0] >= 3, "the plots that the report leads with"
    picks = wait.until(lambda b: (found := b.execute_script(FIND)) and len(found) >= 3 and found)
    options = {pick: [option.text for option in pick.find_elements("tag name", "option")] for pick in picks}
    pick = next(pick for pick, names in options.items() if set(members) <= set(names))
    waiting.Select(pick).select_by_visible_text(members[-1])
    wait.until(lambda b: members[-1] in _titles(b))
    keep(browser, screenshots() / "notebook.png", DESK)
    assert browser.execute_script("return document.querySelectorAll('.marimo-error').length") == 0
    wait.until(lambda b: all(abs(frame - page) <= 2 for frame, page in b.execute_script(HEIGHTS)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_notebook_is_as_light_or_dark_as_its_plots(browser: Any, notebook: str, scheme: str) -> None:
    with coloured(browser, scheme):
        wait = waiting.WebDriverWait(browser, PATIENCE)
        browser.get(notebook)
        dark, light_letters = wait.until(lambda b: (found := b.execute_script(DARK)) and found[1] and found)
        assert [dark, *set(light_letters)] == 2 * [scheme == "dark"]


def _titles(browser: Any) -> list[str]:
    shown: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('iframe')].map(f => f.contentDocument?.querySelector('h1')?.textContent)"
    )
    return shown
