"""A full disk and a read-only one: a clear error, and nothing that was committed is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import GENERATIONS, contents, ran, small_config, start

from populora_core.lifecycle import loop
from populora_core.lifecycle.loop import train
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.store.catalogue import CATALOGUE, publish
from populora_core.support.errors import ArtifactError

ROOT = Path(__file__).resolve().parent.parent
FIRST, GROWTH = 48 << 10, 3  # bytes that are free, and how many times as many the next time

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


class Disk:
    """A small file system in memory.

    Raises:
        CalledProcessError: mounting is not permitted here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._call("mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", str(path))

    def remount(self, options: str) -> None:
        self._call("mount", "-o", f"remount,{options}", str(self.path))

    def limit(self, free: int) -> None:
        """Leave this many bytes free."""
        self.remount(f"size={shutil.disk_usage(self.path).used + free}")

    def close(self) -> None:
        self._call("umount", str(self.path))

    @staticmethod
    def _call(*command: str) -> None:
        ran(command, check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    try:
        disk = Disk(path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk needs the right to mount: {error}")
    try:
        yield disk
    finally:
        disk.close()


@pytest.fixture
def directory(disk: Disk, finished: Path) -> Path:
    """A copy of the finished run on the small disk."""
    return Path(shutil.copytree(finished, disk.path / "run"))


@pytest.mark.thorough
def test_a_disk_that_fills_up_in_any_stage_loses_nothing(
    disk: Disk, directory: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others fill it after the run has asked whether there is room for a generation."""
    monkeypatch.setattr(loop, "require_space", lambda run: None)
    refusals: list[str] = []
    with Session(Run.open(directory)) as session:
        while True:
            before = contents(directory)
            disk.limit(FIRST * GROWTH ** len(refusals))
            try:
                train(session, GENERATIONS + 1)
                break
            except ArtifactError as error:
                refusals.append(error.problem)
                assert "No space left on device" in error.got
                assert error.fix.startswith("free space on the disk")
            after = contents(directory)
            assert before.items() <= after.items()
            assert not list((directory / "generations").rglob(".tmp-*"))
        disk.remount("size=512m")
    assert len(refusals) >= 3, "several writers met the full disk"
    assert contents(directory).items() > contents(finished).items()


def test_a_catalogue_that_finds_no_room_leaves_the_old_one(disk: Disk, directory: Path) -> None:
    before = (directory / CATALOGUE).read_bytes()
    for free in (0, len(before) // 4):
        disk.limit(free)
        with pytest.raises(ArtifactError) as refusal:
            publish(directory)
        assert refusal.value.fix == "free space on the disk, then resume"
        assert (directory / CATALOGUE).read_bytes() == before
        assert not list(directory.glob(".tmp-*"))


@pytest.mark.thorough
def test_a_read_only_run_is_refused_plainly_and_can_be_looked_at(disk: Disk, directory: Path) -> None:
    before = contents(directory)
    disk.remount("ro")

    def populora(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "populora_core.commands", *arguments]
        return ran(line, cwd=ROOT)

    for command in (["resume", "--plain"], ["rerun", "--generation", "3", "--stage", "evolve"]):
        refused = populora(*command, str(directory))
        assert refused.returncode == 2
        assert "Read-only file system" in refused.stderr
        assert "fix the cause, then resume" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert populora("inspect", str(directory)).returncode == 0
    assert populora("query", str(directory), "SELECT 1").returncode == 0
    disk.remount("rw")
    assert contents(directory) == before
    assert not list(directory.rglob(".tmp-*"))


def test_a_run_cannot_be_started_on_a_read_only_disk(disk: Disk) -> None:
    disk.remount("ro")
    with pytest.raises(ArtifactError, match="could not be written"):
        start(disk.path / "run", small_config())
