"""Cost of the endpoint beside the sampler called directly.

    populora bench serving --json

The tiny base, eight members, 64 requests at once, one batch: prompts of 20 to 60 tokens, 96 tokens drawn for each (no
end token stops a row). The endpoint serves them in this process, to a client in a process of its own; directly, the
sampler completes the same requests in one call. A ratio is throughput over throughput: in CPU seconds of this
process, and in wall seconds, which hold the client's work and the way to it as well.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import IO

import httpx
import numpy as np
import torch
import uvicorn

from bench.adapters import drawn_ids, ours, trained
from bench.harness import BenchRow, ratio, rounds
from populora_core.model.base import Vocabulary
from populora_core.problems.dialects import dialect
from populora_core.sampler.requests import Request
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support.aliases import Say
from populora_plugins.serving.app import application
from populora_plugins.serving.fleet import Fleet

REQUESTS, MEMBERS, NEW_TOKENS = 64, 8, 96
PROMPT_TOKENS = (20, 60)
KEY = "bench"


def run(samples: int, say: Say) -> list[BenchRow]:
    """The ratio that has a goal, in both kinds of seconds."""
    torch.set_num_threads(1)
    base, stacked = ours()
    members = tuple(str(member) for member in range(MEMBERS))
    stacked.load({name: trained(stacked.layout, int(name)) for name in members})
    sampler = TorchSampler(stacked, frozenset())
    fleet = Fleet(
        sampler=sampler,
        vocabulary=Vocabulary(base.tokenizer, frozenset()),
        dialect=dialect("compact"),
        members=members,
        solvers=members,
        best=members[0],
        context=256,
        usual=NEW_TOKENS,
    )
    rng = np.random.default_rng(0)
    prompts = [drawn_ids(rng, PROMPT_TOKENS, len(base.tokenizer)) for _ in range(REQUESTS)]
    requests = [
        Request(members[index % MEMBERS], prompt, index, max_tokens=NEW_TOKENS)
        for index, prompt in enumerate(prompts)
    ]
    with served(fleet) as address, client(address, requests) as ask:
        taken = rounds({"direct": lambda: sampler.generate(requests), "endpoint": ask}, samples, say)
    direct, endpoint = taken["direct"], taken["endpoint"]
    cpu, wall = attrgetter("cpu"), attrgetter("wall")
    return [
        ratio("endpoint_over_direct", [*map(cpu, direct)], [*map(cpu, endpoint)], ">= 0.8"),
        ratio("endpoint_over_direct_wall", [*map(wall, direct)], [*map(wall, endpoint)], ">= 0.8"),
    ]


@contextmanager
def served(fleet: Fleet) -> Iterator[str]:
    """The endpoint in a thread of this process."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application(fleet, KEY), log_level="warning", timeout_graceful_shutdown=1, timeout_keep_alive=3600
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def client(address: str, requests: Sequence[Request]) -> Iterator[Callable[[], None]]:
    """A process that sends all requests at once, each time that it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.serving", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    bodies = [
        {
            "model": request.member_id,
            "prompt": request.prompt_ids,
            "seed": request.seed,
            "max_tokens": request.max_tokens,
        }
        for request in requests
    ]
    told, heard = process.stdin, process.stdout
    _say(told, json.dumps(bodies))

    def ask() -> None:
        _say(told, "go")
        assert heard.readline() == f"{len(requests)}\n", "the client failed"

    try:
        yield ask
    finally:
        told.close()
        process.wait()


def _say(pipe: IO[str], line: str) -> None:
    pipe.write(line + "\n")
    pipe.flush()


async def _send(address: str) -> None:
    """The client's process: a line with all bodies, then one for each time that they are sent."""
    bodies = json.loads(sys.stdin.readline())
    limits = httpx.Limits(max_connections=len(bodies))
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, limits=limits, timeout=600.0) as http:
        while sys.stdin.readline():
            came = await asyncio.gather(*(http.post("/v1/completions", json=body) for body in bodies))
            tokens = [answer.json()["usage"]["completion_tokens"] for answer in came]
            assert tokens == [body["max_tokens"] for body in bodies]
            print(len(came), flush=True)


if __name__ == "__main__":
    asyncio.run(_send(sys.argv[1]))
