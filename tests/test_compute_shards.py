"""A shard is committed once, found again by what it follows from, and gone when its stage is committed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import alive, contents, ran, small_config, start, wait_for
from s3_server import BUCKET, LOGIN, serving, skip_where_missing

from populora_core.compute.shards import Shards
from populora_core.compute.work import Committed, Generate, Prompt, Shard, Worker
from populora_core.runs.session import Session
from populora_core.sampler.requests import Served
from populora_core.sharing.objects import object_key
from populora_core.sharing.places import open_objects
from populora_core.store.artifacts import sweep
from populora_core.store.manifest import MANIFEST, read_manifest, shards_dir, stage_dir, stage_folders
from populora_core.support.aliases import Progress
from populora_core.support.durable import TEMPORARY_PREFIX
from populora_core.support.errors import ArtifactError
from populora_plugins.cluster.parcels import Inbox, Outbox

ROOT = Path(__file__).resolve().parent.parent


class Here(Worker):
    """A worker in this process, which is asked directly and remembers the numbers that it joined."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
        return [self.perform(shard, progress or (lambda done: None)) for shard in shards]

    @property
    def pids(self) -> Sequence[int]:
        return ()


@dataclass(frozen=True)
class Join:
    """Reads one file, and writes three."""

    number: int
    source: Path

    def run(self, worker: Here, folder: Path, progress: Progress) -> Any:
        worker.calls.append(self.number)
        progress(2)
        text = self.source.read_text() + str(self.number)
        (folder / f"out{self.number}").write_text(text)
        for name in ("a", "a-b"):
            (folder / f"{name}{self.number}").mkdir()
            (folder / f"{name}{self.number}" / "weights").write_text(text + name)
        return {"text": text, "logprob": 0.1 + self.number}


@pytest.fixture
def joins(tmp_path: Path) -> Callable[..., list[Join]]:
    """Parts that read one file."""

    def make(text: str = "read ", numbers: Sequence[int] = (0, 1, 2)) -> list[Join]:
        (tmp_path / "source").write_text(text)
        return [Join(number, tmp_path / "source") for number in numbers]

    return make


def mapped(
    tmp_path: Path, joins: list[Join], key: str = "stage", into: str = "one"
) -> tuple[Here, Shards, list[Any]]:
    here = Here()
    shards = Shards(here, key, tmp_path / ".shards-solve", files=tmp_path / into)
    return here, shards, shards.map(joins)


def test_results_come_in_order_and_files_are_in_one_folder(tmp_path: Path, joins: Callable) -> None:
    _, shards, results = mapped(tmp_path, joins())
    assert results == [{"text": f"read {n}", "logprob": 0.1 + n} for n in range(3)]
    assert (tmp_path / "one/out1").read_text() == "read 1"
    assert (tmp_path / "one/a-b2/weights").read_text() == "read 2a-b"
    assert [(r["function"], r["shard"], r["reused"], r["pid"]) for r in shards.records] == [
        ("join", n, False, os.getpid()) for n in range(3)
    ]
    shards.release()
    assert not shards.folder.exists()


def test_what_is_committed_is_not_done_again_wherever_its_files_go(tmp_path: Path, joins: Callable) -> None:
    mapped(tmp_path, joins(numbers=(0, 1)))
    counted: list[int] = []
    here = Here()
    shards = Shards(here, "stage", tmp_path / ".shards-solve", files=tmp_path / "two")
    results = shards.map(joins(), counted.append)
    assert here.calls == [2]
    assert [record["reused"] for record in shards.records] == [True, True, False]
    assert [result["text"] for result in results] == ["read 0", "read 1", "read 2"]
    assert (tmp_path / "two/out0").read_text() == "read 0"
    assert sum(counted) == 6, "what was found counts as done"


def test_in_a_shared_store_only_documents_and_results_go(tmp_path: Path, joins: Callable) -> None:
    """Files stay: they are content that other stages may name as well."""
    here, url = Here(), (tmp_path / "shared").as_uri()
    shards = Shards(here, "stage", tmp_path / ".shards-solve", url)
    results = shards.map(joins(numbers=(0,)))
    store = open_objects(url)
    assert len(list(store.listing("shards"))) == 1
    assert len(list(store.listing("objects"))) == 4
    shards.release()
    assert not list(store.listing("shards"))
    assert sorted(store.get_bytes(Path(each.key).name) for each in store.listing("objects")) == [
        b"read 0",
        b"read 0a",
        b"read 0a-b",
    ]
    again = Shards(here, "stage", tmp_path / ".shards-solve", url)
    assert again.map(joins(numbers=(0,))) == results
    assert here.calls == [0, 0], "released is as never done"


@pytest.mark.s3
def test_shards_are_committed_to_s3_as_to_a_folder(
    tmp_path: Path, joins: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_where_missing()
    import boto3

    with serving() as server:
        for name, value in (LOGIN | {"AWS_ENDPOINT_URL": server.url}).items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        here, url = Here(), f"s3://{BUCKET}/runs/shards"
        for into, calls in (("one", [0, 1]), ("two", [0, 1])):  # the second finds what the first committed
            shards = Shards(here, "stage", tmp_path / ".shards-solve", url, tmp_path / into)
            results = shards.map(joins(numbers=(0, 1)))
            assert [result["text"] for result in results] == ["read 0", "read 1"]
            assert (tmp_path / into / "a1" / "weights").read_text() == "read 1a"
            assert here.calls == calls
        sent = Outbox(open_objects(url)).pack(joins()[0])
        (tmp_path / "inbox").mkdir()
        opened = Inbox(tmp_path / "inbox").unpack(sent, open_objects(url))
        assert opened.source.read_text() == "read "


@pytest.mark.parametrize("change", ["key", "text", "number"])
def test_a_shard_of_another_stage_input_or_number_is_another(
    tmp_path: Path, joins: Callable, change: str
) -> None:
    mapped(tmp_path, joins())
    text = "other " if change == "text" else "read "
    changed = joins(text, (1, 0, 2) if change == "number" else (0, 1, 2))
    here, _, _ = mapped(tmp_path, changed, "other" if change == "key" else "stage")
    assert here.calls == ([1, 0] if change == "number" else [0, 1, 2])


@pytest.mark.parametrize("harm", ["object", "document", "gone", "place"])
def test_a_damaged_shard_is_done_again(tmp_path: Path, joins: Callable, harm: str) -> None:
    _, shards, first = mapped(tmp_path, joins(numbers=(0,)))
    shutil.rmtree(tmp_path / "one")
    (document,) = (shards.folder / "shards").iterdir()
    if harm == "document":
        document.write_text("{")
    elif harm == "place":
        document.write_text(document.read_text().replace("a0/weights", "../weights"))
    else:
        victim = next(p for p in (shards.folder / "objects").iterdir() if p.read_text() == "read 0a")
        victim.unlink()
        if harm == "object":
            victim.write_text("harmed")
    here, _, again = mapped(tmp_path, joins(numbers=(0,)))
    assert here.calls == [0]
    assert again == first
    assert (tmp_path / "one/a0/weights").read_text() == "read 0a"
    assert not (tmp_path / "weights").exists()


def test_a_shard_is_kept_where_the_disk_that_it_goes_to_refuses(
    tmp_path: Path, joins: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, first = mapped(tmp_path, joins(numbers=(0,)))
    shutil.rmtree(tmp_path / "one")

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(ArtifactError, match="could not be written"):
        patch.setattr("populora_core.sharing.places._link_or_copy", full)
        mapped(tmp_path, joins(numbers=(0,)))
    here, _, again = mapped(tmp_path, joins(numbers=(0,)))
    assert (here.calls, again) == ([], first)


def test_a_full_disk_is_no_defect_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def full(path: str | Path, *given: Any, **named: Any) -> None:
        if TEMPORARY_PREFIX in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        make(path, *given, **named)

    (tmp_path / "source").touch()
    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(ArtifactError, match="free space on the disk, then resume"):
        mapped(tmp_path, [Join(0, tmp_path / "source")])


def test_the_first_to_commit_is_right_and_a_late_worker_adopts_it(tmp_path: Path) -> None:
    here, met = Here(), []

    class Overtaken(Join):
        """Another worker is done with the same shard before this one."""

        def run(self, worker: Here, folder: Path, progress: Progress) -> Any:
            if not met:
                met.append(None)
                met[0] = worker.perform(shard, progress)
            return super().run(worker, folder, progress) | {"text": f"from call {len(worker.calls)}"}

    (tmp_path / "source").touch()
    shard = Shard(Overtaken(0, tmp_path / "source"), 0, "0" * 64, (tmp_path / "store").as_uri())
    late = here.perform(shard, lambda done: None)
    assert len(here.calls) == 2
    assert late == met[0]
    assert b"from call 1" in open_objects(shard.store).get_bytes(late.result)


def test_work_that_fails_commits_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        mapped(tmp_path, [Join(0, tmp_path / "nowhere")])
    assert [p for p in (tmp_path / ".shards-solve").rglob("*") if p.is_file()] == []


def test_files_travel_as_objects_and_those_that_no_work_names_go(tmp_path: Path) -> None:
    store = open_objects(str(tmp_path / "store"))
    folders = []
    for generation in (1, 2):
        folder = tmp_path / "student-00" / f"g{generation:04d}"
        folder.mkdir(parents=True)
        for name in ("adapter_model.safetensors", "adapter_config.json", "probe.json"):
            (folder / name).write_text(f"{name} {generation}")
        folders.append(folder)
    earlier = (folders[0] / "probe.json", tmp_path / "pruned" / "g0000" / "probe.json")
    prompt = Prompt("student-00", "text", 0, 1.0, 1.0, 8)
    outbox = Outbox(store)
    sent = outbox.pack(Generate([Served("student-00", folders[1], "0" * 64, earlier)], [prompt]))
    (tmp_path / "inbox").mkdir()
    inbox = Inbox(tmp_path / "inbox")
    opened = inbox.unpack(sent, store)
    assert list(opened.prompts) == [prompt]
    (got,) = opened.adapters
    assert (got.folder / "adapter_model.safetensors").read_text() == "adapter_model.safetensors 2"
    assert got.folder.parts[-2:] == ("student-00", "g0002")
    assert got.earlier[0].read_text() == "probe.json 1"
    assert got.earlier[0].parts[-3:] == ("student-00", "g0001", "probe.json")
    assert not got.earlier[1].exists()
    (tmp_path / "source").write_text("read ")
    sent = outbox.pack(Join(3, tmp_path / "source"))
    assert inbox.unpack(sent, store).source.read_text() == "read "
    assert not got.folder.exists()
    store.delete(f"objects/{sent.source.files[0][1]}")
    shutil.rmtree(tmp_path / "inbox")
    (tmp_path / "inbox").mkdir()
    with pytest.raises(ArtifactError, match="has no object"):
        Inbox(tmp_path / "inbox").unpack(sent, store)


def test_what_came_from_a_store_goes_to_another_as_a_link(tmp_path: Path, joins: Callable) -> None:
    mapped(tmp_path, joins(numbers=(0,)))
    made, own = tmp_path / "one" / "out0", tmp_path / "source"
    for file, linked in ((made, True), (own, False)):
        sent = Outbox(open_objects(str(tmp_path / "store"))).pack(Join(0, file))
        assert (tmp_path / "store" / "objects" / sent.source.files[0][1]).samefile(file) is linked


@pytest.mark.parametrize("with_its_document", [True, False])
def test_a_shard_that_another_machine_released_meanwhile_is_done_again(
    tmp_path: Path, joins: Callable, with_its_document: bool
) -> None:
    store = open_objects((tmp_path / "store").as_uri())

    class Overtaken(Here):
        def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
            done = super().run(shards, progress)
            if len(self.calls) == 3:
                if with_its_document:
                    store.delete(f"shards/{done[1].key}.json")
                store.delete(object_key(done[1].result))
            return done

    here = Overtaken()
    shards = Shards(here, "stage", tmp_path / ".shards-solve", (tmp_path / "store").as_uri())
    assert [result["text"] for result in shards.map(joins())] == ["read 0", "read 1", "read 2"]
    assert here.calls == [0, 1, 2, 1]


def test_the_sweep_removes_shards_of_committed_stages_alone(tmp_path: Path) -> None:
    for stage, committed in (("propose", 2), ("solve", None), ("update", 0)):
        document = shards_dir(tmp_path, 1, stage) / "shards" / "0.json"
        document.parent.mkdir(parents=True)
        document.touch()
        os.utime(document, (1, 1))
        if committed is not None:
            manifest = stage_dir(tmp_path, 1, stage) / MANIFEST
            manifest.parent.mkdir()
            manifest.touch()
            os.utime(manifest, (committed, committed))
    assert sweep(tmp_path) == [shards_dir(tmp_path, 1, "propose")]
    assert shards_dir(tmp_path, 1, "solve").exists(), "not committed"
    assert shards_dir(tmp_path, 1, "update").exists(), "on the way to be committed again"


KILLED = """
import multiprocessing, os, signal, sys
from multiprocessing.connection import Connection
from pathlib import Path
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.lifecycle.loop import train

documents, receive = Path(sys.argv[2]), Connection.recv

def receive_or_die(pipe):  # what a worker says of a committed shard is heard by no one
    told = receive(pipe)
    if any(documents.glob("*.json")):
        print(*(worker.pid for worker in multiprocessing.active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return told

Connection.recv = receive_or_die
with Session(Run.open(Path(sys.argv[1]))) as session:
    train(session, 1)
"""


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_local_run_killed_in_mid_stage_goes_on_with_the_shards_that_are_left(
    finished: Path, tmp_path: Path
) -> None:
    """SIGKILL as soon as the first shard is committed, so that at most the other one is too."""
    from populora_core.lifecycle.loop import train
    from populora_core.runs.run import Run

    directory = tmp_path / "killed"
    start(directory, small_config(compute={"backend": "local"}))
    documents = shards_dir(directory, 1, "propose") / "shards"
    command = [sys.executable, "-c", KILLED, str(directory), str(documents)]
    killed = ran(command, cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    wait_for(lambda: not any(map(alive, map(int, killed.stdout.split()))))
    assert any(documents.glob("*.json"))
    with Session(Run.open(directory)) as session:
        train(session, 2)  # members breed at the end of the second
    manifest = read_manifest(stage_dir(directory, 1, "propose"))
    assert manifest is not None
    assert any(record["reused"] for record in manifest.extra["shards"])
    made = contents(directory)
    assert made == {name: content for name, content in contents(finished).items() if name in made}
    assert not list(directory.rglob(".shards-*")), "nothing is left behind"


def test_a_manifest_tells_which_shards_there_were(finished: Path) -> None:
    for folder in stage_folders(finished):
        manifest = read_manifest(folder)
        assert manifest is not None
        told = {record["function"]: record for record in manifest.extra.get("shards", [])}
        works = {"found": "found", "propose": "generate", "solve": "generate", "update": "update"}
        assert set(told) >= {works.get(folder.name)} - {None}
        for record in told.values():
            assert record["attempts"] == 1
            assert record["seconds"] > 0.0
    assert not list(finished.rglob(".shards-*"))
