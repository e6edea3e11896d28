"""A crowd at the endpoint: each is answered by the member asked, waits its turn, may leave, and fails alone."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import asked_endpoint
import httpx
import numpy as np
import pytest
from asked_endpoint import BEARER, PROMPT, PROPOSE, counted, direct, text_of
from conftest import PATIENCE, wait_for
from served_fleet import KEY, MEMBERS, Held, served

from populora_core.sampler.requests import Completion, Request
from populora_plugins.serving.batcher import Batcher
from populora_plugins.serving.fleet import Fleet
from populora_plugins.serving.metrics import Metrics

fleet, address, openai = asked_endpoint.fleet, asked_endpoint.address, asked_endpoint.openai


@pytest.mark.thorough
def test_200_requests_of_8_members_at_once_are_answered_each_by_the_member_asked(
    openai: ModuleType, fleet: Fleet
) -> None:
    """The first batch is held until all others wait."""
    asked, held = [(MEMBERS[number % 8], number) for number in range(200)], Held(fleet.sampler)

    async def ask(address: str) -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, timeout=PATIENCE) as client:
            answers = asyncio.gather(
                *(
                    client.completions.create(
                        model=member, prompt=PROPOSE, seed=seed, max_tokens=12, logprobs=0
                    )
                    for member, seed in asked
                )
            )
            await asyncio.to_thread(held.began.wait, PATIENCE)
            others = {"": 200 - len(held.asked[0])}
            await asyncio.to_thread(wait_for, lambda: counted(address, "waiting") == others)
            held.may.set()
            return await answers

    with served(dataclasses.replace(fleet, sampler=held)) as address:  # type: ignore[arg-type]
        found = asyncio.run(ask(address))
    tokens = tuple(fleet.vocabulary.tokenizer(PROPOSE)["input_ids"])
    expected = [
        completion
        for member in MEMBERS
        for completion in fleet.sampler.generate(
            [Request(member, tokens, seed, max_tokens=12) for own, seed in asked if own == member]
        )
    ]
    order = [number for member in range(8) for number in range(member, 200, 8)]
    others = 0
    for completion, number in zip(expected, order, strict=True):
        (choice,) = found[number].choices
        assert found[number].model == asked[number][0]
        if choice.text != text_of(fleet, completion):
            others += 1  # rounding decided a draw otherwise, since the batch was another one
        else:
            given = np.array(choice.logprobs.token_logprobs, float)  # type: ignore[union-attr]
            np.testing.assert_allclose(given, completion.logprobs[: len(given)], atol=1e-4)
    assert others <= 2
    by_seed = [direct(fleet, member, seed=0, prompt=PROPOSE).token_ids for member in MEMBERS]
    assert len({*by_seed}) > 4, "members are told apart by what they say"
    assert len(held.asked) <= 3, "they were sampled together"


def test_more_than_may_wait_are_told_to_come_back(openai: ModuleType, fleet: Fleet) -> None:
    held = Held(fleet.sampler)
    slow = dataclasses.replace(fleet, sampler=held)  # type: ignore[arg-type]
    with served(slow, rows=1, waiting=2) as address:

        async def ask() -> None:
            async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:

                def one(n: int = 1) -> asyncio.Task:
                    return asyncio.create_task(
                        client.completions.create(model="base", prompt=PROMPT, max_tokens=2, n=n)
                    )

                first = one()
                await asyncio.to_thread(held.began.wait, PATIENCE)
                waiting = one(2)
                await asyncio.to_thread(wait_for, lambda: counted(address, "waiting") == {"": 2})
                with pytest.raises(openai.RateLimitError) as refused:
                    await one()
                assert refused.value.response.headers["retry-after"]
                assert "too many" in refused.value.body["message"]  # type: ignore[index]
                held.may.set()
                assert len((await first).choices) == 1
                assert len((await waiting).choices) == 2

        asyncio.run(ask())


@pytest.mark.thorough
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_killed_client_asked_is_not_sampled(openai: ModuleType, fleet: Fleet, stream: bool) -> None:
    held = Held(fleet.sampler)
    slow = dataclasses.replace(fleet, sampler=held)  # type: ignore[arg-type]
    killed = (
        "import openai, sys\n"
        "client = openai.OpenAI(base_url=sys.argv[1] + '/v1', api_key=sys.argv[2])\n"
        "asked = client.completions.create(model='base', prompt='<so>', max_tokens=7, stream=sys.argv[3] == 'True')\n"
        "[print(part) for part in asked]\n"
    )
    with served(slow, rows=1) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)
        with httpx.Client(base_url=address, headers=BEARER, timeout=PATIENCE) as other:
            body = {"model": "base", "prompt": PROMPT, "max_tokens": 2}
            first = threading.Thread(target=other.post, args=["/v1/completions"], kwargs={"json": body})
            first.start()
            assert held.began.wait(PATIENCE)
            process = subprocess.Popen([sys.executable, "-c", killed, address, KEY, str(stream)])
            wait_for(lambda: counted(address, "waiting") == {"": 1})
            process.kill()
            process.wait()
            wait_for(lambda: _gone(address, process.pid))
            held.may.set()
            first.join()
        wait_for(lambda: counted(address, "abandoned_total") == {"": 1})
        assert client.completions.create(model="base", prompt=PROMPT, max_tokens=2).choices
        assert [request.max_tokens for batch in held.asked for request in batch] == [2, 2]


class Awaiting(Held):
    """A sampler that draws some tokens, and goes on once someone has left."""

    def generate(self, requests, progress=None, drawn=None):  # type: ignore[no-untyped-def]
        steps = itertools.count(1)

        def told(*each: object) -> object:
            if next(steps) == 3:
                wait_for(lambda: drawn([], [], []))
            return drawn(*each)

        return super().generate(requests, progress, told)


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_ends_what_is_sampled_for_it_alone(fleet: Fleet, stream: bool) -> None:
    tokens = tuple(fleet.vocabulary.tokenizer(PROPOSE)["input_ids"])
    requests = [Request(None, tokens, seed, max_tokens=100) for seed in range(8)]
    alone = fleet.sampler.generate(requests)
    longest = max(range(8), key=lambda place: len(alone[place].token_ids))
    awaiting, metrics = Awaiting(fleet.sampler), Metrics()
    awaiting.may.set()

    async def ask() -> list[Completion]:
        batcher = Batcher(awaiting, metrics)  # type: ignore[arg-type]
        told = (lambda *each: None) if stream else None
        leaving = asyncio.create_task(batcher.complete([requests[longest]], told))
        staying = asyncio.create_task(batcher.complete(requests))
        await asyncio.sleep(0)
        working = asyncio.create_task(batcher.work())
        await asyncio.to_thread(awaiting.began.wait, PATIENCE)
        leaving.cancel()
        found = await staying
        working.cancel()
        return found

    assert [each.token_ids for each in asyncio.run(ask())] == [each.token_ids for each in alone]
    counts = dict(line.rsplit(" ", 1) for line in metrics.text().splitlines() if not line.startswith("#"))
    assert counts["populora_batches_total"] == counts["populora_abandoned_total"] == "1"
    drawn = int(counts['populora_completion_tokens_total{member="base"}'])
    assert 1 <= drawn - sum(len(each.token_ids) for each in alone) <= 3 < len(alone[longest].token_ids)


class Endless(Held):
    """A sampler that draws tokens until no one waits for them."""

    over = False

    def generate(self, requests, progress=None, drawn=None):  # type: ignore[no-untyped-def]
        self.began.set()
        while len(drawn([], [], [])) < len(requests):
            time.sleep(0.001)
        self.over = True
        return []


def test_the_end_of_an_endpoint_gives_up_the_batch_under_way_and_waits_for_it(fleet: Fleet) -> None:
    endless = Endless(fleet.sampler)

    async def end() -> None:
        batcher = Batcher(endless, Metrics())  # type: ignore[arg-type]
        asked = asyncio.create_task(batcher.complete([Request(None, (1,), 0, max_tokens=9)]))
        working = asyncio.create_task(batcher.work())
        await asyncio.to_thread(endless.began.wait, PATIENCE)
        working.cancel()
        await asyncio.to_thread(batcher.close)
        assert endless.over
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(end())


def _gone(address: str, pid: int) -> bool:
    """True if the server has heard of the end of every connection but ours."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    waits = "08"  # CLOSE_WAIT: the other side is gone, and this one has not closed
    return not any(row[1].endswith(port) and row[3] == waits for row in rows)


def test_a_batch_that_fails_fails_for_those_in_it_alone(openai: ModuleType, fleet: Fleet) -> None:
    class Failing(Held):
        def generate(self, requests, *others):  # type: ignore[no-untyped-def]
            if requests[0].seed == 13:
                raise RuntimeError("out of memory")
            return super().generate(requests, *others)

    failing = Failing(fleet.sampler)
    failing.may.set()
    with served(dataclasses.replace(fleet, sampler=failing)) as address:  # type: ignore[arg-type]
        client = openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)
        with pytest.raises(openai.InternalServerError, match="RuntimeError"):
            client.completions.create(model="base", prompt=PROMPT, seed=13)
        with pytest.raises(openai.APIError, match="RuntimeError"):
            list(client.completions.create(model="base", prompt=PROMPT, seed=13, stream=True))
        assert client.completions.create(model="base", prompt=PROMPT, seed=14).choices
