"""A run is resumed from any folder: what its configuration names by a relative path is recorded by an absolute one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from conftest import small_config, start, write_lines

from populora_core.benchmarks.items import load_items
from populora_core.benchmarks.suite import DATA, load_suite
from populora_core.config.load import Config
from populora_core.runs.absolute import absolute, moved
from populora_core.runs.run import Run, is_begun_with
from populora_core.stages.decisive import decisive
from populora_core.support.errors import BenchmarkError, ConfigError, RunDirectoryError
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


def test_rows_that_lie_beside_their_suite_are_found_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    own.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(own)
    shutil.copy(DATA / "tiny.parquet", "rows.parquet")
    Path("own.toml").write_text(
        'suite = "own"\n[[benchmarks]]\nbenchmark = "tiny_code_o"\ndataset = "file:rows.parquet"\n'
    )
    config = small_config(evaluate={"every": 2, "suite": "own.toml"})
    keys, run = decisive(config, SECTIONS), start(tmp_path / "run", config)
    monkeypatch.chdir(elsewhere)
    found = Run.open(run.directory).config
    assert decisive(found, SECTIONS) == keys
    (entry,) = load_suite(found.evaluate.file()).benchmarks
    assert load_items(entry) and entry.dataset == "file:rows.parquet"
    (elsewhere / "rows.parquet").write_text("what lies in the working folder is read, as ever")
    assert entry.here == Path("rows.parquet")
    for folder in (own, elsewhere):
        (folder / "rows.parquet").unlink()
    with pytest.raises(BenchmarkError, match=f"no benchmark file {own}") as gone:
        load_items(entry)
    assert "beside the suite's file" in gone.value.fix and "fetch" not in gone.value.fix


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


@pytest.fixture
def latin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, whose name is not UTF-8."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/jos\xe9"))
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("latin")
def test_a_run_that_is_begun_in_a_folder_whose_name_is_not_utf_8_is_opened(tmp_path: Path) -> None:
    run = start(tmp_path / "run", small_config())
    assert Run.open(run.directory).config == run.config


def test_a_run_that_would_lie_or_find_a_file_in_such_a_folder_is_refused(latin: Path, tmp_path: Path) -> None:
    """No record and no table's path can hold the name."""
    with pytest.raises(RunDirectoryError, match=r"jos\?/run, whose name is not UTF-8"):
        start(latin / "run", small_config())
    shutil.copy(shipped("configs", "suites", "tiny.toml"), "own.toml")
    with pytest.raises(ConfigError, match=r"jos\?/own\.toml, which is not UTF-8"):
        start(tmp_path / "run", small_config(evaluate={"suite": "own.toml"}))
    assert not (latin / "run").exists() and not (tmp_path / "run").exists()


def test_no_suite_stays_no_suite_in_a_run_that_does_not_tell_where_it_began() -> None:
    config = small_config(evaluate={"every": 0, "suite": ""})
    assert moved(config, "") == config


def test_a_name_that_is_no_path_from_here_is_recorded_as_it_is(tmp_path: Path) -> None:
    config = small_config(
        evaluate={"suite": "not/here.toml"},
        adapters={"start_from": {"students": ["~/adapter"]}},
        update={"corpus": "tests"},  # of which no share is learnt
    )
    assert absolute(config) == config
    recorded = json.loads((start(tmp_path / "run", small_config()).directory / "run.json").read_text())
    assert recorded["config"] == small_config().as_json()
