"""Hashes of files: read once per content, whatever its names, and again whenever it changed."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from populora_core.support import digest
from populora_core.support.digest import file_sha256

LONG_AGO = 1_700_000_000


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read for their hash."""
    found: list[Path] = []
    read = digest.read_sha256
    monkeypatch.setattr(digest, "read_sha256", lambda path: found.append(path) or read(path))
    return found


def written(path: Path, data: bytes, when: int = LONG_AGO) -> Path:
    path.write_bytes(data)
    os.utime(path, (when, when))
    return path


def test_a_link_and_a_rename_are_not_read(tmp_path: Path, reads: list[Path]) -> None:
    path = written(tmp_path / "file", b"content")
    expected = file_sha256(path)
    assert expected == hashlib.sha256(b"content").hexdigest()
    os.link(path, tmp_path / "link")
    os.rename(path, tmp_path / "renamed")
    assert {file_sha256(tmp_path / name) for name in ("link", "renamed")} == {expected}
    assert reads == [path]


def test_other_bytes_of_the_same_length_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "file", b"content")
    before = file_sha256(path)
    written(path, b"another", LONG_AGO + 1)
    assert file_sha256(path) != before


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path, reads: list[Path]) -> None:
    path = written(tmp_path / "file", b"content")
    now = time.time_ns() + 10**12  # a clock that is far ahead stands for a file that is young
    os.utime(path, ns=(now, now))
    assert file_sha256(path) == file_sha256(path)
    assert reads == [path, path]
