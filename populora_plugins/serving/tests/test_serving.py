"""The endpoint of a run's members, asked by OpenAI's own client: answers, streams, counts, and the command."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import asked_endpoint
import numpy as np
import pytest
from asked_endpoint import PROMPT, PROPOSE, counted, direct, text_of
from conftest import PATIENCE, wait_for
from served_fleet import KEY, MEMBERS, served

from populora_core.problems.dialects import Dialect, dialect
from populora_core.sampler.requests import Request
from populora_core.support import ids
from populora_core.support.finish import FinishReason
from populora_plugins.serving.fleet import Fleet, majority
from populora_plugins.serving.reply import MemberReply, Stops, reply_of, settled

if TYPE_CHECKING:
    from openai import OpenAI

fleet, address = asked_endpoint.fleet, asked_endpoint.address
openai, client = asked_endpoint.openai, asked_endpoint.client


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
    drawn = [direct(fleet, member, seed=4) for member in fleet.solvers]
    replies = [reply_of(fleet.vocabulary, each, Stops()) for each in drawn]
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


def test_a_prompt_counts_once_however_many_choices_it_has(client: OpenAI) -> None:
    def read(prompts: list[str], n: int) -> int:
        usage = client.completions.create(model=MEMBERS[0], prompt=prompts, n=n, max_tokens=2).usage
        assert usage is not None
        return usage.prompt_tokens

    one, other = read([PROMPT], 1), read([PROMPT * 2], 1)
    assert read([PROMPT], 4) == one < other
    assert read([PROMPT, PROMPT * 2], 3) == one + other


# Streams and stops


@pytest.mark.parametrize("model", [MEMBERS[0], "vote"])
def test_a_streamed_conversation_has_one_role_a_choice(client: OpenAI, model: str) -> None:
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    question: Any = [{"role": "user", "content": "1 + 1?"}]
    for chunk in client.chat.completions.create(
        model=model, messages=question, n=2, max_tokens=12, seed=1, stream=True
    ):
        state.handle_chunk(chunk)
    choices = state.current_completion_snapshot.choices
    assert [choice.message.role for choice in choices] == ["assistant", "assistant"]
    assert any(choice.message.content for choice in choices)


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


class Ending:
    """A dialect whose completions end after this text."""

    def __init__(self, spoken: Dialect, stop: str) -> None:
        self._spoken, self.stop = spoken, (stop,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spoken, name)


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_ends_where_members_learnt_to_end_and_keeps_the_text_that_says_so(
    openai: ModuleType, fleet: Fleet, stream: bool
) -> None:
    text = text_of(fleet, direct(fleet, MEMBERS[0], seed=8, max_tokens=40))
    stop = text[9:12]
    before = text.partition(stop)[0]
    with served(replace(fleet, dialect=Ending(fleet.dialect, stop))) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)

        def said(**given: object) -> tuple[str, str | None]:
            asked = {"model": MEMBERS[0], "messages": [{"role": "user", "content": PROMPT}], "seed": 8}
            got = client.chat.completions.create(**asked, max_tokens=40, stream=stream, **given)
            if not stream:
                return got.choices[0].message.content, got.choices[0].finish_reason
            parts = [part.choices[0] for part in got]
            return "".join(part.delta.content or "" for part in parts), parts[-1].finish_reason

        assert said() == (before + stop, "stop")
        assert said(stop=[stop]) == (before, "stop"), "the client's own is left out, as everywhere"


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


# What is counted


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
