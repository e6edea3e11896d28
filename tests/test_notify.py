"""Notices reach the log file, a command or an address; one that cannot be given ends nothing."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import flows
from flows.notify import LOG, NOTIFY, destination, notify

NOTICE = {"state": "Crashed", "message": "gone"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(flows, "PREFECT_HOME", tmp_path / "home")
    monkeypatch.delenv(NOTIFY, raising=False)
    return tmp_path / "home"


def test_by_default_notices_are_lines_of_a_log_file(home: Path) -> None:
    notify(NOTICE)
    notify(NOTICE)
    lines = [json.loads(line) for line in (home / LOG).read_text().splitlines()]
    assert [{key: line[key] for key in NOTICE} for line in lines] == [NOTICE, NOTICE]


def test_a_command_reads_the_notice_on_its_standard_input(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = tmp_path / "heard"
    code = f"import sys, pathlib; pathlib.Path({str(heard)!r}).write_text(sys.stdin.read())"
    monkeypatch.setenv(NOTIFY, f'{sys.executable} -c "{code}"')
    notify(NOTICE)
    assert json.loads(heard.read_text())["message"] == "gone"
    assert not (home / LOG).exists()


def test_an_address_is_posted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    class Hears(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Hears) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.setenv(NOTIFY, f"http://127.0.0.1:{server.server_port}/hook")
        notify(NOTICE)
    assert json.loads(heard[0])["state"] == "Crashed"


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("https://hooks.example/services/T0/SECRET", "https://hooks.example"),
        ("http://user:SECRET@hooks.example:8080/x?key=SECRET", "http://hooks.example:8080"),
        ("http://127.0.0.1:port/SECRET", "http://127.0.0.1:port"),
        ("/usr/bin/tell --token SECRET", "/usr/bin/tell"),
        ("HTTPS://user:SECRET@hooks.example/SECRET", "https://hooks.example"),
        ("file:///home/SECRET", "file://"),
        ("http://[::1/SECRET", "http://"),
    ],
)
def test_a_secret_of_the_target_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, target: str, shown: str
) -> None:
    monkeypatch.setenv(NOTIFY, target)
    assert destination() == shown


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:9/SECRET",
        "http://127.0.0.1:99999/SECRET",
        "http://127.0.0.1:port/SECRET",
        "http://[::1/SECRET",
        "false SECRET",
        "no-such-command SECRET",
    ],
)
def test_a_notice_that_cannot_be_given_tells_no_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    monkeypatch.setenv(NOTIFY, target)
    notify(NOTICE)
    assert f"the notice could not be given to {destination()}: " in caplog.text
    assert "SECRET" not in caplog.text
