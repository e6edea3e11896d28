"""A pretrained base through Prefect's pages by clicks alone, killed on its way, and how what it made looks.

Its programs are as people write them: doc strings, long lines, letters beyond ASCII. The pictures are kept beside those
of tests/test_pictures.py.
"""

from __future__ import annotations

import ast
import json
import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from browser import DESK, MARKS, chromium, keep, screenshots
from command import populora
from conftest import commits, contents, wait_for
from desk import ROOT, at_the_desk, fresh
from test_pictures import OPENED, show, take, take_prefects
from test_real import weights

from populora_core import open_run
from populora_core.report.write import REPORT
from populora_core.store.manifest import read_manifest, stage_dir

pytestmark = [*MARKS, pytest.mark.foreign, pytest.mark.sandbox, pytest.mark.thorough]

# Every program has a doc string with letters beyond ASCII, longer than any phone is wide.
PROGRAM = "def f(xs):\n    '''Über {}🙂'''\n    return {}"
LONG = "a list, a sentence that goes on and on, " * 5
GIVEN = (
    ("xs[::-1]", "[1, 2, 3]", "[3, 2, 1]"),
    ("xs + xs[:1]", "[1, 2]", "[1, 2, 1]"),
    ("sorted(xs)", "['é', 'a', 'ß']", "['a', 'ß', 'é']"),
    ("[x for x in xs if x]", "[0, 'naïve', '']", "['naïve']"),
)
FOREIGN = f"""{OPENED};
const foreign = [...document.querySelectorAll('details.sample')].find(sample => sample.textContent.includes('Über'));
foreign.open = true, foreign.id = 'foreign';
"""
RUN = """
extends = "{extends}"

[run]
generations = 2

[propose]
per_type = 6
max_tokens = 96

[solve]
attempts = 4
max_tokens = 24

[anchors]
source = "dataset"
share = 0.4
parameters = {{path = "{rows}"}}

[evaluate]
suite = "bundled:tiny"
report_every = 0
validity = 0

[compute]
threads = 1
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weights("qwen2.5-coder-0.5b", fetch=False)
    folder = tmp_path_factory.mktemp("real")
    rows, config = folder / "rows.jsonl", folder / "run.toml"
    given = (
        {"code": PROGRAM.format(LONG, body), "input": arguments, "output": value, "id": str(number)}
        for number, (body, arguments, value) in enumerate(GIVEN)
    )
    rows.write_text("".join(json.dumps(row) + "\n" for row in given))
    config.write_text(RUN.format(extends=ROOT / "configs" / "real.toml", rows=rows))
    return config


@pytest.fixture(scope="module")
def undisturbed(config: Path) -> Path:
    run = config.parent / "undisturbed"
    done = populora("run", "--plain", "--config", config, "--run-dir", run)
    assert done.returncode == 0, done.stderr
    return run


@pytest.fixture(scope="module")
def clicked(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was launched by its form, killed while its students learned, and retried."""
    run = fresh(config.parent, "clicked")
    with at_the_desk(tmp_path_factory.mktemp("prefect")) as desk:
        desk.launch("train", "real-form", run_dir=str(run), config_file=str(config))
        wait_for(lambda: read_manifest(stage_dir(run, 1, "grade")) is not None)
        os.kill(desk.flow_process(), signal.SIGKILL)
        desk.open_run(f"{run.name} train")
        desk.wait_state(f"{run.name} train", "Crashed")
        before = commits(run)
        desk.confirmed("Retry")
        desk.wait_state(f"{run.name} train", "Completed")
        assert all(commits(run)[name] == 1 for name in before), "what was committed is not made again"
        desk.browser.refresh()
        desk.find("//*[contains(@class,'state-badge')]")
        take_prefects(desk.browser, "real-prefect")
        desk.open_run(f"{run.name} g0002")
        desk.tab("Artifacts")
        desk.click(
            f"//a[contains(@href,'/artifacts/artifact/')][.//*[normalize-space(.)='{run.name}-grade']]"
        )
        desk.find("//h2[normalize-space(.)='ratings']")
        take_prefects(desk.browser, "real-grade")
    return run


def test_killed_and_retried_by_clicks_it_makes_what_an_undisturbed_run_makes(
    clicked: Path, undisturbed: Path
) -> None:
    assert contents(clicked) == contents(undisturbed)


def test_its_report_shows_whole_programs_and_is_no_wider_than_a_phone(clicked: Path) -> None:
    with open_run(clicked) as catalogue:
        known = {row["program"] for row in catalogue.rows("SELECT program FROM problems")}
    with chromium() as browser:
        show(browser, (clicked / REPORT).as_uri(), "real-report")
        browser.execute_script(FOREIGN)
        keep(browser, screenshots() / "real-problem.webp", DESK, "#foreign")
        browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
        text = browser.find_element("tag name", "body").text
        shown = [
            pre.text for pre in browser.find_elements("xpath", "//h3[.='Program']/following-sibling::pre[1]")
        ]
        take(browser, "real-report-open")
    assert shown and set(shown) <= known
    assert LONG.strip() in text and "🙂" in text, "what the teacher was given"


def test_its_data_set_holds_programs_that_python_reads(clicked: Path, tmp_path: Path) -> None:
    done = populora("problems", clicked, "--to", tmp_path / "set")
    assert done.returncode == 0, done.stderr
    programs = pq.read_table(tmp_path / "set" / "problems")["program"].to_pylist()
    assert programs
    for program in programs:
        assert isinstance(ast.parse(program).body[0], ast.FunctionDef)
