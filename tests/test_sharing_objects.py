"""The shared store on a disk that several machines see: one winner a key, nothing half, nothing lost."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_run import age

from populora_core.sharing import places as module
from populora_core.sharing.objects import object_key
from populora_core.sharing.places import STORES, LocalObjects, open_objects
from populora_core.support.errors import (
    ArtifactError,
    ConfigError,
    DamagedObject,
    StoreUnavailable,
)
from populora_plugins.cluster.sweeping import DAY
from populora_plugins.cluster.trials import require_conditional

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def store(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "store")


def test_bytes_are_named_by_their_sha256_and_come_back(store: LocalObjects, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"rows")
    sha256 = store.put(tmp_path / "file")
    assert sha256 == hashlib.sha256(b"rows").hexdigest()
    store.fetch(sha256, tmp_path / "new" / "back")
    assert (tmp_path / "new" / "back").read_bytes() == store.get_bytes(sha256) == b"rows"
    assert store.put_bytes(b"rows") == sha256
    assert [item.key for item in store.listing()] == [object_key(sha256)]


def test_an_object_of_another_size_than_its_manifest_says_is_not_read(
    store: LocalObjects, tmp_path: Path
) -> None:
    sha256 = store.put_bytes(b"rows")
    store.fetch(sha256, tmp_path / "back", 4)
    place = store.root / object_key(sha256)
    place.chmod(0o600)
    os.truncate(place, 40 << 30)  # sparse
    with pytest.raises(DamagedObject) as refused:
        store.fetch(sha256, tmp_path / "again", 4)
    assert refused.value.got == f"{40 << 30} bytes" and not (tmp_path / "again").exists()


def test_on_one_disk_a_fetched_object_takes_no_space(store: LocalObjects, tmp_path: Path) -> None:
    store.fetch(store.put_bytes(b"weights"), tmp_path / "back")
    assert (tmp_path / "back").stat().st_nlink == 2


def test_a_file_that_is_never_written_again_is_stored_without_a_copy(
    store: LocalObjects, tmp_path: Path
) -> None:
    for name, links in (("draft", 1), ("weights", 2)):
        (tmp_path / name).write_text(name)
        store.put(tmp_path / name, lasting=name == "weights")
        assert (tmp_path / name).stat().st_nlink == links


def test_a_damaged_or_missing_object_is_refused_and_the_target_stays(
    store: LocalObjects, tmp_path: Path
) -> None:
    sha256 = store.put_bytes(b"weights")
    path = store.root / object_key(sha256)
    path.chmod(0o644)
    path.write_bytes(b"weightS")
    target = tmp_path / "target"
    target.write_bytes(b"old")
    with pytest.raises(DamagedObject, match="damaged"):
        store.fetch(sha256, target)
    with pytest.raises(DamagedObject, match="damaged"):
        store.get_bytes(sha256)
    with pytest.raises(DamagedObject, match="no object"):
        store.fetch("0" * 64, target)
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "target"]
    assert store.get_bytes(store.put_bytes(b"weights")) == b"weights", "who puts it again fixes it"


def test_the_first_document_of_a_key_stands(store: LocalObjects) -> None:
    assert store.get("a/b") is None
    assert store.put_if_absent("a/b", b"first")
    assert not store.put_if_absent("a/b", b"second")
    assert store.put_if_absent("a/b", b"first"), "equal data has won, whoever put it"
    assert store.get("a/b") == b"first"
    store.delete("a/b")
    store.delete("a/b")
    assert store.get("a/b") is None


@pytest.mark.parametrize("key", ["", "/a", "../a", "a/../../b", "a//b", "a/"])
def test_no_key_leads_out_of_the_store(store: LocalObjects, key: str) -> None:
    with pytest.raises(ArtifactError, match="no key"):
        store.put_if_absent(key, b"")


@pytest.mark.parametrize(
    "url", ["", "http://host/x", "file://host/x", "s3:///x", "s3://user:secret@bucket/x"]
)
def test_a_url_of_another_kind_is_refused_and_no_secret_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_objects(url)
    assert "secret" not in str(caught.value)


def test_a_store_on_s3_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STORES, "made", {})
    monkeypatch.delitem(sys.modules, "populora_plugins.cluster.s3", raising=False)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[s3\]'"):
        open_objects("s3://bucket/run")


def test_a_run_directory_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "generations").mkdir()
    with pytest.raises(ConfigError, match="is a run directory, and no store"):
        open_objects(str(tmp_path))


def test_a_plain_path_and_its_file_url_are_one_store(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    assert open_objects(str(folder)).url == open_objects(folder.as_uri()).url == folder.as_uri()


class Turns:
    """Lets two threads go on one file operation at a time, in a given order."""

    def __init__(self, order: Sequence[bool]) -> None:
        self._order = list(order)
        self._ended: set[str] = set()
        self._turn = threading.Condition()

    def wait(self) -> None:
        own = threading.current_thread().name
        with self._turn:
            while self._order and not self._ended and str(self._order[0]) != own:
                self._turn.wait(1.0)
            if self._order:
                self._order.pop(0)
            self._turn.notify_all()

    def end(self) -> None:
        with self._turn:
            self._ended.add(threading.current_thread().name)
            self._turn.notify_all()


@contextmanager
def interleaved(turns: Turns) -> Iterator[None]:
    """Every operation of a store that another writer could see waits for its turn."""
    real = {name: getattr(os, name) for name in ("link", "replace", "utime", "stat", "chmod")}
    with pytest.MonkeyPatch.context() as patch:
        for name in real:

            def taken(*arguments: object, _name: str = name, **options: object) -> object:
                if threading.current_thread().name in ("True", "False"):
                    turns.wait()
                return real[_name](*arguments, **options)

            patch.setattr(module.os, name, taken)
        yield


@settings(max_examples=60)
@given(
    order=st.lists(st.booleans(), max_size=24),
    data=st.tuples(st.sampled_from([b"one", b"two"]), st.sampled_from([b"one", b"two"])),
)
def test_any_interleaving_of_two_writers_ends_with_one_winner(
    order: list[bool], data: tuple[bytes, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("store")
    turns, seen, heard = Turns(order), {}, {}

    def write(who: bool) -> None:
        store = LocalObjects(root)
        sha256 = store.put_bytes(data[who])
        heard[who] = store.put_if_absent("stages/manifest", sha256.encode())
        standing = store.get("stages/manifest")
        assert standing is not None
        seen[who] = store.get_bytes(standing.decode())
        turns.end()

    threads = [threading.Thread(target=write, args=(who,), name=str(who)) for who in (False, True)]
    with interleaved(turns):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen[False] == seen[True], "both hold what stands"
    assert [who for who in (False, True) if heard[who]] == [
        who for who in (False, True) if data[who] == seen[False]
    ], "who hears that it won holds what it wrote"
    assert not list(root.rglob(".tmp-*"))


def test_a_store_that_takes_a_second_writer_is_refused(store: LocalObjects) -> None:
    class Old(LocalObjects):
        def put_if_absent(self, key: str, data: bytes) -> bool:
            path = self.root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            return True

    with pytest.raises(StoreUnavailable, match="condition is ignored"):
        require_conditional(Old(store.root))
    require_conditional(store)
    assert not list(store.listing())


def test_what_is_put_again_is_young_again(store: LocalObjects) -> None:
    """Otherwise a sweep could take it before its manifest is there."""
    sha256 = store.put_bytes(b"rows")
    age(store.root / object_key(sha256), 30)
    store.put_bytes(b"rows")
    (item,) = store.listing("objects")
    assert time.time() - item.modified < DAY


def test_a_link_to_an_old_file_is_young_in_the_store(store: LocalObjects, tmp_path: Path) -> None:
    """As a fork shares what it inherits: a sweep may come before the manifest that names it."""
    (tmp_path / "old").write_bytes(b"rows")
    age(tmp_path / "old", 30)
    store.put(tmp_path / "old", lasting=True)
    (item,) = store.listing("objects")
    assert time.time() - item.modified < DAY


def test_folders_that_killed_workers_left_are_no_objects_and_go_in_time(store: LocalObjects) -> None:
    sha256 = store.put_bytes(b"rows")
    for name in (".tmp-shard-old", ".tmp-shard-new"):
        (store.root / name / "inside").mkdir(parents=True)
        (store.root / name / "inside" / "weights").write_bytes(b"half")
    for path in (store.root / ".tmp-shard-old", *(store.root / ".tmp-shard-old").rglob("*")):
        age(path, 2)
    assert [item.key for item in store.listing()] == [object_key(sha256)]
    before = time.time() - DAY
    assert (
        store.clear_unfinished(before, dry_run=True) == store.clear_unfinished(before) == [".tmp-shard-old"]
    )
    assert {path.name for path in store.root.glob(".tmp-*")} == {".tmp-shard-new"}


def test_an_object_that_another_user_put_can_be_put_again(
    store: LocalObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"rows")
    sha256 = store.put(tmp_path / "file")
    theirs, touch = store.root / object_key(sha256), os.utime

    def refuse(path: Path) -> None:
        if path == theirs:
            raise PermissionError(1, "Operation not permitted", str(path))
        touch(path)

    monkeypatch.setattr(os, "utime", refuse)
    assert store.put(tmp_path / "file") == sha256
    assert store.get_bytes(sha256) == b"rows"
