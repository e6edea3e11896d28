"""A run that somebody sent is data: looking imports nothing that it names, and opens no view that came with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from store_run import write_run

from populora_core.config.load import Config
from populora_core.problems.dialects import DIALECTS
from populora_core.problems.types import PROBLEM_TYPES
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.store.catalogue import CATALOGUE, Catalogue, publish, stale
from populora_core.support.errors import ConfigError

WATCHED = """
import sys
seen = []
sys.addaudithook(lambda event, args: seen.append(args[0]) if event == "import" else None)
from populora_core.commands.app import app
try:
    app(sys.argv[1:], standalone_mode=False)
except BaseException as error:
    print(repr(error))
print("CALLED" if "harmful" in seen else "QUIET")
"""


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """A run whose record names code, which lies in the run and in the working folder."""
    directory = tmp_path / "run"
    write_run(Run.create(directory, Config(), "0" * 64).directory)
    record = directory / "run.json"
    document = json.loads(record.read_text())
    document["config"]["propose"]["types"] = ["code_o", "harmful:thing"]
    document["config"]["base"]["dialect"] = "harmful:thing"
    record.write_text(json.dumps(document))
    for folder in (directory, tmp_path):
        (folder / "harmful.py").write_text("open('PWNED', 'w')\n")
    return directory


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "run"],
        ["query", "run", "SELECT 1"],
        ["report", "run"],
        ["prune", "run", "--dry-run"],
        ["fork", "run", "--generation", "0", "--to", "new"],
        ["problems", "run", "--to", "out"],
        ["resume", "run"],
    ],
)
def test_no_command_imports_what_a_received_run_names(sent: Path, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words], cwd=sent.parent, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.rstrip().endswith("QUIET"), done.stdout + done.stderr
    assert not list(sent.parent.rglob("PWNED"))


def test_a_run_whose_plug_in_is_not_here_opens(sent: Path) -> None:
    assert Run.open(sent).config.base.dialect == "harmful:thing"
    with pytest.raises(ConfigError, match="not named yourself"):
        DIALECTS.find("harmful:thing")
    with pytest.raises(ConfigError, match="not named yourself"):
        PROBLEM_TYPES.find("pytest:main")  # as a row of it may say
    with pytest.raises(ConfigError, match="not named yourself"), Session(Run.open(sent)):
        pass


def test_a_catalogue_that_came_along_is_not_opened(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    publish(tmp_path / "run")
    assert not stale(tmp_path / "run")
    (tmp_path / "secret").write_text("mine")
    catalogue = tmp_path / "run" / CATALOGUE
    with duckdb.connect(catalogue) as connection:  # under the digest that is right, and the mark that was
        connection.execute(
            f"CREATE OR REPLACE VIEW stages AS SELECT content FROM read_text('{tmp_path}/secret')"
        )
    assert stale(tmp_path / "run")
    with Catalogue(tmp_path / "run") as opened:
        assert "mine" not in str(opened.rows("SELECT * FROM stages"))


def test_what_the_user_named_once_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from populora_core.support import owner

    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "of_mine.py").write_text("def thing(): ...\n")
    owner.remember(["of_mine:thing"])
    owner.receive(["of_mine:thing", "of_others:thing"])
    owner.require_trusted("of_mine:thing")
    owner.remember(["of_others:thing"])  # a fork of a received run names it, the user did not
    with pytest.raises(ConfigError):
        owner.require_trusted("of_others:thing")
    (tmp_path / "nearer").mkdir()
    (tmp_path / "nearer" / "of_mine.py").write_text("def thing(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path / "nearer"))
    with pytest.raises(ConfigError):  # other code under the same name
        owner.require_trusted("of_mine:thing")
    monkeypatch.setenv("POPULORA_TRUST", "of_mine:thing")  # which the user has read, too
    owner.require_trusted("of_mine:thing")
