"""What a command says at its end can be typed as it stands, also where `populora` is not on the PATH."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import GENERATIONS, ran

from populora_core.support.errors import SandboxUnavailable
from populora_core.support.typed import as_root, shown, typed

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(sys.executable).with_name("populora")
BARE = os.pathsep.join(
    place for place in os.environ["PATH"].split(os.pathsep) if not Path(place, "populora").exists()
)


def shell(line: str, folder: Path) -> str:
    """What a line says to somebody in a folder, in a plain shell."""
    environment = os.environ | {"PATH": BARE, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    done = ran(["sh", "-c", line], cwd=folder, env=environment)
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


@pytest.mark.thorough
@pytest.mark.skipif(not SCRIPT.exists(), reason="populora is not installed: pip install -e '.[dev]'")
def test_the_closing_lines_of_a_run_can_be_typed_as_they_stand(
    copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    directory = copy_of().rename(tmp_path / "a run")
    said = shell(f"{SCRIPT} resume 'a run' --generations {GENERATIONS} --plain", tmp_path)
    lines = re.findall(r"^  (\S*populora .*)$", said[said.index("what to try next") :], re.MULTILINE)
    assert [line.split()[1] for line in lines] == ["inspect", "report", "query", "resume", "ui"]
    *asked, resume, ui = lines
    for line in asked:
        assert shell(line, tmp_path)
    assert "--generations" in shell(f"{resume} --help", tmp_path)
    assert "Prefect" in shell(f"{ui} --help", tmp_path)
    assert (directory / "report.html").exists()


def test_the_demo_leaves_the_path_alone() -> None:
    """Else the command took its own folder for one on the user's PATH."""
    told = ran(["make", "-n", "demo"], cwd=ROOT, check=True).stdout
    assert ".venv/bin/populora run --config configs/frontier.toml" in told
    assert "PATH=" not in told


def environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's environment below a folder; gives its populora."""
    own = folder / ".venv/bin/populora"
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(own.with_name("python")))
    return own


def test_a_command_is_shown_by_its_name_only_where_the_name_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = environment(tmp_path / "my project", monkeypatch)
    other = tmp_path / "other" / "populora"
    other.parent.mkdir()
    other.touch(mode=0o755)
    line = "see runs/populora or populora inspect"
    for path, folder, program in (
        (own.parent, tmp_path, "populora"),
        (other.parent, tmp_path, "'my project/.venv/bin/populora'"),
        (tmp_path, tmp_path / "my project", ".venv/bin/populora"),
        (tmp_path, other.parent, f"'{own}'"),
    ):
        monkeypatch.setenv("PATH", str(path))
        monkeypatch.chdir(folder)
        assert typed(line) == f"see runs/populora or {program} inspect"
    own.unlink()
    assert typed(line).endswith("python' -m populora_core.commands inspect")
    assert shown(tmp_path / "other" / "runs") == "runs"


def test_an_extra_is_installed_into_the_environment_that_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = environment(tmp_path, monkeypatch).with_name("pip")
    own.touch(mode=0o755)
    line = "pip install -e '.[ray]', or do without"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert typed(line) == f".venv/bin/pip install -e '{ROOT}[ray]', or do without"
    monkeypatch.chdir(ROOT)
    assert typed(line) == f"{own} install -e '.[ray]', or do without"
    monkeypatch.setenv("PATH", str(own.parent))
    assert typed(line) == line


def test_beside_an_installed_package_an_extra_comes_with_its_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("populora_core.support.typed.IN_CLONE", False)
    assert typed("pip install -e '.[ray]'").endswith("pip install 'WHEEL[ray]'")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("--version", 0, "populora "),
        ("inspect runs/demo", 2, "populora: the working folder is removed\nFix: "),
        (f"inspect /{'a' * 300}", 2, "populora: OSError: [Errno 36] File name too long"),
    ],
)
def test_in_a_removed_working_folder_a_command_works_or_says_so(
    arguments: str, code: int, told: str, tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    line = f'rmdir "{folder}" && exec "{sys.executable}" -m populora_core.commands {arguments}'
    done = ran(["sh", "-c", line], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == code, done.stderr
    assert (done.stdout + done.stderr).startswith(told)


def test_a_command_for_root_is_found_whatever_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = pytest.importorskip("docker")
    from populora_plugins.machine import sandbox_image

    def absent(tag: str) -> None:
        raise docker.errors.ImageNotFound(tag)

    client = SimpleNamespace(images=SimpleNamespace(get=absent))
    monkeypatch.setattr(sandbox_image, "connect_daemon", lambda: client)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    own = environment(tmp_path / "my project", monkeypatch)
    for path in (own.parent, tmp_path):
        monkeypatch.setenv("PATH", str(path))
        with pytest.raises(SandboxUnavailable, match="needs root") as refused:
            sandbox_image.debootstrap_base(lambda line: None)
        assert typed(refused.value.fix) == f"sudo '{own}' image build --from-debootstrap"
    own.unlink()
    assert as_root("image").endswith("python' -m populora_core.commands image")
