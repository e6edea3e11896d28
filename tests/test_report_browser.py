"""The report in a real browser: every plot drawn, no error, readable on a desk and on a phone.

Screenshots are kept in the folder that POPULORA_SCREENSHOTS names, else in screenshots/.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from browser import (
    DESK,
    MARKS,
    PHONE,
    accessibility_faults,
    chromium,
    coloured,
    keep,
    overhang,
    screenshots,
    set_width,
)
from test_study_claims import write_planted

from flows.index_page import index_page
from populora_core.report.index import runs_in
from populora_core.report.write import write_report
from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.report import write_report as write_study_report

STUDY = REPOSITORY / "bench/results/study-2/report.html"
SMALLEST_LETTER = 9.0  # CSS pixels of a plot's letters on a phone

pytestmark = [*MARKS, pytest.mark.foreign, pytest.mark.thorough]
keys = pytest.importorskip("selenium.webdriver.common.keys", reason="selenium is not installed").Keys

FIGURES = """
return [...document.querySelectorAll('figure.plot')].map(figure => {
  const svg = figure.querySelector(':scope > svg'), box = svg.getBoundingClientRect();
  const marks = [...svg.querySelectorAll('path, rect, circle')].filter(
    mark => { const b = mark.getBoundingClientRect(); return b.width > 0 && b.height > 0; });
  const letters = [...svg.querySelectorAll('text')].map(text => {
    const b = text.getBoundingClientRect();
    return {inside: b.left >= box.left - 1 && b.right <= box.right + 1 &&
                    b.top >= box.top - 8 && b.bottom <= box.bottom + 1,
            size: parseFloat(getComputedStyle(text).fontSize) * box.width / svg.viewBox.baseVal.width,
            text: text.textContent};
  });
  return {title: figure.querySelector('b').textContent, width: box.width, height: box.height,
          marks: marks.length, letters: letters};
});
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module", params=["one run", "two runs", "a study"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    if request.param == "a study":
        return write_study_report(write_planted(folder), folder / "study.html")
    finished: Path = request.getfixturevalue("finished")
    runs = [finished]
    if request.param == "two runs":
        shutil.copytree(finished, folder / "other")
        runs.append(folder / "other")
    return write_report(runs, folder / f"{request.param.replace(' ', '-')}.html")


def show(browser: Any, page: Path, width: int) -> None:
    set_width(browser, width)
    browser.get(page.as_uri())


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_every_plot_is_drawn_and_readable(browser: Any, report: Path, width: int) -> None:
    show(browser, report, width)
    keep(browser, screenshots() / f"{report.stem}-{width}.png", width)
    browser.execute_script("document.querySelectorAll('details.section').forEach(d => { d.open = true })")
    figures = browser.execute_script(FIGURES)
    assert len(figures) == len(re.findall('<figure class="plot"', report.read_text())) > 10
    for figure in figures:
        assert figure["width"] > 250 and figure["height"] > 80, figure["title"]
        assert figure["marks"] > 0, figure["title"]
        assert min(letter["size"] for letter in figure["letters"]) >= SMALLEST_LETTER, figure["title"]
        assert [letter["text"] for letter in figure["letters"] if not letter["inside"]] == [], figure["title"]


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_the_page_is_no_wider_than_the_screen_with_everything_open(
    browser: Any, report: Path, width: int
) -> None:
    show(browser, report, width)
    for summary in browser.find_elements("tag name", "summary"):
        browser.execute_script("arguments[0].click()", summary)
    assert browser.execute_script("return [...document.querySelectorAll('details')].every(d => d.open)")
    assert overhang(browser) <= 0
    keep(browser, screenshots() / f"{report.stem}-{width}-open.png", width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_checker_of_accessibility_finds_nothing(browser: Any, report: Path, scheme: str) -> None:
    with coloured(browser, scheme):
        show(browser, report, DESK)
        keep(browser, screenshots() / f"{report.stem}-{scheme}.png", DESK)
        browser.execute_script(
            "document.querySelectorAll('details:not(.data)').forEach(d => { d.open = true })"
        )
        browser.execute_script("document.querySelectorAll('details.data')[0].open = true")
        found = accessibility_faults(browser)
    assert found == []


def test_a_checker_of_accessibility_finds_nothing_on_the_page_of_a_whole_study(browser: Any) -> None:
    show(browser, STUDY, DESK)
    browser.execute_script("document.querySelectorAll('details.section').forEach(d => { d.open = true })")
    assert accessibility_faults(browser) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_index_of_runs_is_readable_for_everyone(
    browser: Any, finished: Path, tmp_path: Path, scheme: str
) -> None:
    (tmp_path / "index.html").write_text(index_page(runs_in(finished.parent), Path.as_uri), "utf-8")
    with coloured(browser, scheme):
        for width in (DESK, PHONE):
            show(browser, tmp_path / "index.html", width)
            assert overhang(browser) <= 0
            assert accessibility_faults(browser) == []
            assert "Students now solve" in browser.find_element("tag name", "body").text
            keep(browser, screenshots() / f"index-{width}-{scheme}.png", width)


def test_the_page_follows_a_dark_scheme(browser: Any, report: Path) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    shades = {}
    for scheme in ("light", "dark"):
        with coloured(browser, scheme):
            show(browser, report, DESK)
            shades[scheme] = sum(browser.execute_script(paper))
    assert shades["dark"] < 100 < 600 < shades["light"]


def test_arrow_keys_tell_the_numbers_of_a_plot_and_mark_the_others(browser: Any, report: Path) -> None:
    show(browser, report, DESK)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    drawing = browser.execute_script("return document.querySelector('figure.plot:has(tr[data-x]) > svg')")
    cells = browser.execute_script(
        "return [...arguments[0].parentElement.querySelectorAll('tr[data-x]')].at(-1).innerText.split('\\t')",
        drawing,
    )
    drawing.send_keys(keys.ARROW_RIGHT)
    told = browser.execute_script(
        "return arguments[0].parentElement.querySelector('output').textContent", drawing
    )
    assert all(cell.strip() in told for cell in cells)
    assert browser.execute_script("return document.querySelectorAll('.cross[visibility=visible]').length") > 1


def test_a_line_is_hidden_by_its_name_and_a_plot_enlarged_by_its_button(browser: Any, report: Path) -> None:
    show(browser, report, DESK)
    browser.execute_script("document.querySelectorAll('details.section').forEach(d => { d.open = true })")
    label = browser.execute_script(
        "return document.querySelector('figure.plot [aria-pressed=true][data-series]')"
    )
    label.send_keys(keys.ENTER)
    drawn = "return getComputedStyle(arguments[0].closest('figure').querySelector(':scope > svg > g[data-series], "
    drawn += ":scope > svg > path[data-series]')).display"
    assert browser.execute_script(drawn, label) == "none"
    label.send_keys(keys.ENTER)
    assert browser.execute_script(drawn, label) != "none"
    button = browser.find_element("css selector", "figcaption button")
    width = "return arguments[0].closest('figure').getBoundingClientRect().width"
    before = browser.execute_script(width, button)
    browser.execute_script("arguments[0].click()", button)
    assert browser.execute_script(width, button) > before


def test_a_header_sorts_the_rows_of_its_table_the_largest_first(browser: Any, tmp_path: Path) -> None:
    show(browser, write_study_report(write_planted(tmp_path), tmp_path / "study.html"), DESK)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    table = browser.find_element("css selector", "#claims figure table")
    head = table.find_element("css selector", "th:nth-child(3)")
    effects = (
        "return [...arguments[0].tBodies[0].rows].map(row => row.cells[2].textContent.replace('−', '-'))"
    )
    before = [float(effect) for effect in browser.execute_script(effects, table)]
    assert head.text == "effect" and before != sorted(before)
    for way, reverse in (("descending", True), ("ascending", False)):
        head.find_element("css selector", "button").click()
        assert head.get_attribute("aria-sort") == way
        found = [float(effect) for effect in browser.execute_script(effects, table)]
        assert found == sorted(before, reverse=reverse)


@pytest.mark.parametrize(
    "rising",
    [
        ["7.77e-05", "0.00781", "+0.12", "1", "1,200"],
        ["−0.12", "+0.05", "0.2 (−0.7 to 0.9)"],
        ["900 ms", "5 s", "48 min", "1 h 05 min"],
        ["none", "−3", "2"],
        ["pop-4+4", "pop-8+8", "solo"],
    ],
    ids=lambda rising: rising[0],
)
def test_sorting_reads_numbers_as_a_report_writes_them(
    browser: Any, tmp_path: Path, rising: list[str]
) -> None:
    rows = "".join(f"<tr><td>{cell}</td></tr>" for cell in rising[1:] + rising[:1])
    table = f"<table><thead><tr><th>of</th></tr></thead><tbody>{rows}</tbody></table>"
    script = resources.files("populora_core.report").joinpath("templates", "report.js").read_text("utf-8")
    (tmp_path / "table.html").write_text(f"<meta charset=utf-8>{table}<script>{script}</script>")
    show(browser, tmp_path / "table.html", DESK)
    browser.find_element("css selector", "th button").click()
    found = browser.execute_script(
        "return [...document.querySelectorAll('td')].map(cell => cell.textContent)"
    )
    assert found == rising[::-1]


def test_the_console_stays_silent_and_nothing_is_fetched(browser: Any, report: Path) -> None:
    show(browser, report, DESK)
    assert browser.get_log("browser") == []
    fetched = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in fetched if not name.startswith("data:")] == []
