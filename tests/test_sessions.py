"""Sessions of pytest share nothing with each other, and nothing with whoever starts them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from conftest import ran
from house import ROOT

CALLERS = {
    "PREFECT_API_URL": "http://127.0.0.1:9/api",
    "PREFECT_PROFILE": "theirs",
    "PREFECT_HOME": "/theirs",
    "POPULORA_SHARED": "1",
    "POPULORA_TRUST": "theirs:reward",
}


def ended(folder: Path, case: str, environment: dict[str, str]) -> str:
    """What pytest says of this case under the project's settings and hooks, where the environment is the caller's."""
    (folder / "test_one.py").write_text(f"import os\n{case}")
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    arguments = ["-m", "pytest", "-c", ROOT / "pyproject.toml", "-p", "conftest"]
    said = ran(
        [sys.executable, *arguments, f"--basetemp={folder / 'made' / 'own'}", "test_one.py"],
        cwd=folder,
        env=outside | {"PYTHONPATH": str(ROOT / "tests")} | environment,
    )
    return said.stdout + said.stderr


def test_no_session_reaches_what_its_caller_set(tmp_path: Path) -> None:
    case = f"def test(): assert {CALLERS!r}.items().isdisjoint(os.environ.items())\n"
    assert "1 passed" in (said := ended(tmp_path, case, CALLERS)), said


def test_an_audit_of_a_run_of_theirs_takes_what_they_trust(tmp_path: Path) -> None:
    trusted = {"POPULORA_TRUST": "theirs:reward"}
    case = f"def test(): assert {trusted!r}.items() <= os.environ.items()\n"
    assert "1 passed" in (said := ended(tmp_path, case, trusted | {"POPULORA_RUN": "runs/demo"})), said


def test_a_session_that_a_worker_of_another_starts_shares_nothing_with_that(tmp_path: Path) -> None:
    """It shares with no process: what it makes once lies in its own folder, not beside that."""
    (tmp_path / "made").mkdir()
    case = (
        "def test(shared_folder, tmp_path_factory): assert shared_folder == tmp_path_factory.getbasetemp()\n"
    )
    assert "1 passed" in (said := ended(tmp_path, case, {"PYTEST_XDIST_WORKER": "gw0"})), said
