"""Eight members for vLLM on the bundled base: their adapters, whole and spoilt, their requests and completions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tiny_base import random_rows

from populora_core.config.load import Config
from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.model.adapter_files import CONFIG, WEIGHTS, write_peft
from populora_core.model.layout import AdapterLayout
from populora_core.sampler.requests import Completion, Request, Served
from populora_core.sampler.spec import ModelSpec
from populora_core.support.digest import file_sha256
from populora_plugins.vllm.sampler import VllmSampler

needs_vllm = pytest.mark.skipif(
    find_spec("vllm") is None, reason="vLLM is not installed; make test-vllm has it"
)
FOLDER = Config().base.folder()
RANK, ALPHA = 8, 16.0
MEMBERS = tuple(f"m{number}" for number in range(8))
TOLERANCE = 1e-4


def adapter(folder: Path, layout: AdapterLayout, member: str, seed: int = 5) -> Served:
    """Write an adapter that says something else for every member and seed."""
    row = random_rows(layout, *MEMBERS, seed=seed)[member]
    write_peft(folder, layout, row, "tiny")
    return Served(member, folder, file_sha256(folder / WEIGHTS))


def new_sampler(rank: int = RANK, device: str = "cpu", **settings: int) -> VllmSampler:
    section = SamplerSection(engine="vllm", **settings)
    spec = ModelSpec(BaseSection(device=device), AdapterSection(rank=rank), "none", section)
    return VllmSampler(spec, [1])


def prompts(count: int = 24, shortest: int = 20) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(3)
    return [tuple(rng.integers(4, 334, shortest + index).tolist()) for index in range(count)]


def asked(*members: str | None, **settings: float) -> list[Request]:
    """Every prompt from every member, the members taking turns."""
    return [
        Request(member, prompt, seed=index, **{"max_tokens": 16, **settings})
        for index, prompt in enumerate(prompts())
        for member in members
    ]


def assert_alike(found: Sequence[Completion], expected: Sequence[Completion]) -> None:
    assert [c.token_ids for c in found] == [c.token_ids for c in expected]
    assert [c.finish_reason for c in found] == [c.finish_reason for c in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, rtol=0.0, atol=TOLERANCE)


def other_hash(served: Served) -> Served:
    return replace(served, sha256="0" * 64)


def no_weights(served: Served) -> Served:
    (served.folder / WEIGHTS).unlink()
    return served


def no_config(served: Served) -> Served:
    (served.folder / CONFIG).write_text("{}")
    return served


def larger_rank(served: Served) -> Served:
    settings = json.loads((served.folder / CONFIG).read_text())
    (served.folder / CONFIG).write_text(json.dumps(settings | {"r": 9}))
    return served


def another_kind(served: Served) -> Served:
    settings = json.loads((served.folder / CONFIG).read_text())
    (served.folder / CONFIG).write_text(json.dumps(settings | {"use_dora": True}))
    return served


SPOILT = [other_hash, no_weights, no_config, larger_rank, another_kind]
"""Each makes an adapter one that vLLM cannot serve."""
