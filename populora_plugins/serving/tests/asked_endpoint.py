"""An endpoint of the fleet and its client as fixtures, and the sampler asked without an endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import httpx
import pytest
from conftest import PATIENCE
from served_fleet import KEY, served, tiny_fleet

from populora_core.sampler.requests import Completion, Request
from populora_plugins.serving.fleet import Fleet
from populora_plugins.serving.reply import Stops, reply_of

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
    """The sampler's own completion, asked without an endpoint."""
    tokens = tuple(fleet.vocabulary.tokenizer(prompt)["input_ids"])
    fields = {"max_tokens": 24} | given
    (completion,) = fleet.sampler.generate([Request(member, tokens, seed, **fields)])  # type: ignore[arg-type]
    return completion


def text_of(fleet: Fleet, completion: Completion) -> str:
    return reply_of(fleet.vocabulary, completion, Stops()).text


def counted(address: str, name: str) -> dict[str, int]:
    """Labels -> value of a metric."""
    text = httpx.get(f"{address}/metrics", headers=BEARER, timeout=PATIENCE).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(f"populora_{name}")]
    return {label.removeprefix(f"populora_{name}"): int(value) for label, value in lines}
