"""Keys and items keep the order in which they were written, from a data set of anchors to every exit and page."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from command import populora
from conftest import small_config, start, write_lines

from populora_core.benchmarks.files import read_rows
from populora_core.lifecycle.loop import train
from populora_core.report.write import REPORT
from populora_core.runs.session import Session
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import stage_dir

pytestmark = [pytest.mark.loop, pytest.mark.sandbox, pytest.mark.thorough]
WRITTEN = [f"({{'b': {number}, 'a': 2}}, {{8, 0}})" for number in range(1, 6)]
DEDUCED = ("def f(d,s):\n return list(d)+list(s)", WRITTEN[:1], ["['b', 'a', 8, 0]"])
INDUCED = (
    "def f(d,s):\n return list(d.values())+list(s)",
    WRITTEN,
    [f"[{number}, 2, 8, 0]" for number in range(1, 6)],
)
ANCHORS = {"code_o": DEDUCED, "code_f": INDUCED}
DICT, SET = re.compile(r"\{'[ab]':\d,'[ab]':\d\}"), re.compile(r"\{[08],[08]\}")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose students are asked both anchors, and whose teachers are shown them; read it, never write to it."""
    folder = tmp_path_factory.mktemp("anchors")
    rows = [
        {"problem_type": kind, "program": program, "inputs": inputs}
        for kind, (program, inputs, _) in ANCHORS.items()
    ]
    write_lines(folder / "own.jsonl", rows)
    config = small_config(
        propose={"types": tuple(ANCHORS), "per_type": 4, "references": (2, 2)},
        anchors={"share": 0.2, "parameters": {"path": str(folder / "own.jsonl")}},
    )
    made = start(folder / "run", config)
    with Session(made) as session:
        train(session, 2)
    return made.directory


def require_order(text: str) -> None:
    dicts, sets = (set(form.findall(text.replace(" ", ""))) for form in (DICT, SET))
    assert dicts and all(each.startswith("{'b'") for each in dicts)
    assert sets == {"{8,0}"}


def require_problems(file: Path) -> None:
    found = {row["program"]: (row["inputs"], row["outputs"]) for row in read_rows(file)}
    assert {program: found.get(program) for program, _, _ in ANCHORS.values()} == {
        program: (inputs, outputs) for program, inputs, outputs in ANCHORS.values()
    }


def test_a_problem_is_stored_as_it_was_written(run: Path) -> None:
    require_problems(stage_dir(run, 1, "verify") / "problems.parquet")


def test_students_and_teachers_are_shown_it(run: Path) -> None:
    with Catalogue(run) as catalogue:
        attempts = catalogue.rows("SELECT DISTINCT prompt FROM attempts WHERE prompt LIKE '%{8,0}%'")
        proposals = catalogue.rows("SELECT DISTINCT prompt FROM proposals WHERE prompt LIKE '%{8,0}%'")
    assert len(attempts) == len(ANCHORS) and proposals
    for row in attempts + proposals:
        require_order(row["prompt"])


def test_a_data_set_has_it_and_the_examples_of_a_function_too(run: Path, tmp_path: Path) -> None:
    done = populora("problems", run, "--to", tmp_path / "set", "--test-share", "0")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "set" / "problems" / "train.parquet"
    require_problems(file)
    (examples,) = (row["examples"] for row in read_rows(file) if row["program"] == INDUCED[0])
    pairs = [(each["input"], each["output"]) for each in examples]
    assert pairs and pairs == list(zip(*INDUCED[1:], strict=True))[: len(pairs)]


def test_an_environment_has_it(run: Path, tmp_path: Path) -> None:
    done = populora("environment", run, "--to", tmp_path / "package")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "package").rglob("problems.parquet")
    require_problems(file)


@pytest.mark.parametrize("kind", sorted(ANCHORS))
def test_inspect_shows_it(run: Path, kind: str) -> None:
    with Catalogue(run) as catalogue:
        (row,) = catalogue.rows(
            "SELECT problem_id FROM problems WHERE teacher_id = 'anchor' AND problem_type = ? AND generation = 1",
            [kind],
        )
    done = populora("inspect", run, "--problem", row["problem_id"])
    assert done.returncode == 0, done.stderr
    require_order(done.stdout)


def test_the_report_shows_it(run: Path) -> None:
    require_order(unescape((run / REPORT).read_text(encoding="utf-8")))
