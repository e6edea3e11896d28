"""A run of which several machines share one store: the first to commit is agreed with, and what is lost comes back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from conftest import PATIENCE
from shared_run import MEMBER, MOMENTS, STAGE, Written, age, begin, files, make
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.config.load import apply_overrides
from populora_core.lifecycle.loop import fork
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sharing.objects import object_key
from populora_core.sharing.places import LocalObjects, open_objects
from populora_core.stages.engine import run_stage
from populora_core.store.manifest import stage_dir
from populora_core.store.publication import CATALOGUE
from populora_core.support.errors import ConfigError, DamagedObject, RunDirectoryError, StoreUnavailable
from populora_plugins.cluster import sweeping
from populora_plugins.cluster.pull import pull
from populora_plugins.cluster.shared import SharedRun
from populora_plugins.cluster.sweeping import sweep
from populora_plugins.cluster.trials import try_out

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "store")


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


def test_a_pull_takes_the_stage_that_another_machine_made_again_after_an_upgrade(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    first = begin(tmp_path / "first", url)
    make(first.directory, b"before")
    second = pull(url, tmp_path / "second").run.directory
    Written.weights = b"after"
    with Session(first) as session:
        run_stage(session, 0, replace(STAGE, version=STAGE.version + 1))
    assert files(second) != files(first.directory)
    assert pull(url, second).brought == 1
    assert files(second) == files(first.directory)
    assert (pull(url, second).brought, pull(url, second).kept) == (0, 1)


def test_a_pull_from_the_place_that_a_store_moved_to_goes_on_there(tmp_path: Path) -> None:
    make(begin(tmp_path / "first", (tmp_path / "store").as_uri()).directory)
    second = pull((tmp_path / "store").as_uri(), tmp_path / "second").run.directory
    shutil.move(tmp_path / "store", tmp_path / "moved")
    moved = (tmp_path / "moved").as_uri()
    pulled = pull(moved, second)
    assert (pulled.brought, pulled.left) == (0, (tmp_path / "store").as_uri())
    assert pull(moved, second).left == ""
    run = Run.open(second)
    shared = run.shared()
    assert run.config.store.url == moved and shared is not None
    assert shared.find(0, "found", "0" * 64) is None, "it answers"


def test_a_pull_that_broke_off_after_its_last_stage_makes_the_catalogue_the_next_time(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    make(begin(tmp_path / "first", url).directory)
    second = pull(url, tmp_path / "second").run.directory
    (second / CATALOGUE).unlink()
    assert pull(url, second).brought == 0
    assert (second / CATALOGUE).exists()


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
    ended = subprocess.run(arguments, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=PATIENCE)
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


def test_a_fork_has_a_store_of_its_own_and_shares_what_it_inherits(tmp_path: Path) -> None:
    source = begin(tmp_path / "source", (tmp_path / "store").as_uri(), seed=1)
    with Session(source) as session:
        assert session.shared is not None
        session.shared.redraw({"0000/found": 7})
    source.save_redraws({"0000/found": 7})
    make(source.directory)
    with pytest.raises(RunDirectoryError, match=r"store\.url="):
        fork(source, 0, tmp_path / "same", source.config)
    url = (tmp_path / "store-2").as_uri()
    forked = fork(source, 0, tmp_path / "forked", apply_overrides(source.config, [f"store.url={url}"]))
    pulled = pull(url, tmp_path / "pulled").run
    assert files(pulled.directory) == files(forked.directory) == files(source.directory)
    assert pulled.redraws() == {"0000/found": 7}


def test_a_fork_that_was_cut_short_is_no_run_to_go_on_with(tmp_path: Path) -> None:
    def cut(self: LocalObjects, key: str, data: bytes) -> bool:
        if key.startswith("stages/"):
            raise KeyboardInterrupt
        return put(self, key, data)

    put = LocalObjects.put_if_absent
    source = begin(tmp_path / "source", (tmp_path / "store").as_uri(), seed=1)
    make(source.directory)
    url = (tmp_path / "store-2").as_uri()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(LocalObjects, "put_if_absent", cut)
        fork(source, 0, tmp_path / "forked", apply_overrides(source.config, [f"store.url={url}"]))
    with pytest.raises(RunDirectoryError, match="never finished"):
        pull(url, tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()


def test_a_sweep_takes_shards_whose_stage_was_never_committed(store: LocalObjects, tmp_path: Path) -> None:
    begin(tmp_path / "run", store.root.as_uri())
    for name, days in (("old", 8), ("young", 0)):
        sha256 = store.put_bytes(name.encode())
        store.put_if_absent(f"shards/{name}.json", json.dumps({"result": sha256}).encode())
        for key in (f"shards/{name}.json", object_key(sha256)):
            age(store.root / key, days)
    found = {item.key.partition("/")[0] for item in sweep(store, 7).stored}
    assert found == {"shards", "objects"}
    assert {item.key for item in store.listing("shards")} == {"shards/young.json"}
    assert len(list(store.listing("objects"))) == 1


def test_a_sweep_takes_what_nobody_names_and_only_that(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    run = begin(tmp_path / "run", url).directory
    make(run)
    store = open_objects(url)
    assert isinstance(store, LocalObjects)
    old, young = store.put_bytes(b"nobody's"), store.put_bytes(b"being committed")
    aside = store.root / "objects" / ".tmp-x-00000000-00000000-1-1-2@elsewhere"
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


def test_a_sweep_spares_what_is_put_again_while_it_deletes(
    store: LocalObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path / "run", store.root.as_uri())
    texts = {object_key(store.put_bytes(text)): text for text in (b"one", b"two")}
    for key in texts:
        age(store.root / key, 8)
    delete = store.delete

    def put_the_other_again(key: str) -> None:
        delete(key)
        store.put_bytes(next(text for other, text in texts.items() if other != key))

    monkeypatch.setattr(store, "delete", put_the_other_again)
    monkeypatch.setattr(sweeping, "DELETIONS", 1)
    (removed,) = sweep(store, 7).stored
    assert {item.key for item in store.listing("objects")} == texts.keys() - {removed.key}


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
    assert "0 stages brought, 1 were here" in asked.invoke(app, ["pull", url, str(tmp_path / "new")]).output
    swept = asked.invoke(app, ["store", "sweep", url, "--dry-run"])
    assert "would remove 0 objects" in swept.output
    assert json.loads((tmp_path / "new" / "run.json").read_text())["config"]["store"]["url"] == url


def test_without_a_url_nothing_is_shared(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", "").directory
    with Session(Run.open(run)) as session:
        assert session.shared is None
    make(run)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_store_check_names_the_first_failure_and_not_that_cleaning_up_failed(
    store: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(word: str) -> Callable[..., NoReturn]:
        def refused(*arguments: object) -> NoReturn:
            raise StoreUnavailable(f"it does not {word}")

        return refused

    monkeypatch.setattr(store, "get", refuse("answer"))
    monkeypatch.setattr(store, "delete", refuse("delete"))
    with pytest.raises(StoreUnavailable, match="does not answer"):
        list(try_out(store))
