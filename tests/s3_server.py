"""An S3-compatible server on loopback whose answers can be harmed: moto behind a layer that injects faults."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import pytest

BUCKET = "populora"
Environ = dict[str, Any]
Wsgi = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
LOGIN = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def skip_where_missing() -> None:
    """Skip the file or test where a package is missing. Looked for, not imported: see `serving`."""
    if not all(map(find_spec, ("moto", "flask_cors", "obstore", "boto3"))):
        pytest.skip("the extra `s3` and moto[server] are not installed", allow_module_level=True)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request that matches, the first `times` times.

    Attributes:
        kind: `error` answers 500 (or `status`) and does nothing; `reset` breaks the connection and does nothing;
            `lost` does what was asked and breaks the connection; `cut` sends half of the answer's body; `slow`
            waits `seconds` first; `forgetful` drops the condition of a conditional put; `short` stores half of
            what is put.
    """

    kind: str
    method: str = ""
    part: str = ""  # of the path
    times: int = 1
    status: int = 500
    seconds: float = 0.0

    def matches(self, environ: Environ) -> bool:
        return self.method in ("", environ["REQUEST_METHOD"]) and self.part in environ["PATH_INFO"]


@dataclass
class Faulty:
    """The server. `requests` holds method and path of everything asked of it."""

    app: Wsgi
    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    hits: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _one_writer: threading.Lock = field(default_factory=threading.Lock)

    def inject(self, *faults: Fault) -> None:
        self.faults = [fault for fault in faults for _ in range(fault.times)]
        self.hits = 0

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
            fault = next((fault for fault in self.faults if fault.matches(environ)), None)
            if fault is not None:
                self.faults.remove(fault)
                self.hits += 1
        if fault is None:
            # moto looks and writes in two steps, S3 in one.
            with self._one_writer if "HTTP_IF_NONE_MATCH" in environ else nullcontext():
                return self.app(environ, start_response)
        if fault.kind == "slow":
            time.sleep(fault.seconds)
            return self.app(environ, start_response)
        if fault.kind == "forgetful":
            environ.pop("HTTP_IF_NONE_MATCH", None)
            return self.app(environ, start_response)
        if fault.kind == "cut":
            return _cut(environ, list(self.app(environ, start_response)))
        if fault.kind == "error":
            body = f"<Error><Code>Injected</Code><Message>{fault.status}</Message></Error>".encode()
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(f"{fault.status} Injected", [("Content-Type", "application/xml")])
            return [body]
        if fault.kind == "lost":
            b"".join(self.app(environ, lambda *arguments: None))
        return _reset(environ)


def _reset(environ: Environ) -> list[bytes]:
    connection: socket.socket = environ["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # close() alone waits for whoever else reads from the socket: the server itself.
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def _cut(environ: Environ, chunks: list[bytes]) -> Iterator[bytes]:
    body = b"".join(chunks)
    yield body[: len(body) // 2]
    connection: socket.socket = environ["werkzeug.socket"]
    connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving() -> Iterator[Faulty]:
    """The server, with an empty bucket, for as long as the block lasts; it keeps everything in memory."""
    # Imported late, since pytest reads every file: starting on a CPU, vLLM 0.32 asks every attribute of every module
    # for its __dict__, and the proxies of Flask, which comes with this, raise.
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    faulty = Faulty(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, faulty, threaded=True)
    faulty.url = f"http://127.0.0.1:{server.port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield faulty
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
