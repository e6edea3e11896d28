"""Additions touch few files, the examples are short, and the public names are few."""

from __future__ import annotations

from pathlib import Path

import pytest
from counts import examples, in_copy, public_names, touched_by, with_a_column

MOST_NAMES = 85
MOST_LINES = 60


def test_the_public_names_are_few() -> None:
    assert len(public_names()) <= MOST_NAMES


def test_benchmark_operator_rewards_and_sampler_have_an_example() -> None:
    assert len(examples()) >= 5


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.stem)
def test_an_addition_is_one_short_file_and_its_test(example: Path) -> None:
    assert touched_by(example) == [f"examples/{example.name}", "tests/test_examples.py"]
    assert len(example.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_column_takes_three_files_and_two_that_are_rendered(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    files = with_a_column(copy)
    assert len(files) <= 5, files
    tests = ("store_rows", "store_catalogue", "report_data_contract", "stages_grade")
    in_copy(
        copy,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'made'}"),
        *("-m", "not thorough", "-k", "not mypy"),
        *(f"tests/test_{name}.py" for name in tests),
    )


def test_a_copy_belongs_to_no_session_of_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker it would make its runs beside all temporary folders of the user, where later sessions find them."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    in_copy(
        tmp_path, "-c", "import os, sys; sys.exit(any(name.startswith('PYTEST_') for name in os.environ))"
    )
