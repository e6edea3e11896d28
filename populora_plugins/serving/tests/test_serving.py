"""The endpoint of a run's members, asked by OpenAI's own client: who answers, what is refused, what a crowd gets."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from conftest import PATIENCE, wait_for
from served_fleet import KEY, MEMBERS, TINY, Held, served, tiny_fleet

from populora_core.model.base import load_vocabulary
from populora_core.problems.dialects import dialect
from populora_core.sampler.requests import Completion, Request
from populora_core.support import ids
from populora_core.support.finish import FinishReason
from populora_core.support.keys import kept_key
from populora_plugins.serving.batcher import Batcher
from populora_plugins.serving.bodies import Message
from populora_plugins.serving.fleet import Fleet, majority
from populora_plugins.serving.metrics import Metrics
from populora_plugins.serving.reply import MemberReply, reply_of, settled

if TYPE_CHECKING:
    from openai import OpenAI

PROPOSE = "<po><new>"
PROMPT = "<so>def f(x):\n return x+1\n#4\n:"
BEARER = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return tiny_fleet()


@pytest.fixture(scope="module")
def address(fleet: Fleet) -> Iterator[str]:
    with served(fleet) as address:
        yield address


@pytest.fixture(scope="module")
def openai() -> ModuleType:
    """A second to import, which only the process that runs these tests spends."""
    return pytest.importorskip("openai", reason="needs the extra `trainers`")


@pytest.fixture(scope="module")
def client(openai: ModuleType, address: str) -> OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)


def direct(fleet: Fleet, member: str | None, seed: int, prompt: str = PROMPT, **given: object) -> Completion:
    """What the sampler says, asked without an endpoint."""
    tokens = tuple(fleet.vocabulary.tokenizer(prompt)["input_ids"])
    fields = {"max_tokens": 24} | given
    (completion,) = fleet.sampler.generate([Request(member, tokens, seed, **fields)])  # type: ignore[arg-type]
    return completion


def text_of(fleet: Fleet, completion: Completion) -> str:
    return reply_of(fleet.vocabulary, completion, ()).text


def counted(address: str, name: str) -> dict[str, int]:
    """Labels -> value of a metric."""
    text = httpx.get(f"{address}/metrics", headers=BEARER).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(f"populora_{name}")]
    return {label.removeprefix(f"populora_{name}"): int(value) for label, value in lines}


# Who answers


def test_every_member_is_a_model_and_so_are_choices_among_them_and_the_base(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [*MEMBERS, "best", "vote", "route", "base"]
    assert client.models.retrieve("T1").id == "teacher-01-g0003"


@pytest.mark.parametrize("member", [MEMBERS[0], MEMBERS[7], None])
def test_a_completion_is_the_members_own_with_its_log_probabilities(
    client: OpenAI, fleet: Fleet, member: str | None
) -> None:
    expected = direct(fleet, member, seed=5)
    answered = client.completions.create(
        model=member or "base", prompt=PROMPT, seed=5, max_tokens=24, logprobs=0
    )
    (choice,) = answered.choices
    assert choice.text == text_of(fleet, expected)
    assert choice.finish_reason == str(expected.finish_reason)
    assert choice.logprobs is not None and choice.logprobs.token_logprobs is not None
    given = choice.logprobs.token_logprobs
    np.testing.assert_allclose(np.array(given, float), expected.logprobs[: len(given)], atol=1e-4)
    assert "".join(choice.logprobs.tokens or ()) == choice.text
    assert answered.usage is not None and answered.usage.completion_tokens == len(expected.token_ids)


def test_best_is_the_fittest_solver(client: OpenAI, fleet: Fleet) -> None:
    said = client.completions.create(model="best", prompt=PROMPT, seed=1, max_tokens=24).choices[0].text
    assert said == text_of(fleet, direct(fleet, fleet.best, seed=1))


def test_choices_draw_apart_and_the_same_seed_draws_again(client: OpenAI, fleet: Fleet) -> None:
    once, again = (
        client.completions.create(model=MEMBERS[1], prompt=[PROMPT, PROMPT], n=2, seed=9, max_tokens=24)
        for _ in range(2)
    )
    seeds = [9, *(ids.draw_seed(9, number) for number in (1, 2, 3))]
    expected = [text_of(fleet, direct(fleet, MEMBERS[1], seed)) for seed in seeds]
    assert [choice.text for choice in once.choices] == [choice.text for choice in again.choices] == expected


def test_a_chat_of_one_message_is_put_as_members_learnt_to_be_asked(client: OpenAI, fleet: Fleet) -> None:
    answered = client.chat.completions.create(
        model=MEMBERS[0],
        messages=[{"role": "user", "content": PROMPT}],
        seed=3,
        max_completion_tokens=24,
        logprobs=True,
    )
    tokens = tuple(fleet.dialect.encode(fleet.vocabulary.tokenizer, PROMPT))
    (expected,) = fleet.sampler.generate([Request(MEMBERS[0], tokens, 3, max_tokens=24)])
    (choice,) = answered.choices
    assert choice.message.content == text_of(fleet, expected)
    assert choice.logprobs is not None and choice.logprobs.content is not None
    told = [token.logprob for token in choice.logprobs.content]
    np.testing.assert_allclose(told, expected.logprobs[: len(told)], atol=1e-4)


def test_vote_gives_the_answer_that_most_solvers_give(client: OpenAI, fleet: Fleet) -> None:
    said = client.completions.create(model="vote", prompt=PROMPT, seed=4, max_tokens=24)
    replies = [reply_of(fleet.vocabulary, direct(fleet, member, seed=4), ()) for member in fleet.solvers]
    assert said.choices[0].text == replies[majority(fleet.dialect, replies)].text
    assert said.usage is not None
    assert said.usage.completion_tokens == sum(reply.drawn for reply in replies)


def test_route_gives_the_answer_that_its_own_member_is_surest_of(client: OpenAI, fleet: Fleet) -> None:
    said = client.completions.create(model="route", prompt=PROPOSE, seed=4, max_tokens=24)
    found = [direct(fleet, member, seed=4, prompt=PROPOSE) for member in fleet.solvers]
    sure = max(found, key=lambda completion: np.mean(completion.logprobs))
    assert said.choices[0].text == text_of(fleet, sure)


@pytest.mark.parametrize(
    ("texts", "chosen"),
    [
        (["t\n=5", "\n=6", "other thought\n=6"], 1),
        (["no answer", "none", "none", "\n=[1, 2]"], 3),
        (["none", "no answer", "no answer"], 0),
        (["1,2", "(2)", "1, 2"], 0),
    ],
)
def test_a_vote_is_over_answers_and_not_over_thoughts(fleet: Fleet, texts: list[str], chosen: int) -> None:
    replies = [MemberReply(text, (), FinishReason.STOP, 1) for text in texts]
    assert majority(fleet.dialect, replies) == chosen


@pytest.mark.parametrize("inputs", [1, 3])
def test_a_vote_counts_answers_in_blocks_however_many_a_problem_has(inputs: int) -> None:
    def text(thought: str, tag: str, answer: str) -> str:
        blocks = "\n".join([f"```{tag}\n{answer}\n```"] * inputs)
        return f"{thought}</think>\n<answer>\n{blocks}\n</answer>"

    for tag, one, other in (("output", "5", "6"), ("input", "1, 2", "2, 1")):
        texts = [text("a", tag, one), text("b", tag, other), text("c", tag, other)]
        replies = [MemberReply(each, (), FinishReason.STOP, 1) for each in texts]
        assert majority(dialect("instruct", inputs), replies) == 1


# Streams and stops


@pytest.mark.parametrize("stop", [None, ["="], ["\n"]])
def test_a_stream_says_what_the_whole_answer_says(client: OpenAI, stop: list[str] | None) -> None:
    asked = {"model": MEMBERS[0], "prompt": PROMPT, "seed": 8, "n": 3, "max_tokens": 40, "stop": stop}
    whole = client.completions.create(**asked, logprobs=0)
    texts, reasons, logprobs, chunks = [""] * 3, [""] * 3, [[], [], []], 0
    usage = None
    for part in client.completions.create(
        **asked, logprobs=0, stream=True, stream_options={"include_usage": True}
    ):
        usage = part.usage or usage
        for choice in part.choices:
            chunks += 1
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
            logprobs[choice.index] += choice.logprobs.token_logprobs
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert logprobs == [choice.logprobs.token_logprobs for choice in whole.choices]
    assert usage == whole.usage
    if stop is None:
        assert chunks > 6, "it came in pieces"
    else:
        assert all(stop[0] not in text for text in texts)


def test_a_chat_streams_and_so_does_a_vote(client: OpenAI) -> None:
    for model in (MEMBERS[3], "vote"):
        asked = {
            "model": model,
            "messages": [{"role": "user", "content": PROMPT}],
            "seed": 2,
            "max_tokens": 24,
        }
        parts = client.chat.completions.create(**asked, stream=True)
        said = "".join(part.choices[0].delta.content or "" for part in parts)
        assert said == client.chat.completions.create(**asked).choices[0].message.content


def test_usage_counts_the_tokens_up_to_the_one_that_completes_a_stop_text(
    client: OpenAI, fleet: Fleet
) -> None:
    ids, text = direct(fleet, MEMBERS[0], seed=8, max_tokens=40).token_ids, fleet.vocabulary.text
    stop = text(ids[9:13])
    needed = next(count for count in range(len(ids)) if stop in text(ids[:count]))
    assert 4 <= needed < len(ids)
    asked = {"model": MEMBERS[0], "prompt": PROMPT, "seed": 8, "max_tokens": 40}
    whole, ended = (client.completions.create(**asked, stop=each) for each in (None, [stop]))
    assert [whole.usage.completion_tokens, ended.usage.completion_tokens] == [len(ids), needed]
    assert ended.choices[0].finish_reason == "stop"
    assert ended.choices[0].text == text(ids).partition(stop)[0]


@pytest.mark.parametrize(
    ("text", "stop", "kept"),
    [
        ("abc", (), 3),
        ("ab\n", ("\n\nend",), 2),
        ("ab\n\n", ("\n\nend",), 2),
        ("a", ("b",), 1),
    ],
)
def test_of_an_unfinished_text_only_what_will_stay_is_sent(
    text: str, stop: tuple[str, ...], kept: int
) -> None:
    assert settled(text, stop) == kept


# A crowd


@pytest.mark.thorough
def test_200_requests_of_8_members_at_once_are_answered_each_by_the_member_asked(
    openai: ModuleType, address: str, fleet: Fleet
) -> None:
    asked = [(MEMBERS[number % 8], number) for number in range(200)]

    async def ask() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, timeout=PATIENCE) as client:
            return await asyncio.gather(
                *(
                    client.completions.create(
                        model=member, prompt=PROPOSE, seed=seed, max_tokens=12, logprobs=0
                    )
                    for member, seed in asked
                )
            )

    before = counted(address, "batches_total")
    found = asyncio.run(ask())
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
    batches = counted(address, "batches_total")[""] - before.get("", 0)
    assert batches < 100, "they were sampled together"


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


def _gone(address: str, pid: int) -> bool:
    """Whether the server has heard of the end of every connection but ours."""
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


# What is refused


def test_without_the_key_nothing_is_told(openai: ModuleType, address: str) -> None:
    for key in ("wrong", "", KEY + "x"):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key=key or "none", max_retries=0)
        with pytest.raises(openai.AuthenticationError) as refused:
            client.completions.create(model="base", prompt=PROMPT)
        assert refused.value.code == "invalid_api_key"
    for path in ("/v1/models", "/metrics", "/v1/models/base"):
        for headers in (
            {},
            {"Authorization": KEY},
            {"Authorization": "Bearer \xe9"},
            {"Authorization": "Basic x"},
        ):
            encoded = {name: value.encode("latin-1") for name, value in headers.items()}
            assert httpx.get(address + path, headers=encoded).status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\xff garbage",
        b"{",
        b"[]",
        b"null",
        b'{"model": "base"}',
        b'{"model": "base", "prompt": []}',
        b'{"model": "base", "prompt": ""}',
        b'{"model": "base", "prompt": [999999]}',
        b'{"model": "base", "prompt": [-1]}',
        b'{"model": "base", "prompt": "a", "max_tokens": 0}',
        b'{"model": "base", "prompt": "a", "max_tokens": 100000}',
        b'{"model": "base", "prompt": "a", "n": 129}',
        b'{"model": "vote", "prompt": "a", "n": 100}',
        b'{"model": "base", "prompt": "a", "temperature": NaN}',
        b'{"model": "base", "prompt": "a", "temperature": 0.001}',
        b'{"model": "base", "prompt": "a", "seed": -1}',
        b'{"model": "base", "prompt": "a", "stop": ["", "b"]}',
        b'{"model": "base", "prompt": "a", "logprobs": 5}',
        b'{"model": "base", "prompt": null}',
        b'{"model": "base", "prompt": "a", "best_of": 2}',
        b'{"model": "base", "prompt": "a", "best_of": true}',
        b'{"model": "base", "prompt": "a", "top_k": 5}',
        b'{"model": "base", "prompt": "a", "repetition_penalty": 1.1}',
        b'{"model": "base", "prompt": "a", "response_format": {"type": "json_object"}}',
        b'{"model": "base", "prompt": "a", "tool_choice": "auto"}',
        b'{"model": "base", "prompt": "a", "stop": "' + b"a" * 1001 + b'"}',
        b'{"model": "base", "prompt": "a", "echo": true}',
        b'{"model": "base", "prompt": "a", "logit_bias": {"5": 100}}',
        b"[" * 100_000,
        b'{"model": "base", "prompt": "' + b"a" * (1 << 20) + b'"}',
    ],
)
def test_a_body_of_garbage_is_refused_in_openais_words(address: str, body: bytes) -> None:
    came = httpx.post(f"{address}/v1/completions", content=body, headers=BEARER)
    assert came.status_code == 400, came.text
    told = came.json()["error"]
    assert told["type"] == "invalid_request_error" and told["message"]


@pytest.mark.parametrize(
    "field",
    [
        *(
            {name: None}
            for name in ("temperature", "top_p", "n", "stream", "stop", "seed", "tools", "logit_bias")
        ),
        {"response_format": {"type": "text"}},
        {"tool_choice": "none"},
        {"best_of": 1},
        {"repetition_penalty": 1.0},
        {"top_k": -1},
        {"skip_special_tokens": True},
        {"stop": "a" * 1000},
    ],
    ids=str,
)
def test_a_field_that_asks_for_nothing_is_none(address: str, field: dict) -> None:
    body = {"model": "base", "prompt": PROMPT, "max_tokens": 1}
    came = httpx.post(f"{address}/v1/completions", json=body | field, headers=BEARER)
    assert came.status_code == 200, came.text


def test_an_assistant_alone_may_have_said_nothing() -> None:
    assert Message(role="assistant", content=None).text == ""
    with pytest.raises(ValueError, match="message of the user has content"):
        Message(role="user", content=None)


def test_too_many_prompts_are_refused_before_any_is_read(address: str) -> None:
    body = {
        "model": "base",
        "prompt": ["a"] * 128 + [""],
    }  # the empty one is told of only where prompts are read
    came = httpx.post(f"{address}/v1/completions", json=body, headers=BEARER)
    assert came.status_code == 400 and "came 129" in came.json()["error"]["message"]


def test_the_line_end_of_a_key_file_is_no_part_of_the_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a key\n")
    assert kept_key(tmp_path / "key") == "a key"


def test_a_longer_chat_needs_a_chat_template(openai: ModuleType, client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        client.chat.completions.create(
            model="base",
            messages=[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}],
        )


def test_an_assistant_that_said_nothing_is_part_of_a_longer_chat(fleet: Fleet, tmp_path: Path) -> None:
    base = Path(shutil.copytree(TINY, tmp_path / "base"))
    (base / "chat_template.jinja").write_text(
        "{% for turn in messages %}#{{ '' + turn.content }}\n{% endfor %}"
    )
    chatty = dataclasses.replace(fleet, vocabulary=load_vocabulary(base))
    turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": None}]
    with served(chatty) as address:
        body = {"model": "base", "messages": [*turns, turns[0]], "max_tokens": 2}
        came = httpx.post(f"{address}/v1/chat/completions", json=body, headers=BEARER)
    assert came.status_code == 200, came.text
    prompt = fleet.vocabulary.tokenizer("#1\n#\n#1\n", add_special_tokens=False)["input_ids"]
    assert came.json()["usage"]["prompt_tokens"] == len(prompt)


def test_an_unknown_model_and_an_unknown_path_are_not_found(
    openai: ModuleType, client: OpenAI, address: str
) -> None:
    with pytest.raises(openai.NotFoundError, match="student-00-g0003") as refused:
        client.completions.create(model="S9", prompt=PROMPT)
    assert refused.value.code == "model_not_found"
    assert httpx.get(f"{address}/docs", headers=BEARER).json()["error"]["message"] == "Not Found"


def test_the_metrics_count_what_was_asked(client: OpenAI, address: str) -> None:
    label = '{member="teacher-02-g0003"}'
    before = counted(address, "completion_tokens_total").get(label, 0)
    answered = client.completions.create(model="T2", prompt=PROMPT, n=2, max_tokens=5)
    assert answered.usage is not None
    after = counted(address, "completion_tokens_total")[label]
    assert after - before == answered.usage.completion_tokens
    assert counted(address, "requests_total")['{path="/v1/completions",status="200"}'] >= 1
    assert counted(address, "waiting") == {"": 0}


# The command


@pytest.mark.loop
@pytest.mark.thorough
def test_the_command_serves_a_run_until_it_is_interrupted(openai: ModuleType, finished: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "populora_core.commands", "serve", str(finished), "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said: list[str] = []
        while not any("OPENAI_API_KEY=" in line for line in said):
            line = process.stdout.readline()
            assert line, said
            said.append(line)
        key = next(line for line in said if "OPENAI_API_KEY=" in line).split("OPENAI_API_KEY=")[1].split()[0]
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, timeout=PATIENCE)
        wait_for(lambda: _answers(port))
        names = [model.id for model in client.models.list()]
        assert {name[:10] for name in names if "-" in name} == {
            *(f"teacher-0{slot}" for slot in range(3)),
            *(f"student-0{slot}" for slot in range(2)),
        }
        assert {"best", "vote", "route", "base"} <= {*names}
        for name in names:
            assert client.completions.create(model=name, prompt=PROMPT, max_tokens=4).choices
        process.send_signal(2)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
