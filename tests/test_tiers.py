"""What the tests take by the last whole run, and which of them a selection or a limit leaves out."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from conftest import UNTIL, ran
from timings import Recorded

ROOT = Path(__file__).resolve().parent.parent


def test_a_case_takes_what_it_took_and_an_unknown_one_what_its_files_others_do(tmp_path: Path) -> None:
    result = tmp_path / "tests.json"
    files = {"tests.test_a": {"seconds": 5.0, "cases": 3}, "tests.test_a.TestB": {"seconds": 2.0, "cases": 1}}
    result.write_text(json.dumps({"slowest": {"tests.test_a::test_it[a::b]": 4.0}, "files": files}))
    recorded = Recorded(result)
    assert recorded.seconds("tests/test_a.py::test_it[a::b]") == 4.0
    assert recorded.seconds("tests/test_a.py::test_more") == 0.5
    assert recorded.seconds("tests/test_a.py::TestB::test_more") == 2.0
    assert recorded.seconds("tests/test_new.py::test_more") == 0.0
    assert recorded.seconds("tests/test_new.py::test_more", unknown=9.0) == 9.0
    assert recorded.seconds("tests/test_a.py::test_more", unknown=9.0) == 0.5


def ended(folder: Path, cases: str, *options: str, **environment: str) -> str:
    """What pytest says of these cases under the project's settings and hooks."""
    (folder / "test_both.py").write_text(cases)
    arguments = ["-m", "pytest", "-c", ROOT / "pyproject.toml", "-p", "conftest", *options, folder]
    said = ran(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_ADDOPTS": ""} | environment,
    )
    return said.stdout + said.stderr


@pytest.mark.parametrize("mark", ["loop", "sandbox"])
def test_what_reads_a_finished_run_bears_the_marks_of_its_making(mark: str, tmp_path: Path) -> None:
    cases = "def test_a(): pass\ndef test_b(copy_of): pass\ndef test_c(finished_solo): pass\n"
    said = ended(tmp_path, cases, "-m", f"not {mark}")
    assert "1 passed, 2 deselected" in said, said


@pytest.mark.parametrize(("until", "ends"), [("0", "1 passed, 1 skipped"), ("inf", "2 passed")])
def test_once_the_time_has_passed_the_first_tier_goes_on_and_the_second_is_skipped_aloud(
    until: str, ends: str, tmp_path: Path
) -> None:
    cases = "import pytest\ndef test_a(): pass\n@pytest.mark.thorough\ndef test_b(): pass\n"
    said = ended(tmp_path, cases, **{UNTIL: until})
    assert ends in said, said
    assert ("out of time, left to make test-rest: 1 cases\n      1  test_both.py" in said) == (until == "0")
