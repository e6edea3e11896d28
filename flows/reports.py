"""Reports over HTTP on the loopback address: a page of the Prefect UI cannot link to a file.

A link holds the report's path and a token of it that only who knows the key can make: the flows of `populora ui`, for
their own runs, and the index of runs, whose own link holds one too. No other user, page or
guess can read any other file, except the page of all settings, which is not secret.
"""

from __future__ import annotations

import hmac
import os
import socket
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from flows.door import run_forms
from flows.guard import HOST, NAMES
from flows.index_page import COMPARE, RUN, index_page, no_forms
from populora_core.report.figures import read_figures
from populora_core.report.index import runs_in
from populora_core.report.write import REPORT, SERVED, SERVED_KEY, token_of
from populora_core.support.errors import PopuloraError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.pages.report import render

SETTINGS = "configuration"
NOTHING_TICKED = (
    "<!doctype html><title>Runs</title><p>No run is ticked: go back, and tick those to compare.</p>"
)
SECONDS = 10.0  # for a whole request to come, and for each part of an answer to be taken


@contextmanager
def serve_reports(host: str, port: int, key: str, runs: Path, prefect: str = "") -> Iterator[str]:
    """Serve the reports that links made with the key name, and nothing else; gives the address.

    Args:
        runs: the folder whose runs the index lists, at `index_path`.
        prefect: the address of Prefect's pages, to whose forms the index leads; empty for none.
    """
    server = _Server((host, port), partial(Reports, key, runs, prefect))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def reports_port(port: int) -> int:
    """The port of the reports beside Prefect's pages: always the same, so that links outlive a restart."""
    return port + 1


def linked(api: str, key: str) -> dict[str, str]:
    """The environment in which artifacts link to the reports that `populora ui` serves beside this API."""
    return {SERVED: f"http://{HOST}:{reports_port(urlsplit(api).port or 0)}", SERVED_KEY: key}


def index_path(key: str, runs: Path) -> str:
    """The path at which the index of the runs in a folder is served."""
    return f"/{token_of(key, runs)}/"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """No one needs to read that a reader went away."""


class Reports(BaseHTTPRequestHandler):
    timeout = SECONDS

    def __init__(self, key: str, runs: Path, prefect: str, *request: object) -> None:
        self._key, self._runs, self._prefect = key, runs, prefect
        super().__init__(*request)  # type: ignore[arg-type]

    def handle(self) -> None:
        self._late = threading.Timer(self.timeout, self._give_up)
        self._late.daemon = True
        self._late.start()
        try:
            super().handle()
        finally:
            self._late.cancel()

    def _give_up(self) -> None:
        with suppress(OSError):  # it has just been closed
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self._late.cancel()
        page = self._page()
        if page is None:
            self.send_error(404, "no report of a run: open the address that populora ui has printed")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(page)

    def _page(self) -> bytes | None:
        # A foreign name that resolves to here is a page that should not read.
        if self.headers.get("Host", "").partition(":")[0] not in NAMES:
            return None
        try:
            parts = urlsplit(self.path)
        except ValueError:
            return None
        asked = unquote(parts.path)
        if asked == f"/{SETTINGS}":
            text = escape((REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8"))
            return f"<!doctype html><title>Configuration</title><pre>{text}</pre>".encode()
        index = index_path(self._key, self._runs)
        for place, page in ((index, self._index), (index + COMPARE, self._comparison)):
            if hmac.compare_digest(asked.encode(), place.encode()):
                return page(parse_qs(parts.query)).encode()
        token, _, rest = asked.removeprefix("/").partition("/")
        path = Path("/", rest)
        known = hmac.compare_digest(token.encode(), token_of(self._key, path.parent).encode())
        try:
            return _own_file(path) if known and path.name == REPORT else None
        except (OSError, ValueError):
            return None

    def _index(self, asked: Mapping[str, list[str]]) -> str:
        forms = partial(run_forms, self._prefect) if self._prefect else no_forms
        return index_page(runs_in(self._runs), self._link, asked.get("by", [""])[0], forms)

    def _comparison(self, asked: Mapping[str, list[str]]) -> str:
        """The comparison of runs of the folder, of which nothing but their names is believed."""
        known = {run.name: run.directory for run in runs_in(self._runs)}
        chosen = [known[name] for name in asked.get(RUN, []) if name in known]
        try:
            if not chosen:
                return NOTHING_TICKED
            return render([read_figures(directory, samples=len(chosen) == 1) for directory in chosen])
        except PopuloraError as error:
            return f"<!doctype html><title>Runs</title><p>{escape(error.problem)}</p>"

    def _link(self, directory: Path) -> str:
        return f"/{token_of(self._key, directory)}{quote(str(directory / REPORT))}"

    def log_message(self, format: str, *args: object) -> None:
        """No one needs to read who read a report."""


def _own_file(path: Path) -> bytes | None:
    """The bytes of a plain file of this user, behind no link; None for anything else."""
    if path.parent.resolve() != path.parent:
        return None
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        return file.read() if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() else None
