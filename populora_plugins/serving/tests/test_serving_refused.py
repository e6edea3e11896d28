"""Requests that the endpoint refuses, in OpenAI's words, and those that only look wrong."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import asked_endpoint
import httpx
import pytest
from asked_endpoint import BEARER, PROMPT
from conftest import PATIENCE
from served_fleet import KEY, TINY, served

from populora_core.model.base import load_vocabulary
from populora_core.support.errors import ConfigError
from populora_core.support.keys import kept_key
from populora_plugins.serving.bodies import Message
from populora_plugins.serving.fleet import Fleet

if TYPE_CHECKING:
    from openai import OpenAI

fleet, address = asked_endpoint.fleet, asked_endpoint.address
openai, client = asked_endpoint.openai, asked_endpoint.client


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
            came = httpx.get(address + path, headers=encoded, timeout=PATIENCE)
            assert came.status_code == 401


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
        b'{"model": "base", "prompt": "a", "tool_choice": "required"}',
        b'{"model": "base", "prompt": "a", "stop": "' + b"a" * 1001 + b'"}',
        b'{"model": "base", "prompt": "a", "echo": true}',
        b'{"model": "base", "prompt": "a", "logit_bias": {"5": 100}}',
        b"[" * 100_000,
        b'{"model": "base", "prompt": "' + b"a" * (1 << 20) + b'"}',
    ],
)
def test_a_body_of_garbage_is_refused_in_openais_words(address: str, body: bytes) -> None:
    came = httpx.post(f"{address}/v1/completions", content=body, headers=BEARER, timeout=PATIENCE)
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
        {"tool_choice": "auto"},
        {"parallel_tool_calls": True},
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
    came = httpx.post(f"{address}/v1/completions", json=body | field, headers=BEARER, timeout=PATIENCE)
    assert came.status_code == 200, came.text


def test_an_assistant_alone_may_have_said_nothing() -> None:
    assert Message(role="assistant", content=None).text == ""
    with pytest.raises(ValueError, match="message of the user has content"):
        Message(role="user", content=None)


def test_a_message_with_tool_calls_is_refused() -> None:
    assert Message(role="assistant", tool_calls=[]).text == ""
    with pytest.raises(ValueError, match="tool_calls"):
        Message(role="assistant", tool_calls=[{"id": "1", "type": "function"}])


def test_too_many_prompts_are_refused_before_any_is_read(address: str) -> None:
    body = {
        "model": "base",
        "prompt": ["a"] * 128 + [""],
    }  # the empty one is told of only where prompts are read
    came = httpx.post(f"{address}/v1/completions", json=body, headers=BEARER, timeout=PATIENCE)
    assert came.status_code == 400 and "came 129" in came.json()["error"]["message"]


def test_the_line_end_of_a_key_file_is_no_part_of_the_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a key\n")
    assert kept_key(tmp_path / "key") == "a key"


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch], ids=["a folder", "an empty file"])
def test_a_key_file_without_a_key_is_refused_and_left_as_it_was(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(path := tmp_path / "key")
    before = path.stat().st_mode
    with pytest.raises(ConfigError, match="holds no key"):
        kept_key(path)
    assert path.stat().st_mode == before


def test_a_longer_chat_needs_a_chat_template(openai: ModuleType, client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        client.chat.completions.create(
            model="base", messages=[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
        )


def chatted(fleet: Fleet, base: Path, template: str, *turns: dict) -> httpx.Response:
    """The answer to a chat with a base that has this template."""
    shutil.copytree(TINY, base)
    (base / "chat_template.jinja").write_text(template)
    with served(dataclasses.replace(fleet, vocabulary=load_vocabulary(base))) as address:
        body = {"model": "base", "messages": turns, "max_tokens": 2}
        return httpx.post(f"{address}/v1/chat/completions", json=body, headers=BEARER, timeout=PATIENCE)


USER = {"role": "user", "content": "1"}


def test_an_assistant_that_said_nothing_is_part_of_a_longer_chat(fleet: Fleet, tmp_path: Path) -> None:
    template = "{% for turn in messages %}#{{ '' + turn.content }}\n{% endfor %}"
    came = chatted(fleet, tmp_path / "base", template, USER, {"role": "assistant", "content": None}, USER)
    assert came.status_code == 200, came.text
    prompt = fleet.vocabulary.tokenizer("#1\n#\n#1\n", add_special_tokens=False)["input_ids"]
    assert came.json()["usage"]["prompt_tokens"] == len(prompt)


def test_a_developer_speaks_as_the_system(fleet: Fleet, tmp_path: Path) -> None:
    template = (
        "{% for turn in messages if turn.role in ['system', 'user'] %}#{{ turn.content }}\n{% endfor %}"
    )
    came = chatted(fleet, tmp_path / "base", template, {"role": "developer", "content": "2"}, USER)
    assert came.status_code == 200, came.text
    prompt = fleet.vocabulary.tokenizer("#2\n#1\n", add_special_tokens=False)["input_ids"]
    assert came.json()["usage"]["prompt_tokens"] == len(prompt)


def test_a_chat_that_the_template_refuses_is_a_bad_request(fleet: Fleet, tmp_path: Path) -> None:
    came = chatted(fleet, tmp_path / "base", "{{ raise_exception('roles must alternate') }}", USER, USER)
    told = came.json()["error"]["message"]
    assert came.status_code == 400 and "roles must alternate" in told
    assert str(tmp_path) not in told, "where the base lies is no one's business"


def test_an_unknown_model_and_an_unknown_path_are_not_found(
    openai: ModuleType, client: OpenAI, address: str
) -> None:
    with pytest.raises(openai.NotFoundError, match="student-00-g0003") as refused:
        client.completions.create(model="S9", prompt=PROMPT)
    assert refused.value.code == "model_not_found"
    came = httpx.get(f"{address}/docs", headers=BEARER, timeout=PATIENCE)
    assert came.json()["error"]["message"] == "Not Found"
