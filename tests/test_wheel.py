"""The package: what the wheel holds, and that it plays a generation where there is no clone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ran

pytestmark = [pytest.mark.thorough, pytest.mark.loop, pytest.mark.sandbox]

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    ran(command, cwd=REPOSITORY, check=True)
    (built,) = target.glob("*.whl")
    return built


def test_it_puts_our_names_at_the_top_and_no_results_of_benchmarks_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "populora_core",
        "populora_plugins",
        f"{wheel.name.split('-py3')[0]}.dist-info",
    }
    assert not [name for name in names if "bench/" in name or "__pycache__" in name or "/tests/" in name]
    assert {"populora_core/py.typed", "populora_core/shipped/verifier_image/runner.py"} <= set(names)
    assert wheel.stat().st_size < 12e6


def test_from_any_folder_it_plays_a_preset_and_says_what_stays_in_the_clone(
    wheel: Path, tmp_path: Path
) -> None:
    """Its files come before the clone's, as in an environment of their own; the other packages are these."""
    installed = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(installed)

    def populora(*arguments: str) -> subprocess.CompletedProcess[str]:
        script = (
            f"import sys; sys.path[:] = [{str(installed)!r}, "
            f"*(place for place in sys.path if place not in ('', {str(REPOSITORY)!r}))]; "
            "from populora_core.commands.app import main; main()"
        )
        return ran(
            [sys.executable, "-P", "-c", script, *arguments],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(installed)},
        )

    done = populora("run", "--preset", "quick", "--generations", "1", "--set", "propose.per_type=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "runs/quick/report.html").exists()
    refused = populora("run", "--prefect", "--preset", "quick")
    assert refused.returncode == 2 and "a clone of the repository" in refused.stderr
    assert not (tmp_path / "runs/quick-2").exists()
    shown = populora("study", "--help")
    assert shown.returncode == 0 and "arms and seeds" in shown.stdout, "plug-ins come along"
    refused = populora("bench", "learner")
    assert refused.returncode == 2 and "work in a clone" in refused.stderr
    asked = ("query", "runs/quick", "SELECT max(generation) AS last FROM problems", "--format", "csv")
    assert populora(*asked).stdout.split() == ["last", "1"]
