"""The store on S3-compatible storage, against a server on loopback that fails as told."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, contents, small_config, start
from s3_server import BUCKET, LOGIN, Fault, Faulty, serving, skip_where_missing
from shared_run import Written, begin, files, make

from populora_core.lifecycle.loop import train
from populora_core.runs.session import Session
from populora_core.sharing.objects import object_key
from populora_core.sharing.places import open_objects
from populora_core.stages.engine import run_generation, run_stage
from populora_core.stages.table import LOOP
from populora_core.support.errors import ArtifactError, ConfigError, DamagedObject, StoreUnavailable
from populora_plugins.cluster.pull import pull
from populora_plugins.cluster.sweeping import DAY, sweep

skip_where_missing()

import boto3  # noqa: E402

from populora_plugins.cluster import s3 as module  # noqa: E402
from populora_plugins.cluster.s3 import (  # noqa: E402
    DOCUMENT_BYTES,
    Patience,
    S3Objects,
)

ROOT = Path(__file__).resolve().parents[3]
QUICK = Patience(60.0, 60.0, bytes_per_second=1e5, pauses=(0.01, 0.02, 0.04), first=3)
TINY = {
    "run": {"generations": 1},
    "population": {"teachers": 1, "students": 1},
    "propose": {"per_type": 2, "max_tokens": 48},
    "solve": {"attempts": 2, "max_tokens": 24},
    "compute": {"shards": 1},
}
DOWN = 100  # more failures than anybody tries

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def server() -> Iterator[Faulty]:
    with serving() as faulty, pytest.MonkeyPatch.context() as patch:
        for name, value in (LOGIN | {"AWS_ENDPOINT_URL": faulty.url}).items():
            patch.setenv(name, value)
        patch.setattr(module, "PATIENCE", QUICK)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield faulty


@pytest.fixture
def url(server: Faulty, request: pytest.FixtureRequest) -> Iterator[str]:
    """A prefix of the test's own."""
    server.requests.clear()
    yield f"s3://{BUCKET}/runs/{hashlib.sha256(request.node.name.encode()).hexdigest()[:8]}"
    server.inject()


@pytest.fixture
def s3(url: str) -> S3Objects:
    return S3Objects(url)


def test_bytes_come_back_whole(s3: S3Objects, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"rows" * 1000)
    sha256 = s3.put(tmp_path / "file")
    assert sha256 == hashlib.sha256(b"rows" * 1000).hexdigest()
    s3.fetch(sha256, tmp_path / "back" / "file")
    assert (tmp_path / "back" / "file").read_bytes() == b"rows" * 1000
    assert s3.get_bytes(s3.put_bytes(b"weights")) == b"weights"
    assert {item.key for item in s3.listing("objects")} == {item.key for item in s3.listing()}
    assert {item.bytes for item in s3.listing("objects")} == {4000, 7}


def test_a_file_is_one_request_so_that_nothing_can_be_left_half(
    s3: S3Objects, server: Faulty, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(os.urandom(32 << 20))
    s3.fetch(s3.put(tmp_path / "file"), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()
    assert [method for method, _ in server.requests] == ["HEAD", "PUT", "HEAD", "GET"]
    (tmp_path / "file").write_bytes(b"")
    s3.fetch(s3.put(tmp_path / "file"), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b""
    with pytest.raises(ArtifactError, match="too long"):
        s3.put_if_absent("document", b"x" * (DOCUMENT_BYTES + 1))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["error", "reset", "lost", "slow"])
def test_one_failure_of_each_request_is_survived(url: str, server: Faulty, kind: str, tmp_path: Path) -> None:
    s3 = S3Objects(url, replace(QUICK, read_seconds=2.0) if kind == "slow" else QUICK)
    (tmp_path / "file").write_bytes(kind.encode() * 999)
    for method in ("HEAD", "PUT", "GET"):
        server.inject(Fault(kind, method, seconds=2.5))
        sha256 = s3.put(tmp_path / "file")
        s3.fetch(sha256, tmp_path / "back")
        assert s3.put_if_absent(f"documents/{method}", b"{}")
        assert s3.get(f"documents/{method}") == b"{}"
        assert server.hits == 1
        assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()
        s3.delete(object_key(sha256))


def test_what_one_request_cannot_hold_goes_in_parts_and_one_that_fails_is_sent_again(
    s3: S3Objects, server: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SINGLE_BYTES", 12 << 20)  # 5 GB, of which this is a model
    monkeypatch.setattr(module, "PART_BYTES", 6 << 20)
    (tmp_path / "file").write_bytes(b"w" * (13 << 20))
    server.inject(Fault("reset", "PUT"), Fault("error", "POST", status=503))
    s3.fetch(s3.put(tmp_path / "file"), tmp_path / "back")
    assert server.hits == 2
    assert sum(method == "PUT" for method, _ in server.requests) >= 3
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()
    unfinished = boto3.client("s3").list_multipart_uploads(Bucket=BUCKET, Prefix=s3.prefix)
    assert not unfinished.get("Uploads"), "what was given up is aborted"


@pytest.mark.thorough
def test_a_server_that_does_not_read_is_asked_again(url: str, server: Faulty) -> None:
    server.inject(Fault("slow", "PUT", seconds=60.0))
    s3 = S3Objects(url, replace(QUICK, read_seconds=10.0, bytes_per_second=4e6))
    s3.put_bytes(os.urandom(32 << 20))  # more than the sockets between them hold
    assert [method for method, _ in server.requests].count("PUT") > 1


def test_an_answer_cut_short_is_read_again(s3: S3Objects, server: Faulty, tmp_path: Path) -> None:
    sha256 = s3.put_bytes(b"rows" * 9999)
    server.inject(Fault("cut", "GET", sha256))
    s3.fetch(sha256, tmp_path / "back")
    server.inject(Fault("cut", "GET", sha256))
    assert s3.get_bytes(sha256) == (tmp_path / "back").read_bytes() == b"rows" * 9999


def test_a_conditional_put_that_won_and_whose_answer_was_lost_has_won(s3: S3Objects, server: Faulty) -> None:
    server.inject(Fault("lost", "PUT", "stages/key"))
    assert s3.put_if_absent("stages/key", b"ours")
    assert [method for method, path in server.requests if path.endswith("stages/key")] == [
        "PUT",
        "PUT",
        "GET",
    ]
    server.inject(Fault("lost", "PUT", "stages/key"))
    assert not s3.put_if_absent("stages/key", b"theirs")
    assert s3.get("stages/key") == b"ours"


def test_a_conditional_put_that_met_another_is_asked_again(s3: S3Objects, server: Faulty) -> None:
    server.inject(Fault("error", "PUT", "stages/key", status=409))
    assert s3.put_if_absent("stages/key", b"ours")
    assert server.hits == 1


def test_of_many_writers_one_wins(s3: S3Objects) -> None:
    heard: list[bool] = []
    writers = [
        threading.Thread(target=lambda n=number: heard.append(s3.put_if_absent("stages/key", b"%d" % n)))
        for number in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sum(heard) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_takes_nothing_is_no_fault_of_the_server(
    s3: S3Objects, server: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(path: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
        if mode == "wb":
            raise OSError(code, os.strerror(code), str(path))
        return opened(path, mode, *more, **named)

    opened = Path.open
    sha256 = s3.put_bytes(b"rows")
    asked = len(server.requests)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ArtifactError, match="could not be written"):
        s3.fetch(sha256, tmp_path / "file")
    assert [method for method, _ in server.requests[asked:]] == ["GET"]


def test_a_damaged_object_is_refused(s3: S3Objects, tmp_path: Path) -> None:
    sha256 = s3.put_bytes(b"weights")
    boto3.client("s3").put_object(Bucket=BUCKET, Key=f"{s3.prefix}/{object_key(sha256)}", Body=b"weightS")
    with pytest.raises(DamagedObject, match="damaged"):
        s3.fetch(sha256, tmp_path / "back")
    with pytest.raises(DamagedObject, match="no object"):
        s3.fetch("0" * 64, tmp_path / "back")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        (Fault("error", times=DOWN), "see that the server runs"),
        (Fault("reset", times=DOWN), "see that the server runs"),
        (Fault("error", times=DOWN, status=403), "give credentials"),
        (Fault("error", "PUT", times=DOWN, status=501), "If-None-Match"),
        (Fault("error", "PUT", times=DOWN, status=301), "AWS_REGION"),
    ],
)
def test_a_server_that_stays_down_is_a_clear_error(
    s3: S3Objects, server: Faulty, fault: Fault, remedy: str
) -> None:
    server.inject(fault)
    with pytest.raises(StoreUnavailable, match=remedy) as caught:
        s3.put_if_absent("stages/key", b"ours")
    assert s3.url in str(caught.value) and "put stages/key" in str(caught.value)
    assert server.hits == (1 if fault.status in (301, 403, 501) else 1 + len(QUICK.pauses))


def test_no_credentials_no_bucket_and_no_server_are_told_apart(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(StoreUnavailable, match="create the bucket"):
        S3Objects("s3://nowhere/run").put_if_absent("key", b"")
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        with pytest.raises(StoreUnavailable, match="AWS_ENDPOINT_URL"):
            S3Objects(url).get("key")
    with monkeypatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(StoreUnavailable, match=r"AWS_ACCESS_KEY_ID.*export-credentials"):
            S3Objects(url).get("key")
    with pytest.raises(ConfigError, match="url of a bucket"):
        open_objects("s3://key:secret@bucket/run")


def test_no_message_repeats_a_secret(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://someone:hidden@127.0.0.1:9")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guarded")
    with pytest.raises(StoreUnavailable) as caught:
        S3Objects(url).get("key")
    assert "hidden" not in str(caught.value) and "guarded" not in str(caught.value)


def test_a_server_that_ignores_the_condition_holds_no_run(url: str, server: Faulty, tmp_path: Path) -> None:
    server.inject(Fault("forgetful", "PUT", times=DOWN))
    with pytest.raises(StoreUnavailable, match="condition is ignored"):
        begin(tmp_path / "run", url)
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("kind", ["error", "reset", "lost"])
def test_a_store_that_fails_within_a_commit_loses_nothing(
    url: str, server: Faulty, tmp_path: Path, kind: str
) -> None:
    run = begin(tmp_path / "run", url).directory
    server.inject(Fault(kind, "PUT", "/stages/", times=DOWN))
    with pytest.raises(StoreUnavailable, match="resume"):
        make(run)
    assert not files(run), "nothing is committed that other machines do not see"
    server.inject()
    make(run)
    assert files(pull(url, tmp_path / "other").run.directory) == files(run)


@pytest.mark.thorough
def test_killed_within_a_commit_a_run_goes_on_and_another_machine_too(url: str, tmp_path: Path) -> None:
    """Inside an object; other moments are the same on any store."""
    killed = begin(tmp_path / "killed", url).directory
    arguments = [sys.executable, str(ROOT / "tests/shared_run.py"), "inside an object", url, str(killed)]
    ended = subprocess.run(arguments, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=PATIENCE)
    assert ended.returncode == -9
    other = pull(url, tmp_path / "other")
    assert other.brought == 0
    Written.times = 0
    make(other.run.directory)
    make(killed)
    assert Written.times == 1
    assert files(killed) == files(other.run.directory)


def test_a_sweep_takes_what_nobody_names(s3: S3Objects, tmp_path: Path) -> None:
    run = begin(tmp_path / "run", s3.url).directory
    make(run)
    s3.put_bytes(b"nobody's")
    assert sweep(s3, 7).stored == (), "what no document names is still young"
    with pytest.MonkeyPatch.context() as later:
        now = time.time()
        later.setattr("populora_plugins.cluster.sweeping.time.time", lambda: now + 8 * DAY)
        (swept,) = sweep(s3, 7).stored
    assert swept.key == object_key(hashlib.sha256(b"nobody's").hexdigest())
    assert files(pull(s3.url, tmp_path / "again").run.directory) == files(run)


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_run_on_s3_pulled_elsewhere_goes_on_and_equals_a_local_one(url: str, tmp_path: Path) -> None:
    with Session(start(tmp_path / "local", small_config(**TINY))) as session:
        train(session, 1)
    with Session(start(tmp_path / "first", small_config(**TINY, store={"url": url}))) as session:
        run_generation(session, 0)
        for stage in LOOP[:4]:
            run_stage(session, 1, stage)
    pulled = pull(url, tmp_path / "second")
    assert pulled.brought == 5
    assert contents(tmp_path / "second") == contents(tmp_path / "first")
    with Session(pulled.run) as session:
        train(session, 1)
    assert contents(tmp_path / "second") == contents(tmp_path / "local")
    newer = pull(url, tmp_path / "first")
    assert (newer.kept, newer.brought) == (5, len(LOOP) - 4)
    assert contents(tmp_path / "first") == contents(tmp_path / "local")
