"""A store or a run directory that somebody else wrote is data: nothing outside the run is written, moved or read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shared_run import MEMBER, begin, make
from store_run import TEACHER, adapter_row, commit_stage, write_run
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.config.load import apply_overrides
from populora_core.lifecycle import pruning
from populora_core.lifecycle.loop import fork
from populora_core.report.write import write_report
from populora_core.runs.heartbeat import Beat
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sharing.places import LocalObjects
from populora_core.store.artifacts import StageWriter, supersede
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.durable import write_atomically
from populora_core.support.errors import ArtifactError, PopuloraError, RunDirectoryError
from populora_core.support.received import below
from populora_plugins.cluster.pull import pull

Document = Any
PLACE = f"members/{MEMBER}/g0000"
NEIGHBOUR = "/NEIGHBOUR"  # in an entry: where the neighbour is
DEEP = "[" * 200_000 + "]" * 200_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds one stage with one member; copy it, never write to it."""
    folder = tmp_path_factory.mktemp("shared")
    make(begin(folder / "run", (folder / "store").as_uri()).directory)
    return folder / "store"


class Received:
    """A copy of the store to tamper with, a victim to pull it, and a neighbour that must stay as it is."""

    def __init__(self, folder: Path, shared: Path) -> None:
        self.store, self.victim, self.neighbour = (
            folder / name for name in ("store", "victim/run", "neighbour")
        )
        shutil.copytree(shared, self.store)
        (self.neighbour / "kept").mkdir(parents=True)
        (self.neighbour / "kept" / "file").write_text("mine")
        (self.entry,) = (path for path in self.store.glob("stages/*/*/*"))
        self._before = self._outside()

    def put(self, change: Callable[[Document], Document]) -> None:
        """Put another entry in place of the stage's."""
        document = json.dumps(change(json.loads(self.entry.read_text())))
        self.entry.write_text(document.replace(NEIGHBOUR, str(self.neighbour)))

    def object(self, data: bytes) -> str:
        return LocalObjects(self.store).put_bytes(data)

    def pull(self) -> None:
        pull(self.store.as_uri(), self.victim)

    def require_untouched(self) -> None:
        assert self._outside() == self._before

    def _outside(self) -> dict[str, bytes | None]:
        root = self.store.parent
        inside = (self.store, self.victim)
        return {
            str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
            for path in root.rglob("*")
            if not any(path == each or each in path.parents for each in inside) and path.name != "victim"
        }


@pytest.fixture
def received(tmp_path: Path, shared: Path) -> Received:
    return Received(tmp_path, shared)


def renamed(place: str) -> Callable[[Document], Document]:
    """The member's folder, in the entry and in the manifest, has this place."""

    def change(document: Document) -> Document:
        return json.loads(json.dumps(document).replace(PLACE, place))

    return change


def with_manifest(**values: object) -> Callable[[Document], Document]:
    return lambda document: {**document, "manifest": {**document["manifest"], **values}}


def with_file(**values: object) -> Callable[[Document], Document]:
    def change(document: Document) -> Document:
        document["manifest"]["files"][0] |= values
        return document

    return change


def with_adapter_file(**values: object) -> Callable[[Document], Document]:
    def change(document: Document) -> Document:
        document["adapters"][0] |= values
        return document

    return change


def without_the_probe(document: Document) -> Document:
    return {**document, "adapters": document["adapters"][:-1]}


def with_another_member_twice(document: Document) -> Document:
    return {**document, "adapters": document["adapters"] * 2}


def with_hashes_of_others(document: Document) -> Document:
    document["manifest"]["extra"]["adapters"][PLACE] = {"adapter_model.safetensors": "0" * 64}
    return document


TAMPERED: dict[str, Callable[[Document], Document]] = {
    "member-folder-beside-the-run": renamed("../../neighbour/loot/x"),
    "member-folder-absolute": renamed(f"{NEIGHBOUR}/loot/x"),
    "member-folder-that-exists": renamed("../../neighbour/kept"),
    "member-folder-by-way-of-members": renamed(f"members/{MEMBER}/../../../../neighbour/kept"),
    "member-folder-of-no-member": renamed("members/anyone/g0000"),
    "member-folder-is-the-record": renamed("run.json"),
    "member-folder-with-a-null": renamed(f"members/{MEMBER}/g0000\\u0000"),
    "stage-beside-the-run": with_manifest(stage="../../../../neighbour/stage"),
    "stage-absolute": with_manifest(stage=f"{NEIGHBOUR}/stage"),
    "stage-of-another-name": with_manifest(stage="match"),
    "stage-that-is-hidden": with_manifest(stage=".hidden"),
    "generation-below-zero": with_manifest(generation=-1),
    "generation-of-another-stage": with_manifest(generation=7),
    "generation-beyond-all-numbers": with_manifest(generation=1 << 70),
    "key-of-another-stage": with_manifest(key="0" * 64),
    "file-beside-the-run": with_file(name="../../../../neighbour/kept/file"),
    "file-absolute": with_file(name=f"{NEIGHBOUR}/kept/file"),
    "file-whose-hash-is-a-path": with_file(sha256="../../neighbour/kept/file"),
    "file-of-all-bytes-there-are": with_file(bytes=1 << 70),
    "member-file-beside-its-folder": with_adapter_file(name=f"{PLACE}/../../../../neighbour/x"),
    "member-file-that-no-member-has": with_adapter_file(name=f"{PLACE}/run.sh"),
    "member-without-a-file": without_the_probe,
    "member-with-files-twice": with_another_member_twice,
    "member-with-hashes-of-others": with_hashes_of_others,
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_store_that_was_tampered_with_reaches_nothing_outside_the_run(
    received: Received, name: str
) -> None:
    received.put(TAMPERED[name])
    with pytest.raises(PopuloraError) as said:
        received.pull()
    assert said.value.problem
    received.require_untouched()
    assert not (received.victim / "members").exists()


def with_record(change: Callable[[Document], Document]) -> Callable[[Path], None]:
    def damage(store: Path) -> None:
        path = store / "run.json"
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return damage


def with_entry(**values: object) -> Callable[[Path], None]:
    def damage(store: Path) -> None:
        (path,) = store.glob("stages/*/*/*")
        path.write_text(json.dumps(with_manifest(**values)(json.loads(path.read_text()))))

    return damage


def with_text(name: str, text: bytes) -> Callable[[Path], None]:
    def damage(store: Path) -> None:
        (store / name).parent.mkdir(exist_ok=True)
        (store / name).write_bytes(text)

    return damage


def halved(store: Path) -> None:
    text = (store / "run.json").read_bytes()
    (store / "run.json").write_bytes(text[: len(text) // 2])


DAMAGED: dict[str, Callable[[Path], None]] = {
    "record-is-a-list": with_record(lambda record: []),
    "record-is-empty": with_record(lambda record: {}),
    "record-is-half": halved,
    "record-is-binary": with_text("run.json", b"\x80\xff\x00"),
    "record-is-nested": with_text("run.json", DEEP.encode()),
    "record-of-a-text-for-a-configuration": with_record(lambda record: record | {"config": "none"}),
    "record-forked-from-a-text": with_record(lambda record: record | {"forked_from": "elsewhere"}),
    "history-is-a-list": with_text("history/000001", b"[]"),
    "history-is-nested": with_text("history/000001", DEEP.encode()),
    "extra-is-a-list": with_entry(extra=[]),
    "extra-of-a-number": with_entry(extra={"adapters": 7}),
    "generation-is-a-text": with_entry(generation="0"),
    "never-started": with_entry(started_at=None),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_store_that_was_damaged_ends_with_a_sentence(received: Received, name: str) -> None:
    DAMAGED[name](received.store)
    with pytest.raises(PopuloraError) as said:
        received.pull()
    assert len(str(said.value)) < 3000
    received.require_untouched()


def test_an_object_that_is_a_link_is_no_object(received: Received) -> None:
    secret = received.neighbour / "kept" / "file"
    sha256 = hashlib.sha256(secret.read_bytes()).hexdigest()
    received.put(with_file(sha256=sha256))
    (received.store / "objects" / sha256).symlink_to(secret)
    with pytest.raises(PopuloraError, match="no object"):
        received.pull()


@pytest.mark.parametrize("part", ["objects", "run.json"])
def test_a_store_of_pipes_ends_with_a_sentence(received: Received, part: str) -> None:
    place = received.store / part
    for path in [place] if place.is_file() else [each for each in place.rglob("*") if each.is_file()]:
        path.unlink()
        os.mkfifo(path)
    with pytest.raises(PopuloraError):
        received.pull()


def test_a_record_without_a_store_is_given_one(received: Received) -> None:
    def without_store(record: Document) -> Document:
        del record["config"]["store"]
        return record

    with_record(without_store)(received.store)
    received.pull()
    assert Run.open(received.victim).config.store.url == received.store.as_uri()


# A run directory


@pytest.mark.parametrize("link", ["members", "generations", "generations/0001/match", ".lock", "superseded"])
def test_a_run_whose_links_lead_out_is_not_opened(tmp_path: Path, link: str) -> None:
    run, outside = begin(tmp_path / "run", ""), tmp_path / "outside"
    outside.mkdir()
    (run.directory / link).parent.mkdir(parents=True, exist_ok=True)
    (run.directory / link).symlink_to(outside)
    with pytest.raises(RunDirectoryError, match="leads out of"):
        Run.open(run.directory)
    assert not list(outside.iterdir())


def test_a_run_may_lie_behind_a_link(tmp_path: Path) -> None:
    begin(tmp_path / "run", "")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with Session(Run.open(tmp_path / "link")) as session:
        assert session.run.directory == tmp_path / "run"


def test_prune_removes_nothing_that_a_row_names_outside_the_run(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", "")
    write_run(run.directory, generations=6)
    outside = tmp_path / "precious" / "x"
    outside.mkdir(parents=True)
    for name in ("adapter_model.safetensors", "moments.safetensors"):
        (outside / name).write_text("mine")
    row = adapter_row(1, TEACHER) | {"path": "../precious/x"}
    commit_stage(run.directory, 1, "update", {"adapters": [row]})
    with pytest.raises(ArtifactError, match="leads out of"):
        pruning.prune(Run.open(run.directory), keep=1)
    assert sorted(path.read_text() for path in outside.iterdir()) == ["mine", "mine"]


@pytest.mark.parametrize("place", ["../other", "/tmp/other", "inside/../../other"])
def test_nothing_is_moved_or_written_outside_a_run(tmp_path: Path, place: str) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    (run / "inside").mkdir(parents=True)
    other.mkdir()
    with pytest.raises(ArtifactError, match="leads out of"):
        below(run, place)
    with pytest.raises(ArtifactError, match="leads out of"):
        supersede(run, run / place)
    with pytest.raises(ArtifactError, match="leads out of"):
        StageWriter(run, 1, place if place[0] == "/" else f"../../{place}")
    assert list(other.iterdir()) == []


def test_a_manifest_of_another_stage_or_behind_a_link_is_none(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", generations=1)
    solve, grade = (stage_dir(run, 1, name) for name in ("solve", "grade"))
    shutil.copy(solve / "manifest.json", grade / "manifest.json")
    assert read_manifest(solve) is not None
    assert read_manifest(grade) is None
    os.rename(solve / "manifest.json", tmp_path / "manifest.json")
    (solve / "manifest.json").symlink_to(tmp_path / "manifest.json")
    assert read_manifest(solve) is None


def test_a_report_goes_on_without_a_stage_whose_manifest_is_damaged(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", "")
    write_run(run.directory)
    (stage_dir(run.directory, 1, "grade") / "manifest.json").write_text("{")
    assert write_report([run.directory], tmp_path / "report.html").is_file()


# Every reader


@pytest.mark.parametrize(
    "name", ["run.json", "heartbeat.json", "redraws.json", "generations/0001/match/manifest.json"]
)
@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        "null",
        "{",
        *(pytest.param(text, marks=pytest.mark.thorough) for text in ('{"a": ' * 100_000, "", "[]", "7")),
    ],
)
def test_a_damaged_file_of_a_run_is_no_traceback(tmp_path: Path, name: str, text: str) -> None:
    run = begin(tmp_path / "run", "")
    write_run(run.directory, generations=1)
    (run.directory / name).write_text(text)
    done = CliRunner().invoke(app, ["inspect", str(run.directory)])
    assert done.exception is None or isinstance(done.exception, PopuloraError | SystemExit), done.exception
    assert name != "heartbeat.json" or Beat.read(run.directory) is None


def test_a_nested_configuration_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text(f"a = {DEEP}")
    done = CliRunner().invoke(
        app, ["run", "--config", str(tmp_path / "deep.toml"), "--run-dir", "x", "--dry-run"]
    )
    assert isinstance(done.exception, PopuloraError)
    assert "nested too deeply" in str(done.exception)


def test_a_run_inside_a_run_is_refused(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", "").directory
    with pytest.raises(RunDirectoryError, match="lies in the run"):
        begin(run / "members" / "inner", "")
    assert not (run / "members").exists()


def test_a_file_is_put_in_place_of_plain_files_alone(tmp_path: Path) -> None:
    """As `populora report --output /dev/null` by root would have replaced the device."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ArtifactError, match="no plain file"):
            write_atomically(path, "text")
    assert (tmp_path / "pipe").is_fifo()


def test_a_fork_takes_over_no_link_that_leads_out(tmp_path: Path) -> None:
    source = begin(tmp_path / "source", "")
    make(source.directory)
    (tmp_path / "mine").write_text("mine")
    (stage_dir(source.directory, 0, "found") / "more.parquet").symlink_to(tmp_path / "mine")
    with pytest.raises(ArtifactError, match="leads out"):
        fork(Run.open(source.directory), 0, tmp_path / "forked", source.config)
    assert not (tmp_path / "forked").exists()


def test_a_fork_writes_to_no_store_that_only_the_old_run_names(tmp_path: Path) -> None:
    source = begin(tmp_path / "source", "")
    make(source.directory)
    (tmp_path / "mine").mkdir()
    with_store = apply_overrides(source.config, [f"store.url={(tmp_path / 'mine').as_uri()}"])
    document = json.loads((source.directory / "run.json").read_text())
    (source.directory / "run.json").write_text(json.dumps(document | {"config": with_store.as_json()}))
    with pytest.raises(RunDirectoryError, match=r"store\.url="):
        fork(Run.open(source.directory), 0, tmp_path / "forked", with_store)
    assert not list((tmp_path / "mine").iterdir())
