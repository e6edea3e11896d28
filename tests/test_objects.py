"""The shared store on a disk that several machines see: one winner a key, nothing half, nothing lost."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_run import MEMBER, MOMENTS, STAGE, Written, begin, files, make
from typer.testing import CliRunner

from flows.cli import app
from populora_core.config import apply_overrides
from populora_core.errors import (
    ArtifactError,
    ConfigError,
    DamagedObject,
    RunDirectoryError,
    StoreUnavailable,
)
from populora_core.run import Run
from populora_core.session import Session
from populora_core.stages.engine import run_stage
from populora_core.stages.loop import fork, rerun
from populora_core.stages.pull import pull
from populora_core.store import objects as module
from populora_core.store.artifacts import stage_dir
from populora_core.store.objects import LocalObjects, object_key, open_objects
from populora_core.store.shared import SharedRun, require_conditional
from populora_core.store.sweeping import DAY, sweep

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def store(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "store")


def age(path: Path, days: float) -> None:
    long_ago = time.time() - days * DAY
    os.utime(path, (long_ago, long_ago))


def test_bytes_are_named_by_their_sha256_and_come_back(store: LocalObjects, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"rows")
    sha256 = store.put(tmp_path / "file")
    assert sha256 == hashlib.sha256(b"rows").hexdigest()
    store.fetch(sha256, tmp_path / "new" / "back")
    assert (tmp_path / "new" / "back").read_bytes() == store.get_bytes(sha256) == b"rows"
    assert store.put_bytes(b"rows") == sha256
    assert [item.key for item in store.listing()] == [object_key(sha256)]


def test_on_one_disk_a_fetched_object_takes_no_space(store: LocalObjects, tmp_path: Path) -> None:
    store.fetch(store.put_bytes(b"weights"), tmp_path / "back")
    assert (tmp_path / "back").stat().st_nlink == 2


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
    assert store.get_bytes(store.put_bytes(b"weights")) == b"weights", "who puts it again mends it"


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
    monkeypatch.delitem(sys.modules, "populora_core.store.s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigError, match=r"populora\[s3\]"):
        open_objects("s3://bucket/run")


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


def test_two_machines_that_make_one_stage_agree_on_the_first(tmp_path: Path) -> None:
    """As two GPUs may: equal inputs, other bits."""
    url = (tmp_path / "store").as_uri()
    first = begin(tmp_path / "first", url).directory
    second = pull(url, tmp_path / "second").run.directory
    with Session(Run.open(second)) as behind:
        make(first, b"of the first")
        Written.weights = b"of the second"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SharedRun, "find", _blind_once(SharedRun.find))
            run_stage(behind, 0, STAGE)
    assert files(second) == files(first)
    assert (
        first / "members" / MEMBER / "g0000" / "adapter_model.safetensors"
    ).read_bytes() == b"of the first"


def _blind_once(find):  # type: ignore[no-untyped-def]
    """The second machine looked before the first one had committed."""
    looked = []

    def blind(self, *arguments):  # type: ignore[no-untyped-def]
        looked.append(arguments)
        return None if len(looked) == 1 else find(self, *arguments)

    return blind


def test_a_machine_takes_what_another_made(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    first = begin(tmp_path / "first", url).directory
    second = pull(url, tmp_path / "second").run.directory
    make(first, b"of the first")
    Written.times = 0
    assert make(second, b"of the second").reused
    assert Written.times == 0
    assert files(second) == files(first)


@pytest.mark.parametrize("lost", ["stage", "table", "weights", "probe"])
def test_what_is_damaged_here_comes_back_by_hash_and_is_not_made_again(tmp_path: Path, lost: str) -> None:
    run = begin(tmp_path / "run", (tmp_path / "store").as_uri()).directory
    make(run)
    before, adapter = files(run), run / "members" / MEMBER / "g0000"
    victim = {
        "stage": stage_dir(run, 0, "found") / "manifest.json",
        "table": stage_dir(run, 0, "found") / "adapters.parquet",
        "weights": adapter / "adapter_model.safetensors",
        "probe": adapter / "probe.json",
    }[lost]
    victim.unlink()
    if lost in ("table", "weights"):
        victim.write_bytes(b"rubbish")
    Written.times = 0
    assert make(run).reused
    assert Written.times == 0
    assert files(run) == before


def test_what_the_store_lost_is_made_again_and_the_store_whole(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    first = begin(tmp_path / "first", url).directory
    make(first)
    for item in list(open_objects(url).listing("objects")):
        open_objects(url).delete(item.key)
    with pytest.raises(DamagedObject, match="no object"):
        pull(url, tmp_path / "second")
    second = tmp_path / "second"
    assert not make(second).reused
    assert files(second) == files(first)
    assert pull(url, tmp_path / "third").brought == 1


def test_other_bits_in_place_of_lost_ones_are_an_error(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    make(begin(tmp_path / "first", url).directory)
    for item in list(open_objects(url).listing("objects")):
        open_objects(url).delete(item.key)
    with pytest.raises(DamagedObject):
        pull(url, tmp_path / "second")
    with pytest.raises(DamagedObject, match="restore the store"):
        make(tmp_path / "second", b"of other rounding")
    assert not files(tmp_path / "second")


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_within_a_commit_a_run_goes_on_and_another_machine_too(tmp_path: Path, moment: str) -> None:
    url = (tmp_path / "store").as_uri()
    killed = begin(tmp_path / "killed", url).directory
    arguments = [sys.executable, str(ROOT / "tests" / "shared_run.py"), moment, url, str(killed)]
    ended = subprocess.run(arguments, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=300)
    assert ended.returncode == -9
    assert not files(killed) or moment == "after the manifest"
    shared = moment == "after the manifest"
    assert bool(list(open_objects(url).listing("stages"))) == shared

    other = pull(url, tmp_path / "other")
    assert other.brought == shared
    Written.times = 0
    make(other.run.directory)
    make(killed)
    assert Written.times == (not shared), "made once, or brought by both"
    assert files(killed) == files(other.run.directory)
    assert len(list(open_objects(url).listing("stages"))) == 1


def test_a_store_is_of_one_run(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    begin(tmp_path / "one", url)
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        begin(tmp_path / "two", url, seed=2)
    assert not (tmp_path / "two" / "run.json").exists()
    begin(tmp_path / "three", (tmp_path / "store3").as_uri(), seed=3)
    with pytest.raises(RunDirectoryError, match="another run"):
        pull(url, tmp_path / "three")


def test_a_store_that_is_not_mounted_is_an_error_and_no_new_store(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", (tmp_path / "store").as_uri()).directory
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(RunDirectoryError, match="mount the folder"):
        make(run)
    assert not (tmp_path / "store").exists()
    with pytest.raises(RunDirectoryError, match="holds no run"):
        pull((tmp_path / "nothing").as_uri(), tmp_path / "new")
    assert not (tmp_path / "new").exists()


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


def test_a_redraw_elsewhere_is_told_and_pulled(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    run = begin(tmp_path / "run", url)
    other = pull(url, tmp_path / "other").run
    with Session(other) as behind:
        shared = run.shared()
        assert shared is not None
        shared.redraw({"0000/found": 7})
        run.save_redraws({"0000/found": 7})
        with pytest.raises(RunDirectoryError, match="different histories"):
            run_stage(behind, 0, STAGE)
        assert behind.shared is not None
        with pytest.raises(RunDirectoryError, match="populora pull"):
            behind.shared.redraw({"0000/found": 8})
    with pytest.raises(RunDirectoryError, match="different histories"):
        make(other.directory)
    assert pull(url, other.directory).run.redraws() == {"0000/found": 7}
    make(other.directory)


def test_a_rerun_with_a_seed_reaches_the_other_machines_by_pull(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    run = begin(tmp_path / "run", url)
    make(run.directory, b"first draw")
    other = pull(url, tmp_path / "other").run.directory
    first, Written.weights = files(other), b"second draw"
    with Session(run) as session:
        rerun(
            session,
            0,
            "found",
            seed=7,
            run_one=lambda held, number, stage, **how: run_stage(held, number, STAGE, **how),
        )
    assert files(run.directory) != first
    pulled = pull(url, other)
    assert (pulled.brought, pulled.run.redraws()) == (1, {"0000/found": 7})
    assert files(other) == files(run.directory)
    assert (other / "superseded").is_dir()


def test_a_rerun_without_a_seed_keeps_what_the_machines_agreed_on(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", (tmp_path / "store").as_uri()).directory
    make(run, b"first")
    before = files(run)
    make(run, b"of other rounding", force=True)
    assert files(run) == before


def test_a_fork_has_a_store_of_its_own_and_shares_what_it_inherits(tmp_path: Path) -> None:
    source = begin(tmp_path / "source", (tmp_path / "store").as_uri(), seed=1)
    make(source.directory)
    with pytest.raises(RunDirectoryError, match=r"store\.url="):
        fork(source, 0, tmp_path / "same", source.config)
    source.save_redraws({"0000/found": 7})
    url = (tmp_path / "store-2").as_uri()
    forked = fork(source, 0, tmp_path / "forked", apply_overrides(source.config, [f"store.url={url}"]))
    pulled = pull(url, tmp_path / "pulled").run
    assert files(pulled.directory) == files(forked.directory) == files(source.directory)
    assert pulled.redraws() == {"0000/found": 7}


def test_a_sweep_takes_what_nobody_names_and_only_that(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    run = begin(tmp_path / "run", url).directory
    make(run)
    store = open_objects(url)
    assert isinstance(store, LocalObjects)
    old, young = store.put_bytes(b"nobody's"), store.put_bytes(b"being committed")
    aside = store.root / "objects" / ".tmp-x-1-2@elsewhere"
    aside.write_bytes(b"half")
    for path in store.root.rglob("*"):
        if path.name != young:
            age(path, 8)
    seen = sweep(store, 7, dry_run=True)
    assert ([item.key for item in seen.stored], len(seen.unfinished)) == ([object_key(old)], 1)
    assert store.get(object_key(old)) is not None and aside.exists()
    assert sweep(store, 7) == seen
    assert store.get(object_key(old)) is None and not aside.exists()
    assert store.get_bytes(young)
    assert sweep(store, 7).stored == ()
    assert files(pull(url, tmp_path / "again").run.directory) == files(run)


def test_what_is_put_again_is_young_again(store: LocalObjects) -> None:
    """Otherwise a sweep could take it before its manifest is there."""
    sha256 = store.put_bytes(b"rows")
    age(store.root / object_key(sha256), 30)
    store.put_bytes(b"rows")
    (item,) = store.listing("objects")
    assert time.time() - item.modified < DAY


def test_a_sweep_needs_a_run_and_a_day(store: LocalObjects, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 1 day"):
        sweep(store, 0.5)
    with pytest.raises(RunDirectoryError, match="holds no run"):
        sweep(store, 7)


def test_the_commands_pull_check_and_sweep(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    make(begin(tmp_path / "run", url).directory)
    asked = CliRunner()
    checked = asked.invoke(app, ["store", "check", url])
    assert "can hold a run" in checked.output
    pulled = asked.invoke(app, ["pull", url, str(tmp_path / "new")])
    assert "1 stages brought, 0 were here" in pulled.output
    assert "0 were here" not in asked.invoke(app, ["pull", url, str(tmp_path / "new")]).output
    swept = asked.invoke(app, ["store", "sweep", url, "--dry-run"])
    assert "would remove 0 objects" in swept.output
    assert json.loads((tmp_path / "new" / "run.json").read_text())["config"]["store"]["url"] == url


def test_without_a_url_nothing_is_shared(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", "").directory
    with Session(Run.open(run)) as session:
        assert session.shared is None
    make(run)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
