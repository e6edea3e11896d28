"""A fleet of eight clearly different members on the bundled base, and its endpoint on loopback in this process."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from tiny_base import random_rows

from populora_core.compute.work import Worker
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.model.base import base_digest
from populora_core.problems.dialects import dialect
from populora_core.sampler.requests import Completion, Request, Sampler
from populora_core.sampler.spec import ModelSpec
from populora_plugins.serving.app import application
from populora_plugins.serving.fleet import Fleet

TINY = Path(__file__).resolve().parent.parent / "base_model" / "tiny"
MEMBERS = tuple(f"{role}-{slot:02d}-g0003" for role in ("student", "teacher") for slot in range(4))
KEY = "the-key"


class Held:
    """A sampler that waits until it may, and remembers what it was asked."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.may, self.began = threading.Event(), threading.Event()
        self.asked: list[list[Request]] = []

    def generate(self, requests: Sequence[Request], *others: object) -> list[Completion]:
        self.asked.append(list(requests))
        self.began.set()
        assert self.may.wait(600.0)
        return self._sampler.generate(requests, *others)  # type: ignore[arg-type]


def tiny_fleet() -> Fleet:
    """Four students and four teachers whose adapters are drawn at random, large enough to change what they say."""
    worker = Worker(ModelSpec(BaseSection(), AdapterSection(rank=4, alpha=8.0), base_digest(TINY)), threads=1)
    drawn = random_rows(worker.layout, *MEMBERS)
    worker.stacked.load({member: 3.0 * row for member, row in drawn.items()})
    return Fleet(
        sampler=worker.sampler,
        vocabulary=worker.vocabulary,
        dialect=dialect("compact"),
        members=MEMBERS,
        solvers=MEMBERS[:4],
        best=MEMBERS[2],
        context=256,
        usual=24,
    )


@contextmanager
def served(fleet: Fleet, **limits: int) -> Iterator[str]:
    """The endpoint's address for as long as the block lasts."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(application(fleet, KEY, **limits), log_level="critical", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
