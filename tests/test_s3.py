"""The store on S3-compatible storage, against a server on loopback that fails as told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from populora_core.store.objects import object_key

for package in ("moto.server", "s3fs", "boto3"):
    pytest.importorskip(package, reason="the extra `s3` and moto[server] are not installed")

from s3_server import BUCKET, LOGIN, Fault, Faulty, serving  # noqa: E402

from populora_core.store.s3 import Patience, S3Objects  # noqa: E402

pytestmark = pytest.mark.s3
QUICK = Patience(connect_seconds=1.0, read_seconds=1.0, pauses=(0.01, 0.02, 0.04))


@pytest.fixture(scope="module")
def server() -> Iterator[Faulty]:
    with serving() as faulty:
        yield faulty


@pytest.fixture
def s3(server: Faulty, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> S3Objects:
    """A store of its own for each test."""
    server.inject()
    for name, value in (LOGIN | {"AWS_ENDPOINT_URL": server.url}).items():
        monkeypatch.setenv(name, value)
    import boto3

    boto3.client("s3").create_bucket(Bucket=BUCKET)
    server.requests.clear()
    return S3Objects(
        f"s3://{BUCKET}/runs/{hashlib.sha256(request.node.name.encode()).hexdigest()[:8]}", QUICK
    )


def test_bytes_come_back_whole(s3: S3Objects, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"rows" * 1000)
    sha256 = s3.put(tmp_path / "small")
    assert sha256 == hashlib.sha256(b"rows" * 1000).hexdigest()
    s3.fetch(sha256, tmp_path / "back" / "small")
    assert (tmp_path / "back" / "small").read_bytes() == b"rows" * 1000
    assert s3.get_bytes(s3.put_bytes(b"weights")) == b"weights"


@pytest.mark.parametrize("kind", ["error", "reset", "lost", "slow"])
def test_one_failure_of_each_request_is_survived(
    s3: S3Objects, server: Faulty, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(kind.encode() * 999)
    for method in ("HEAD", "PUT", "GET"):
        server.inject(Fault(kind, method, seconds=1.5))
        sha256 = s3.put(tmp_path / "file")
        s3.fetch(sha256, tmp_path / "back")
        assert s3.put_if_absent(f"documents/{method}", b"{}")
        assert s3.get(f"documents/{method}") == b"{}"
        assert server.hits == 1
        assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()
        s3.delete(object_key(sha256))
