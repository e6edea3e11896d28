"""Options of `populora assemble` that would do nothing, or that it could not follow, are refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import small_config
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.runs.run import Run
from populora_core.support.errors import ConfigError, PopuloraError, RunDirectoryError


def refused(*words: object) -> PopuloraError:
    """The error that `populora assemble` ends with."""
    error = CliRunner().invoke(app, ["assemble", *map(str, words)]).exception
    assert isinstance(error, PopuloraError), error
    return error


@pytest.mark.parametrize("option", [["--how", "soup"], ["--merge"], ["--base-name", "me/base"]], ids=str)
def test_an_option_of_the_folder_needs_a_folder(tmp_path: Path, option: list[str]) -> None:
    run = Run.create(tmp_path / "run", small_config(), "0" * 64)
    error = refused(run.directory, *option)
    assert isinstance(error, RunDirectoryError) and error.problem == f"{option[0]} needs --to"


@pytest.mark.parametrize("how", ["vote", "route"])
def test_what_is_several_adapters_is_not_merged(tmp_path: Path, how: str) -> None:
    run = Run.create(tmp_path / "run", small_config(), "0" * 64)
    error = refused(run.directory, "--to", tmp_path / "to", "--how", how, "--merge")
    assert isinstance(error, ConfigError) and f"{how} is several adapters" in error.problem


def test_members_over_a_base_in_few_bits_are_not_merged(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", small_config(base={"bits": 4}), "0" * 64)
    assert "in 4 bits" in refused(run.directory, "--to", tmp_path / "to", "--merge").problem
