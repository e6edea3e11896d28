"""Pages that a stranger sees first, in a real browser: README's picture, the page of a whole study, the index of runs.

Screenshots: see tests/browser.py.
"""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from browser import (
    DESK,
    MARKS,
    PHONE,
    accessibility_faults,
    coloured,
    keep,
    overhang,
    screenshots,
    set_width,
)
from conftest import ran, small_config
from store_run import write_run

from flows.reports import index_path, serve_reports
from populora_core.runs.run import Run
from populora_core.support.shipped import REPOSITORY

pytestmark = [*MARKS, pytest.mark.foreign, pytest.mark.thorough]

IMAGES = REPOSITORY / "docs" / "images"
STUDY = REPOSITORY / "bench" / "results" / "study-2" / "report.html"
LONGEST = 9_000  # pixels of a study's page on a phone
PAGE = "<style>:root { color-scheme: light dark } body { margin: 16px } img { max-width: 100% }</style>"
"""README's page as hosts of repositories show it."""
SHOWN = "const i = document.querySelector('img'); return [i.currentSrc, i.getBoundingClientRect().width]"
UNITS, LETTERS = (
    400,
    18,
)  # of README's picture: its width, and how high its letters are (docs/images/study.py)
POINTS = """
const [data, colours, done] = arguments, picture = new Image();
picture.onload = () => {
  const canvas = new OffscreenCanvas(picture.width, picture.height).getContext('2d');
  canvas.drawImage(picture, 0, 0);
  const there = new Map(), points = canvas.getImageData(0, 0, picture.width, picture.height).data;
  for (let i = 0; i < points.length; i += 4) {
    const colour = '#' + [...points.slice(i, i + 3)].map(c => c.toString(16).padStart(2, '0')).join('');
    there.set(colour, (there.get(colour) || 0) + 1);
  }
  done(colours.map(colour => there.get(colour.toLowerCase()) || 0));
};
picture.src = 'data:image/png;base64,' + data;
"""
"""How many points of a picture have each colour."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_readmes_picture_is_of_the_browsers_scheme_and_its_letters_are_read_on_a_phone(
    browser: Any, tmp_path: Path, scheme: str
) -> None:
    (picture,) = re.findall("<picture>.*?</picture>", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    page = tmp_path / "readme.html"
    page.write_text(PAGE + picture.replace("docs/images", IMAGES.as_uri()), "utf-8")
    for width in (DESK, PHONE):
        with coloured(browser, scheme):
            set_width(browser, width)
            browser.get(page.as_uri())
            shown, wide = browser.execute_script(SHOWN)
            keep(browser, screenshots() / f"readme-{width}-{scheme}.png", width)
        assert shown.endswith("practice-dark.svg" if scheme == "dark" else "practice.svg")
        assert overhang(browser) <= 0
        assert wide / UNITS * LETTERS >= 16


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="no librsvg: apt-get install librsvg2-bin")
@pytest.mark.parametrize("name", ["practice", "practice-dark"])
def test_readmes_picture_keeps_its_lines_and_colours_where_no_browser_draws_it(
    browser: Any, name: str
) -> None:
    drawn = screenshots() / f"readme-librsvg-{name}.png"
    command = ["rsvg-convert", "--width", "520", "--output", str(drawn), str(IMAGES / f"{name}.svg")]
    ran(command, check=True)
    lines = re.findall('stroke="(#[0-9A-Fa-f]{6})"', (IMAGES / f"{name}.svg").read_text())
    browser.get("about:blank")
    there = browser.execute_async_script(POINTS, base64.b64encode(drawn.read_bytes()).decode(), lines)
    assert len(lines) == 5 and all(points > 100 for points in there), dict(zip(lines, there, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_whole_study_is_read_on_a_phone(browser: Any, scheme: str) -> None:
    for width in (DESK, PHONE):
        with coloured(browser, scheme):
            set_width(browser, width)
            browser.get(STUDY.as_uri())
            keep(browser, screenshots() / f"study-2-{width}-{scheme}.png", width)
            assert accessibility_faults(browser) == []
        assert overhang(browser) <= 0
    assert browser.execute_script("return document.documentElement.scrollHeight") < LONGEST


def test_two_runs_that_are_ticked_in_the_index_are_compared(browser: Any, tmp_path: Path) -> None:
    for seed in (1, 2):
        Run.create(tmp_path / f"seed-{seed}", small_config(run={"seed": seed}), base_digest="0" * 64)
        write_run(tmp_path / f"seed-{seed}", generations=3)
    with serve_reports("127.0.0.1", 0, "a key", tmp_path) as address:
        set_width(browser, DESK)
        browser.get(address + index_path("a key", tmp_path))
        for tick in browser.find_elements("css selector", "input[type=checkbox]"):
            tick.click()
        browser.find_element("tag name", "button").click()
        assert "2 runs compared" in browser.find_element("tag name", "body").text
        assert accessibility_faults(browser) == []
