"""The hub of data sets, as far as a download asks it: files of one revision, on loopback."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest


class Hub:
    """Files by `dataset@revision/path`. `asked` holds method and path of everything asked of it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []

    def fetched(self) -> list[str]:
        return sorted({path for method, path in self.asked if method == "GET" and "/resolve/" in path})

    def answer(self, path: str) -> tuple[dict[str, str], bytes] | None:
        """The headers and the body of an answer; None where there is nothing."""
        kind, _, rest = path.removeprefix("/api").lstrip("/").partition("/")
        assert kind == "datasets"
        if path.startswith("/api/"):
            dataset, _, revision = rest.partition("/tree/")
            start = f"{dataset}@{revision}/"
            found = [name.removeprefix(start) for name in self.files if name.startswith(start)]
            tree = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in found]
            return ({"Content-Type": "application/json"}, json.dumps(tree).encode()) if found else None
        dataset, _, rest = rest.partition("/resolve/")
        revision, _, name = rest.partition("/")
        body = self.files.get(f"{dataset}@{revision}/{name}")
        if body is None:
            return None
        return {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": revision}, body


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub without files, which `huggingface_hub` asks for as long as the block lasts."""
    from huggingface_hub import constants

    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append((self.command, path))
            headers, body = hub.answer(path) or ({}, b"")
            self.send_response(200 if headers else 404)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(constants, "ENDPOINT", url)
            patch.setattr(
                constants,
                "HUGGINGFACE_CO_URL_TEMPLATE",
                f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
            )
            patch.setattr(constants, "HF_HUB_OFFLINE", False)
            yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
