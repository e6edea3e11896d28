"""A member of a small pretrained base leaves its run, and is the same policy elsewhere, special tokens included.

Members leave as adapters and as checkpoints, never as GGUF files. How vLLM serves them, its plug-in's tests say.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from conftest import PATIENCE, small_config, start
from peft import PeftModel
from served_fleet import KEY, served
from test_real import weights
from tiny_base import layout_of, random_rows
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from populora_core.lifecycle.export import export_member
from populora_core.lifecycle.loop import train
from populora_core.model.adapter_files import write_peft
from populora_core.model.base import BaseModel, load_base, load_vocabulary
from populora_core.model.chat import special_tokens
from populora_core.model.stacked import StackedAdapters
from populora_core.runs.any_base import base_settings
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sampler.requests import Request
from populora_plugins.serving.fleet import open_fleet
from populora_plugins.serving.reply import Stops, reply_of

pytestmark = [pytest.mark.thorough, pytest.mark.loop, pytest.mark.sandbox]

MEMBER = "student-00-g0000"
ASKED = [
    {"role": "system", "content": "You read Python, and answer in one line."},
    {"role": "user", "content": "def f(text):\n    return text[::-1]\n\nWhat is f('één')?"},
]
TALK = [*ASKED, {"role": "assistant", "content": "'néé'"}, {"role": "user", "content": "Thank you."}]
FAR = 0.5  # nats a token from the base to the member, so that the tests see the adapter
EXACT = 1e-3  # nats: both sides are in float32, and add up in other orders through 30 layers
ROUNDED = 0.05  # nats a token: merging rounds every weight once to the 8 bits of bfloat16


@pytest.fixture(scope="module")
def section() -> dict[str, str]:
    return base_settings(weights("smollm2-135m", fetch=True)) | {"dtype": "bfloat16", "device": "cpu"}


@pytest.fixture(scope="module")
def base(section: dict[str, str]) -> BaseModel:
    """The base in float32, by which expectations are computed."""
    return load_base(small_config(base=section).base.folder())


@pytest.fixture(scope="module")
def text(base: BaseModel) -> Tensor:
    """A talk [1, T] as the chat template puts it."""
    told = base.tokenizer.apply_chat_template(TALK)
    return torch.tensor([base.tokenizer(told, add_special_tokens=False)["input_ids"]])


def own_logprobs(model: Callable[..., Any], text: Tensor) -> Tensor:
    """Log-probabilities [T - 1] of the text's own tokens."""
    with torch.no_grad():
        logits = model(input_ids=text, use_cache=False).logits.float()
    return logits[0, :-1].log_softmax(-1).gather(-1, text[0, 1:, None]).squeeze(-1)


@pytest.fixture(scope="module")
def stacked(base: BaseModel) -> StackedAdapters:
    """The member over the base."""
    stacked = StackedAdapters(base.model, layout_of(base.model))
    stacked.load({MEMBER: 1.5 * random_rows(stacked.layout, MEMBER)[MEMBER]})
    return stacked


@pytest.fixture(scope="module")
def expected(stacked: StackedAdapters, text: Tensor) -> Tensor:
    """Log-probabilities [T - 1] of the talk under the member, by our adapters."""
    found = []
    for slot in (0, None):
        with stacked.routed([slot]):
            found.append(own_logprobs(stacked.model, text))
    member, plain = found
    assert (member - plain).abs().mean() > FAR
    return member


@pytest.fixture(scope="module")
def run(section: dict[str, str], stacked: StackedAdapters, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in bfloat16 whose student is the member, and whose teacher is the base."""
    folder = tmp_path_factory.mktemp("real")
    write_peft(folder / "member", stacked.layout, stacked.weights[0], "smollm2")
    config = small_config(
        base=section,
        population={"teachers": 1, "students": 1},
        adapters={"start_from": {"students": [str(folder / "member")]}},
    )
    with Session(start(folder / "run", config)) as session:
        train(session, 0)
    return session.run


def test_an_adapter_is_to_peft_what_it_is_here(
    run: Run, expected: Tensor, text: Tensor, tmp_path: Path
) -> None:
    export_member(run, MEMBER, tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(run.config.base.folder(), dtype="float32")
    found = own_logprobs(PeftModel.from_pretrained(model, tmp_path / "out").eval(), text)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=EXACT)


@pytest.fixture(scope="module")
def merged(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_member(run, MEMBER, tmp_path_factory.mktemp("merged") / "out", merge=True).folder


def test_a_merged_member_is_a_checkpoint_of_the_same_policy(
    merged: Path, expected: Tensor, text: Tensor
) -> None:
    model = AutoModelForCausalLM.from_pretrained(merged, dtype="float32")
    assert (own_logprobs(model, text) - expected).abs().mean() < ROUNDED


def test_a_merged_member_has_the_special_tokens_of_its_base(
    merged: Path, base: BaseModel, text: Tensor
) -> None:
    tokenizer, special = AutoTokenizer.from_pretrained(merged), special_tokens(base.tokenizer)
    assert special_tokens(tokenizer) == special
    assert {"<|im_start|>", "<|im_end|>"} <= {special.get(token) for token in text[0].tolist()}
    assert tokenizer.apply_chat_template(TALK)["input_ids"] == text[0].tolist()
    assert tokenizer.decode(text[0]) == base.tokenizer.apply_chat_template(TALK)
    between = " né ".join(special.values())
    assert tokenizer(between)["input_ids"] == base.tokenizer(between)["input_ids"]
    assert [token for token in tokenizer(between)["input_ids"] if token in special] == [*special]
    assert load_vocabulary(merged).stop_ids == base.stop_ids


def test_an_endpoint_answers_talks_and_prompts_with_special_tokens_as_the_sampler_does(run: Run) -> None:
    fleet = open_fleet(run, 512)
    tokenizer = fleet.vocabulary.tokenizer
    prompt = tokenizer.apply_chat_template(ASKED, add_generation_prompt=True)
    ids = tuple(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    greedy = {"temperature": 0.0, "max_tokens": 12}
    member, bare = (
        # each alone, as the endpoint asks: another batch rounds otherwise
        reply_of(fleet.vocabulary, *fleet.sampler.generate([Request(each, ids, 0, **greedy)]), Stops()).text
        for each in (MEMBER, None)
    )
    assert member and member != bare
    with served(fleet) as address:

        def answer(path: str, model: str, **body: object) -> dict[str, Any]:
            found = httpx.post(
                f"{address}/v1/{path}",
                headers={"Authorization": f"Bearer {KEY}"},
                json={"model": model} | body | greedy,
                timeout=PATIENCE,
            )
            assert found.status_code == 200, found.text
            told: dict[str, Any] = found.json()
            assert told["usage"]["prompt_tokens"] == len(ids)
            return told["choices"][0]

        assert answer("chat/completions", MEMBER, messages=ASKED)["message"]["content"] == member
        assert answer("completions", MEMBER, prompt=prompt)["text"] == member
        assert answer("completions", "base", prompt=prompt)["text"] == bare
