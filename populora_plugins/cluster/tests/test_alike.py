"""Workers with other code than the driver's are refused, though both are of one version."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from conftest import ran

from populora_core.support.errors import ClusterUnavailable
from populora_core.support.shipped import REPOSITORY
from populora_plugins.cluster.alike import CODE, code_digest, require_alike

DIGEST = "from populora_plugins.cluster.alike import code_digest; print(code_digest())"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The code of another machine, of our version, without tests and compiled files."""
    for package in ("populora_core", "populora_plugins"):
        shutil.copytree(
            REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "tests")
        )
    return tmp_path


def digest(tree: Path) -> str:
    """The digest that a worker finds which runs this code."""
    done = ran([sys.executable, "-c", DIGEST], cwd=tree, env={"PYTHONPATH": str(tree)})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_one_other_file_is_other_code_and_tests_or_compiled_files_are_not(tree: Path) -> None:
    same = digest(tree)
    (tree / "populora_core/tests").mkdir()
    (tree / "populora_core/tests/test_more.py").touch()
    assert list(tree.rglob("__pycache__"))
    require_alike("worker-1", {CODE: digest(tree)}, {CODE: same})
    for file in ("populora_core/learner/loss.py", "populora_core/problems/templates/instruct/rules.txt"):
        with open(tree / file, "a") as changed:
            changed.write("\n")
        other = digest(tree)
        with pytest.raises(
            ClusterUnavailable, match="worker-1 has other versions than this machine"
        ) as refused:
            require_alike("worker-1", {"torch": "2", CODE: other}, {"torch": "2", CODE: same})
        assert (refused.value.expected, refused.value.got) == (f"{CODE} {same}", f"{CODE} {other}")
        assert "the same revision" in refused.value.fix
        same = other


def test_a_worker_that_does_not_say_what_it_runs_is_refused() -> None:
    with pytest.raises(ClusterUnavailable) as refused:
        require_alike("worker-1", {}, {CODE: code_digest()})
    assert refused.value.got == f"{CODE} unsaid"
