"""Reports over HTTP on the loopback address: a page of the Prefect UI cannot link to a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from populora_core.report.write import REPORT
from populora_core.runs.run import RECORD


@contextmanager
def serve_reports(host: str, port: int) -> Iterator[str]:
    """Serve report.html of run directories, and nothing else; gives the address."""
    server = ThreadingHTTPServer((host, port), _Reports)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Reports(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = Path(unquote(urlsplit(self.path).path))
        # A foreign name that resolves to here is a page that should not read.
        local = self.headers.get("Host", "").partition(":")[0] in ("127.0.0.1", "localhost")
        if not local or path.name != REPORT or not (path.parent / RECORD).is_file() or not path.is_file():
            self.send_error(404, "no report of a run")
            return
        page = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody needs to read who read a report."""
