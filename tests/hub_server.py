"""A hub on loopback, as far as a download and an upload ask it: files of one revision, commits of plain files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "c" * 40


class Hub:
    """Files by `dataset@revision/path`. `asked` holds method and path of everything asked of it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.made: list[tuple[str, str, bool]] = []
        self.url = ""

    def _of_model(self, path: str) -> tuple[dict[str, str], bytes] | None:
        """Its one revision under whatever name it is asked for; a commit is forty times `c`."""
        name = path.removeprefix("/api/models/").partition("/revision/")[0].partition("/tree/")[0]
        if path.startswith("/api/"):
            files = [key.removeprefix(f"{name}/") for key in self.files if key.startswith(f"{name}/")]
            told: object = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
            if "/tree/" in path:
                told = [{"type": "file", "path": file, "size": 1, "oid": "0" * 40} for file in files]
            return ({"Content-Type": "application/json"}, json.dumps(told).encode()) if files else None
        name, _, rest = path.lstrip("/").partition("/resolve/")
        body = self.files.get(f"{name}/{rest.partition('/')[2]}")
        if body is None:
            return None
        return {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": COMMIT}, body

    def pushed(self, path: str, body: bytes) -> dict[str, object]:
        """The answer to what an upload posts; a commit's files are kept by `kind/repository/path`."""
        parts = path.removeprefix("/api/").split("/")
        if parts[:2] == ["repos", "create"]:
            asked = json.loads(body)
            name = "/".join(["me", asked["name"]])
            self.made.append((asked.get("type", "model"), name, asked.get("visibility") == "private"))
            where = "datasets/" if asked.get("type") == "dataset" else ""
            return {"url": f"{self.url}/{where}{name}", "name": name}
        if parts[0] == "validate-yaml":
            return {"errors": faults(json.loads(body)["content"]), "warnings": []}
        if parts[-2] == "preupload":
            asked = json.loads(body)["files"]
            return {
                "files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in asked]
            }
        assert parts[-2] == "commit", path
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                name = "/".join([*parts[:3], line["value"]["path"]])
                self.files[name] = base64.b64decode(line["value"]["content"])
        commit = "0" * 40
        return {"commitUrl": f"{self.url}/{'/'.join(parts[1:3])}/commit/{commit}", "commitOid": commit}

    def fetched(self) -> list[str]:
        return sorted({path for method, path in self.asked if method == "GET" and "/resolve/" in path})

    def answer(self, path: str) -> tuple[dict[str, str], bytes] | None:
        """The headers and the body of an answer; None where there is nothing."""
        kind, _, rest = path.removeprefix("/api").lstrip("/").partition("/")
        if kind != "datasets":
            return self._of_model(path)
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


def faults(card: str) -> list[dict[str, str]]:
    """What the hub says against the header of a model's card: its base must be called as models of the hub are."""
    found = re.search(r'^base_model: "?(.*?)"?$', card, re.MULTILINE)
    if found is None or re.fullmatch(r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*", found[1]):
        return []
    told = f'"base_model" with value "{found[1]}" is not valid. Use a model id from https://hf.co/models.'
    return [{"message": told}]


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

        def do_POST(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append((self.command, path))
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            allowed = "Authorization" in self.headers
            told = hub.pushed(path, sent) if allowed else {}
            body = json.dumps(told).encode()
            self.send_response(401 if not allowed else 400 if told.get("errors") else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = url = f"http://127.0.0.1:{server.server_port}"
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
