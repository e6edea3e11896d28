"""The endpoint's server: who sends half of a request holds no connection, and a port that is taken is refused."""

from __future__ import annotations

import fcntl
import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from conftest import PATIENCE, wait_for
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.config.load import Config
from populora_core.config.sections import BaseSection
from populora_core.runs.run import Run
from populora_core.support import devices
from populora_core.support.errors import ConfigError
from populora_core.support.ports import require_free_port
from populora_plugins.serving import endpoint, fleet

HEAD = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n"


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """Read the whole request, then say so."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@pytest.fixture
def seconds() -> float:
    """Those within which a request must come."""
    return PATIENCE


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[int]:
    monkeypatch.setattr(endpoint, "REQUEST_SECONDS", seconds)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(answers, http=endpoint.Punctual, log_level="warning", lifespan="off")
        )
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        wait_for(lambda: server.started)
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(PATIENCE)


@pytest.mark.parametrize("seconds", [0.5])
@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD, HEAD + b"\r\n", HEAD + b"\r\nhalf"])
def test_half_a_request_is_ended(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.sendall(sent)
        while connection.recv(4096):  # a server may say why
            pass


def test_whole_requests_are_answered_on_one_connection(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.connect()
    first = connection.sock
    for _ in range(3):
        connection.request("POST", "/", b"something")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    assert connection.sock is first


def test_a_taken_port_is_refused_before_members_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create(tmp_path / "run", Config(), "0" * 64)
    monkeypatch.setattr(fleet, "open_fleet", lambda *given: pytest.fail("members are loaded"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["serve", str(run.directory), "--port", str(number)])
    assert isinstance(done.exception, ConfigError), done.output
    assert f"no server can listen on port {number}" in done.exception.problem
    require_free_port("127.0.0.1", number)  # once it is left


class Loaded:
    """A sampler that finds out, when it is closed, whether its GPU can be taken."""

    free: bool | None = None

    def __init__(self, locks: Path) -> None:
        self._locks = locks

    def close(self) -> None:
        (lock,) = self._locks.glob("populora-*.lock")
        with open(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.free = True
            except BlockingIOError:
                self.free = False


def test_an_engine_is_closed_while_its_gpu_is_still_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(devices, "LOCKS", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    run = Run.create(tmp_path / "run", Config(base=BaseSection(device="cuda")), "0" * 64)
    loaded = Loaded(tmp_path)
    monkeypatch.setattr(fleet, "open_fleet", lambda *given: SimpleNamespace(models=("best",), sampler=loaded))
    monkeypatch.setattr(endpoint, "serve_fleet", interrupted)
    with socket.create_server(("127.0.0.1", 0)) as left:
        number = left.getsockname()[1]
    done = CliRunner().invoke(app, ["serve", str(run.directory), "--port", str(number)])
    assert "models: best" in done.output
    assert loaded.free is False


def test_address_length_and_queue_are_those_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def opened(run: Run, length: int) -> SimpleNamespace:
        seen.append(length)
        return SimpleNamespace(models=("best",), sampler=SimpleNamespace(close=lambda: None))

    def served(fleet: object, key: str, host: str, port: int, *, waiting: int) -> None:
        seen.extend((host, waiting))

    run = Run.create(tmp_path / "run", Config(), "0" * 64)
    monkeypatch.setattr(fleet, "open_fleet", opened)
    monkeypatch.setattr(endpoint, "serve_fleet", served)
    with socket.create_server(("127.0.0.2", 0)) as left:
        number = left.getsockname()[1]
    words = ["--host", "127.0.0.2", "--port", str(number), "--length", "64", "--waiting", "3"]
    done = CliRunner().invoke(app, ["serve", str(run.directory), *words])
    assert seen == [64, "127.0.0.2", 3], done.output
    assert f"http://127.0.0.2:{number}/v1" in done.output
