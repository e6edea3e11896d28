"""A stranger's first minutes: a clone, a plain shell, `make demo`, and what it says at its end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ran

pytestmark = [pytest.mark.thorough, pytest.mark.loop, pytest.mark.sandbox]

ROOT = Path(__file__).resolve().parents[1]
GENERATIONS = 2
SMALLER = {"generations": GENERATIONS, "per_type": 4, "attempts": 2, "report_problems": 20, "yardstick": 8}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with an environment of its own: the packages are those of this one, the project is the clone's.

    Its demo ends after two small generations, so that the commands at its end have something to show.
    """
    folder = tmp_path_factory.mktemp("stranger") / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    config = folder / "configs" / "frontier.toml"
    text = config.read_text()
    for key, value in SMALLER.items():
        text, found = re.subn(rf"^{key} = \d+", f"{key} = {value}", text, flags=re.MULTILINE)
        assert found == 1, key
    config.write_text(text)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    (site,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    theirs = next(place for place in sys.path if place.endswith("site-packages"))
    (site / "this.pth").write_text(f"{folder}\n{theirs}\n")
    script = folder / ".venv" / "bin" / "populora"
    script.write_text(
        f"#!{folder}/.venv/bin/python\nimport sys\nfrom populora_core.commands.app import main\n"
        "if __name__ == '__main__':\n    sys.exit(main())\n"
    )
    script.chmod(0o755)
    (folder / ".venv" / ".installed").touch()
    return folder


def plain_shell(line: str, folder: Path) -> str:
    """What a line says there, to somebody whose PATH knows nothing of the project."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder.parent), "COLUMNS": "100"}
    done = ran(["sh", "-c", line], cwd=folder, env=environment)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


def test_every_command_at_the_end_of_the_demo_works_as_it_is_shown(clone: Path) -> None:
    said = plain_shell("make demo", clone)
    assert f"generation   {GENERATIONS}/{GENERATIONS}" in said
    lines = re.findall(r"^  (\S*populora .*)$", said[said.index("what to try next") :], re.MULTILINE)
    assert [line.split()[1] for line in lines] == ["inspect", "report", "query", "query", "resume"]
    for line in lines:
        assert plain_shell(line, clone), line
    assert (clone / "runs/demo/report.html").exists()
    assert os.listdir(clone / "runs") == ["demo"]


def test_an_environment_without_pip_is_made_again(tmp_path: Path) -> None:
    """`python3 -m venv` leaves one where ensurepip is missing."""
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (tmp_path / "pyproject.toml").touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >> calls\n[ "$1" != -m ]\n')
    python.chmod(0o755)
    done = ran(["make", "install", f"PYTHON={python}"], cwd=tmp_path)
    assert done.returncode and "apt-get install python3-venv" in done.stdout
    assert (tmp_path / "calls").read_text().splitlines()[1:] == ["-m pip --version", "-m venv .venv"]
