"""A run that somebody sent is data: looking imports nothing that it names, and opens no view that came with it."""

from __future__ import annotations

import ast
import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import pytest
from command import populora
from conftest import PATIENCE, ran
from store_run import write_run

from populora_core.compute.shards import LocalCompute, Shards
from populora_core.compute.work import Generate, Prompt
from populora_core.config.load import Config
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.model.base import base_digest
from populora_core.problems.dialects import DIALECTS
from populora_core.problems.types import PROBLEM_TYPES
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sampler.spec import ModelSpec
from populora_core.store.catalogue import CATALOGUE, Catalogue, publish, stale
from populora_core.support import owner, trust
from populora_core.support.errors import ConfigError, PopuloraError
from populora_plugins.harvest.curriculum import Filters, NotRead, curriculum_tables, write_curriculum
from populora_plugins.harvest.environment import write_environment

WATCHED = """
import json, sys
from populora_core.commands.app import app
for words in json.loads(sys.argv[1]):
    try:
        app(words, standalone_mode=False)
    except BaseException as error:
        print(str(error) or repr(error))
    print("\\nCALLED" if "harmful" in sys.modules else "\\nQUIET", *words, flush=True)
"""
"""Commands one after another, and after each whether the code was imported by then."""


def received(directory: Path, **sections: Mapping[str, object]) -> Path:
    """A run that came with a record in which its sender set these."""
    write_run(Run.create(directory, Config(), "0" * 64).directory)
    record = directory / "run.json"
    document = json.loads(record.read_text())
    for section, settings in sections.items():
        document["config"][section] |= settings
    record.write_text(json.dumps(document))
    return directory


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """A run whose record names code, which lies in the run and in the working folder."""
    named = {"propose": {"types": ["code_o", "harmful:thing"]}, "base": {"dialect": "harmful:thing"}}
    directory = received(tmp_path / "run", **named)
    for folder in (directory, tmp_path):
        (folder / "harmful.py").write_text("open('PWNED', 'w')\n")
    return directory


COMMANDS = [
    ["inspect", "run"],
    ["query", "run", "SELECT 1"],
    ["report", "run"],
    ["prune", "run", "--dry-run"],
    ["fork", "run", "--generation", "0", "--to", "new"],
    ["problems", "run", "--to", "problems"],
    ["environment", "run", "--to", "environment"],
    ["export", "run", "best", "--to", "adapter"],
    ["serve", "run"],
    ["resume", "run"],
]


@pytest.mark.parametrize(
    ("place", "given"), [("run", [["inspect", "."]]), (".", COMMANDS)], ids=["in it", "beside"]
)
def test_no_command_imports_what_a_received_run_names(sent: Path, place: str, given: list[list[str]]) -> None:
    command = [sys.executable, "-c", WATCHED, json.dumps(given)]
    done = ran(command, cwd=sent.parent / place)
    told = [line for line in done.stdout.splitlines() if line.startswith(("QUIET ", "CALLED "))]
    assert told == [f"QUIET {' '.join(words)}" for words in given], done.stdout + done.stderr
    assert not list(sent.parent.rglob("PWNED"))


def test_a_run_whose_plug_in_is_not_here_opens(sent: Path) -> None:
    assert Run.open(sent).config.base.dialect == "harmful:thing"
    with pytest.raises(PopuloraError, match="No module named 'harmful'"):
        DIALECTS.find("harmful:thing")
    with pytest.raises(ConfigError, match="not named yourself"):
        PROBLEM_TYPES.find("pytest:main")  # as a row of it may say
    with pytest.raises(ConfigError, match="No module named 'harmful'"), Session(Run.open(sent)):
        pass


@pytest.mark.parametrize(
    ("section", "key", "name"),
    [
        ("base", "dialect", "pytest:main"),
        ("base", "dialect", "not_installed"),
        ("propose", "types", ["pytest:main"]),
        ("grade", "teacher_reward", "not_installed"),
    ],
)
def test_a_run_whose_code_is_not_here_answers_and_gives_its_problems(
    tmp_path: Path, section: str, key: str, name: object
) -> None:
    directory = received(tmp_path / "run", **{section: {key: name}})
    asked = populora("query", directory, "SELECT problem_id, answer FROM attempts WHERE answer = '2'")
    assert asked.returncode == 0 and "prob-g0002-t00-code_o-0000" in asked.stdout
    looked = populora("inspect", directory)
    assert looked.returncode == 0 and "student-00-g0002" in looked.stdout
    told = (
        pytest.warns(NotRead, match="not installed here, or you have not named it")
        if section == "base"
        else nullcontext()
    )
    with told:
        tables, _ = curriculum_tables([directory], Filters())
    assert tables["problems"].num_rows and tables["supervised"].num_rows
    with told if section == "base" else nullcontext():
        assert write_environment([Run.open(directory)], tmp_path / "package", Filters()).problems


FOLDER = 'x"""+__import__("os").system("touch PWNED")+"""<script>alert(1)</script>[a](b)'


def test_a_folders_name_is_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / FOLDER.replace("/", "")
    write_run(Run.create(directory, Config(), "0" * 64).directory)
    written = write_environment([Run.open(directory)], tmp_path / "packages" / directory.name, Filters())
    module = (written.folder / written.package / "__init__.py").read_text()
    assert not {"__import__", "system"} & {
        node.id for node in ast.walk(ast.parse(module)) if isinstance(node, ast.Name)
    }
    write_curriculum([directory], tmp_path / "data", Filters())
    for page in (written.folder / "README.md", tmp_path / "data" / "README.md"):
        assert "<script" not in page.read_text() and "](b)" not in page.read_text()


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


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A run of an installed reward's, beside the folder that holds it."""
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "harmful.py").write_text("def thing(): ...\n")
    return received(tmp_path / "run", grade={"teacher_reward": "harmful:thing"})


END_OF_INPUT = "\x04"  # Ctrl-D


def resumed(run: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    where = os.environ | {
        "PYTHONPATH": str(run.parent / "installed"),
        owner.FOLDER: str(run.parent / "config"),
    }
    command = [sys.executable, "-c", WATCHED, json.dumps([["resume", "run", "--plain", *words]])]
    return subprocess.run(command, cwd=run.parent, env=where, text=True, timeout=PATIENCE, **more)


@pytest.mark.thorough
def test_an_option_lets_code_run_and_is_remembered(named: Path) -> None:
    first = resumed(named, capture_output=True)
    assert "QUIET" in first.stdout and "--trust harmful:thing" in first.stdout
    assert "CALLED" in resumed(named, "--trust", "harmful:thing", capture_output=True).stdout
    assert "CALLED" in resumed(named, capture_output=True).stdout


@pytest.mark.thorough
@pytest.mark.parametrize("answer", ["y", "n", END_OF_INPUT])
def test_a_terminal_is_asked_once_by_name(named: Path, answer: str) -> None:
    ours, its = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    asked = resumed(named, stdin=its, stderr=its, stdout=subprocess.PIPE)
    shown = os.read(ours, 10_000).decode()
    assert "harmful:thing" in shown and str(named.parent / "installed" / "harmful.py") in shown.replace(
        "\r\n", ""
    )
    assert ("CALLED" if answer == "y" else "QUIET") in asked.stdout
    assert answer == "y" or "--trust harmful:thing" in asked.stdout
    kept = json.loads((named.parent / "config" / "trusted.json").read_text()) if answer == "y" else {}
    assert list(kept) == ["harmful:thing"] * (answer == "y")


ASKED = Generate((), (Prompt(None, "1+1", 0, 1.0, 1.0, 4),))


@pytest.mark.parametrize("allowed", [False, True])
def test_worker_processes_import_what_their_starter_may(
    named: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    folder = named.parent / "installed"
    (folder / "harmful.py").write_text(
        f"open({str(named.parent / 'seen')!r}, 'w')\n"
        "from populora_core.problems.dialects.compact import CompactDialect\nclass thing(CompactDialect): ...\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv(owner.FOLDER, "/dev/null/no home")  # so that only the starter's word counts
    trust.forget()
    if allowed:
        trust.trust(["harmful:thing"])
    base = BaseSection(dialect="harmful:thing")
    compute = LocalCompute(
        1, 1, ModelSpec(base, AdapterSection(rank=2, alpha=4.0), base_digest(base.folder()))
    )
    try:
        shards = Shards(compute, "key", named.parent / "shards")
        if allowed:
            assert len(shards.map([ASKED])[0]) == 1
        else:
            with pytest.raises(ConfigError, match="not named yourself"):
                shards.map([ASKED])
    finally:
        compute.close()
    assert (named.parent / "seen").exists() == allowed
