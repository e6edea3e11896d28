"""The endpoint: OpenAI's paths behind a key, OpenAI's errors, and what Prometheus asks for."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from populora_core.support.errors import PopuloraError, RunDirectoryError
from populora_plugins.serving.asking import BadQuestion, UnknownModel, answer, chunks, question
from populora_plugins.serving.batcher import Batcher, Overloaded
from populora_plugins.serving.bodies import Asking, ChatBody, CompletionBody
from populora_plugins.serving.fleet import Fleet
from populora_plugins.serving.metrics import Metrics
from populora_plugins.serving.shapes import Json, error_body

LOG = logging.getLogger(__name__)
LARGEST_BODY = 1 << 20
GONE = 499  # what servers write down of a client that left
STATUS: dict[type[Exception], tuple[int, str, str | None]] = {
    BadQuestion: (400, "invalid_request_error", None),
    ValidationError: (400, "invalid_request_error", None),
    UnknownModel: (404, "invalid_request_error", "model_not_found"),
    Overloaded: (429, "rate_limit_exceeded", "rate_limit_exceeded"),
}
"""Error -> status, OpenAI's type and code; all others are ours."""


def application(fleet: Fleet, key: str, *, rows: int = 128, waiting: int = 512) -> ASGIApp:
    """The endpoint of a fleet.

    Args:
        key: that every request must bear.
        rows, waiting: completions that are sampled at once, and that may wait; see `Batcher`.
    """
    metrics = Metrics()
    batcher = Batcher(fleet.sampler, metrics, rows, waiting)

    @asynccontextmanager
    async def working(app: FastAPI) -> AsyncIterator[None]:
        work = asyncio.create_task(batcher.work())
        yield
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await asyncio.to_thread(batcher.close)  # no sampler may be closed at work

    app = FastAPI(
        lifespan=working,
        dependencies=[Depends(_key_required(key))],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    for kind in (*STATUS, PopuloraError, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _refusal)

    @app.get("/v1/models")
    async def models() -> Json:
        return {"object": "list", "data": [_model(name) for name in fleet.models]}

    @app.get("/v1/models/{name}")
    async def model(name: str) -> Json:
        try:
            (member, *others), _ = fleet.asked(name)
        except RunDirectoryError as error:
            raise UnknownModel(str(error)) from error
        return _model(name if name in fleet.models or others else str(member))

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _answered(request, CompletionBody, fleet, batcher)

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await _answered(request, ChatBody, fleet, batcher)

    @app.get("/metrics")
    async def told() -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    return Counted(app, metrics)


class Counted:
    """An app whose answers are counted by path and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = getattr(scope.get("route"), "path", "other")
                self._metrics.add("requests_total", path=path, status=str(message["status"]))
            await send(message)

        await self._app(scope, receive, counting)


async def _answered(request: Request, kind: type[Asking], fleet: Fleet, batcher: Batcher) -> Response:
    body = kind.model_validate_json(await _read(request))
    asked = question(fleet, body)
    if not body.stream:
        try:
            return await _unless_gone(request, answer(fleet, batcher, asked))
        except (
            Exception
        ) as error:  # left to the app it would end the connection, which the client may use again
            return await _refusal(request, error)
    batcher.require_room(len(asked.requests))
    return StreamingResponse(_events(chunks(fleet, batcher, asked)), media_type="text/event-stream")


async def _read(request: Request) -> bytes:
    """The body, no more of it than is allowed."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY:
            raise BadQuestion(f"a body has at most {LARGEST_BODY} bytes")
    return bytes(body)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Json]) -> Response:
    """The answer; it is given up when the client leaves."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return JSONResponse(working.result()) if working.done() else Response(status_code=GONE)
    finally:
        working.cancel()
        leaving.cancel()


async def _events(answered: AsyncIterator[Json]) -> AsyncIterator[str]:
    try:
        async for chunk in answered:
            yield f"data: {json.dumps(chunk)}\n\n"
    except Exception as error:  # the status is on its way already
        yield f"data: {json.dumps(_told(error)[1])}\n\n"
    yield "data: [DONE]\n\n"


def _key_required(key: str) -> Callable[[Request], None]:
    wanted = f"Bearer {key}".encode()

    def check(request: Request) -> None:
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), wanted):
            raise HTTPException(401, "a key is needed: Authorization: Bearer KEY")

    return check


async def _refusal(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=GONE)
    status, body = _told(error)
    return JSONResponse(body, status, headers={"Retry-After": "1"} if status == 429 else None)


def _told(error: Exception) -> tuple[int, Json]:
    """Status and body of an error. What is wrong with us is named by its kind alone."""
    if isinstance(error, HTTPException):
        code = "invalid_api_key" if error.status_code == 401 else None
        return error.status_code, error_body(str(error.detail), "invalid_request_error", code)
    for kind, (status, own, code) in STATUS.items():
        if isinstance(error, kind):
            return status, error_body(_words(error), own, code)
    LOG.error("a question could not be answered", exc_info=error)
    return 500, error_body(f"the server failed: {type(error).__name__}", "server_error")


def _words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors()[:5]
        )
    return str(error)


def _model(name: str) -> Json:
    return {"id": name, "object": "model", "created": 0, "owned_by": "populora"}
