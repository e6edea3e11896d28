"""Commands of plug-ins: there where the plug-in is, and a sentence where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ran
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.support.entries import installed_entries

WITHOUT = """
import sys
from pathlib import Path
for module in {modules!r}:
    sys.modules[module] = None
from populora_core.commands.app import main
main()
"""


def populora(*arguments: str, without: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The command line in a process that cannot import these modules."""
    script = WITHOUT.format(modules=without)
    return ran([sys.executable, "-c", script, *arguments])


COMMANDS = {entry.name: entry for entry in installed_entries("populora.commands")}
EVERY = tuple(entry.module for entry in COMMANDS.values())


@pytest.fixture(scope="module")
def listed() -> str:
    """The commands, as the command line lists them without any plug-in of theirs."""
    shown = populora("--help", without=EVERY)
    assert shown.returncode == 0
    return " ".join(shown.stdout.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_whose_plug_in_is_missing_stays_visible_and_names_the_extra_that_brings_it(
    listed: str, name: str
) -> None:
    (extra,) = COMMANDS[name].extras
    assert f"{name} comes with the extra {extra}" in listed
    refused = populora(name, "--any", "thing", without=(COMMANDS[name].module,))
    assert refused.returncode == 2
    assert f"`{name}` comes with the extra `{extra}`" in refused.stderr
    assert f"install -e '.[{extra}]'" in refused.stderr or f"[{extra}]'" in refused.stderr


PACKAGE = """[populora.commands]
theirs = {value}
"""


def installed(tmp_path: Path, value: str) -> dict[str, str]:
    """The environment in which another package with this entry point is installed."""
    metadata = tmp_path / "site" / "their_package-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(PACKAGE.format(value=value))
    return {**os.environ, "PYTHONPATH": str(metadata.parent)}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("os.path:join", "Expected: a typer.Typer at os.path:join"),
        ("not_there:app [gui,tui]", "Fix: pip install 'their-package[gui,tui]'"),
    ],
)
def test_a_bad_entry_of_another_package_is_told_by_its_command_alone(
    tmp_path: Path, value: str, told: str
) -> None:
    environment = installed(tmp_path, value)
    command = [sys.executable, "-m", "populora_core.commands"]
    assert ran([*command, "config", "run"], env=environment).returncode == 0
    refused = ran([*command, "theirs"], env=environment)
    assert refused.returncode == 2 and told in refused.stderr


THEIR_COMMANDS = """import typer
app = typer.Typer()
@app.command()
def inspect(): print("of another package")
@app.command()
def theirs(): print("of another package")
"""


def test_a_command_of_another_package_replaces_none_of_ours(tmp_path: Path) -> None:
    environment = installed(tmp_path, "their_package:app")
    (tmp_path / "site" / "their_package.py").write_text(THEIR_COMMANDS)
    command = [sys.executable, "-m", "populora_core.commands"]
    shown = ran([*command, "inspect", "--help"], env=environment)
    assert shown.returncode == 0 and "Look into a run" in shown.stdout
    assert (
        "the commands of the package their-package are left out: populora has inspect already" in shown.stderr
    )
    (tmp_path / "site" / "their_package.py").write_text(THEIR_COMMANDS.replace("inspect", "look_around"))
    joined = ran([*command, "look-around"], env=environment)
    assert (joined.stdout, joined.stderr) == ("of another package\n", "")


def test_a_plug_in_that_cannot_be_imported_leaves_the_other_commands_alone() -> None:
    shown = populora("inspect", "--help", without=EVERY)
    assert shown.returncode == 0 and "Look into a run" in shown.stdout


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_the_core_plays_without_any_plug_in(tmp_path: Path) -> None:
    few = ("--generations", "1", "--set", "propose.per_type=2", "--run-dir", str(tmp_path / "run"))
    done = populora("run", "--plain", "--preset", "quick", *few, without=("populora_plugins",))
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run/report.html").exists() and "the extra `pages`" in done.stderr
    refused = populora(
        "run", "--plain", "--preset", "quick", "--set", "compute.backend=ray", without=("populora_plugins",)
    )
    assert refused.returncode == 2 and "the extra `ray`" in refused.stderr


@pytest.mark.parametrize("words", ["study rep", "store ch", "image b", "suite f"])
def test_the_beginning_of_a_name_is_enough_among_the_commands_of_a_plug_in(words: str) -> None:
    done = CliRunner().invoke(app, [*words.split(), "--help"])
    assert done.exit_code == 0, done.output


def test_a_beginning_of_several_names_is_refused_with_them() -> None:
    done = CliRunner().invoke(app, ["study", "re", "--help"])
    assert done.exit_code != 0 and "report" in done.output and "release" in done.output
