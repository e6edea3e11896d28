"""Asks a guarded server of Prefect's as its own clients do: with the key, and with a token against forged requests."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Generator
from uuid import uuid4

import httpx


class PrefectKey(httpx.Auth):
    """For the server at `url` (.../api). A token is fetched when the server misses one."""

    requires_response_body = True

    def __init__(self, url: str, key: str) -> None:
        self.headers = {"Authorization": f"Basic {b64encode(key.encode()).decode()}"}
        self.client = str(uuid4())
        self.tokens = f"{url}/csrf-token?client={self.client}"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers.update(self.headers)
        refused = yield request
        if refused.status_code == httpx.codes.FORBIDDEN:
            given = yield httpx.Request("GET", self.tokens, headers=self.headers)
            self.headers |= {"Prefect-Csrf-Token": given.json()["token"], "Prefect-Csrf-Client": self.client}
            request.headers.update(self.headers)
            yield request
