"""The revision of the code is its own clone's, whoever owns that, and no other repository's."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ran

from populora_core.support import revision

OTHER_USER = 12345
GIT = tuple(map(int, re.findall(r"\d+", ran(["git", "--version"], check=True).stdout)[:2]))


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in the place of ours; git heeds no configuration of this machine."""
    for name, value in {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "code.py").write_text("first\n")
    git(folder, "init", "--quiet")
    git(folder, "add", "code.py")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "first")
    monkeypatch.setattr(revision, "REPOSITORY", folder.resolve())
    return folder


def git(folder: Path, *arguments: str) -> str:
    return ran(["git", "-C", folder, *arguments], check=True).stdout.strip()


def found() -> str:
    """The revision that another process would find."""
    return revision.code_revision.__wrapped__()


def test_a_clone_names_its_head_and_says_where_the_code_differs(clone: Path) -> None:
    head = git(clone, "rev-parse", "--short=12", "HEAD")
    assert found() == head
    (clone / "code.py").write_text("second\n")
    assert found() == f"{head}+changes"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.skipif(GIT < (2, 38), reason="git heeds a safe.directory of the command line from 2.38 on")
def test_a_clone_of_another_user_names_its_head(clone: Path) -> None:
    head = git(clone, "rev-parse", "--short=12", "HEAD")
    for path in (clone, *clone.rglob("*")):
        os.chown(path, OTHER_USER, OTHER_USER)
    with pytest.raises(subprocess.CalledProcessError):
        git(clone, "status")
    assert found() == head


def test_files_unpacked_within_another_repository_have_no_revision_of_it(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = clone / "populora-main"
    unpacked.mkdir()
    monkeypatch.setattr(revision, "REPOSITORY", unpacked.resolve())
    assert git(unpacked, "rev-parse", "HEAD")
    assert found() == "unknown"
