"""A run is resumed from any folder: what its configuration names by a relative path is recorded by an absolute one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import small_config, start, write_lines

from populora_core.config.load import Config
from populora_core.runs.absolute import absolute
from populora_core.runs.run import Run, is_begun_with
from populora_core.stages.decisive import decisive
from populora_core.support.shipped import shipped

SECTIONS = ("adapters", "evaluate", "anchors", "update")


@pytest.fixture
def relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A configuration of the working folder's files."""
    monkeypatch.chdir(tmp_path)
    Path("base").symlink_to(Config().base.folder())
    shutil.copy(shipped("configs", "suites", "tiny.toml"), "own.toml")
    write_lines(Path("texts.jsonl"), [{"prompt": "a", "completion": "b"}])
    return small_config(
        base={"path": "base"},
        evaluate={"every": 2, "suite": "own.toml"},
        anchors={"share": 0.2, "parameters": {"path": "texts.jsonl"}},
        update={"corpus_share": 0.1, "corpus": "texts.jsonl"},
    )


def test_a_run_finds_its_files_from_another_folder(
    relative: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = decisive(relative, SECTIONS)
    run = start(tmp_path / "run", relative)
    assert is_begun_with(run.config, relative)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = Run.open(run.directory).config
    assert config.base.path == str(tmp_path / "base") and config.base.folder().is_dir()
    assert config.evaluate.file() == tmp_path / "own.toml"
    assert decisive(config, SECTIONS) == keys


def test_a_run_that_is_moved_with_its_files_finds_them(
    relative: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a clone with its runs is copied to another machine."""
    (tmp_path / "old").mkdir()
    for name in ("base", "own.toml", "texts.jsonl"):
        (tmp_path / name).rename(tmp_path / "old" / name)
    monkeypatch.chdir(tmp_path / "old")
    keys = decisive(relative, SECTIONS)
    run = start(tmp_path / "old" / "runs" / "first", relative)
    (tmp_path / "old").rename(tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    config = Run.open(Path("runs", "first")).config
    assert config == absolute(relative) != run.config
    assert decisive(config, SECTIONS) == keys
    assert is_begun_with(config, relative)
    monkeypatch.chdir(tmp_path)
    assert Run.open(tmp_path / "new" / "runs" / "first").config == run.config, "nothing lies there from here"


def test_a_name_that_is_no_path_from_here_is_recorded_as_it_is(tmp_path: Path) -> None:
    config = small_config(
        evaluate={"suite": "not/here.toml"},
        adapters={"start_from": {"students": ["~/adapter"]}},
        update={"corpus": "tests"},  # of which no share is learnt
    )
    assert absolute(config) == config
    recorded = json.loads((start(tmp_path / "run", small_config()).directory / "run.json").read_text())
    assert recorded["config"] == small_config().as_json()
