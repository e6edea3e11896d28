"""Cost of single parts of a generation on a GPU, one measurement of each: `bench.gpu` ends with them.

An update packed, plain, without running layers again, and of completions of up to 4,096 tokens; the constants that
nothing but a GPU can settle; the optimiser alone; an adapter's way to disk and back; how far the sampler's
log-probabilities are from the learner's, at least: logits of a base that is drawn at random are small; and for what
share of the time the GPU computes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from bench.adapters import drawn_ids, trained, training_rows
from bench.gpu_setting import Scenario, Step, seconds_of
from bench.harness import BenchRow, single
from populora_core.learner import loss
from populora_core.learner.rows import TrainingRow
from populora_core.learner.update import stepped, update_members
from populora_core.model import routes
from populora_core.model.adapter_files import read_weights, write_peft
from populora_core.model.probe import given_logprobs
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.sampler import torch_sampler
from populora_core.sampler.requests import Request
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support.digest import file_sha256

LOGITS = (1 << 24, 1 << 26, 1 << 27)  # held at once
PASSES = (1024, 4096, 16_384)  # tokens that one pass less is worth
KERNELS = 15  # of the table by time


def parts(setting: Scenario, stacked: StackedAdapters) -> Iterator[BenchRow]:
    """Every part's figures, as they are known; one that does not fit the GPU's memory has none."""
    for measure in (_updates, _optimiser, _sampling, _mismatch, _files, _waiting):
        try:
            yield from measure(setting, stacked)
        except torch.cuda.OutOfMemoryError as error:
            print(f"{measure.__name__[1:]} does not fit: {error}", file=sys.stderr, flush=True)


def _updates(setting: Scenario, stacked: StackedAdapters) -> Iterator[BenchRow]:
    states, rows, step = _states(setting, stacked), _rows(setting, setting.completion), _step(setting)
    longest = (setting.completion[1], setting.long)

    def rate(name: str, step: Step, rows: Sequence[TrainingRow]) -> BenchRow:
        tokens = sum(len(row.prompt_ids) + len(row.completion_ids) for row in rows)
        taken = seconds_of(lambda: update_members(stacked, states, rows, step.rules), stacked.device)
        return single(f"update_tokens_per_second_{name}", tokens / taken, "1/s")

    yield rate("packed", step, rows)
    yield rate("plain", replace(step, pack_tokens=1), rows)
    for logits in LOGITS:
        with patch.object(loss, "CHUNK_LOGITS", logits):
            yield rate(f"logits_{logits}", step, rows)
    yield rate("long", step, _rows(setting, longest, share=4))
    kept = replace(step, token_budget=step.token_budget // 2, gradient_checkpointing=False)
    yield rate("kept", kept, rows)  # last: it takes the most memory


def _optimiser(setting: Scenario, stacked: StackedAdapters) -> Iterator[BenchRow]:
    states = _states(setting, stacked)
    stacked.load({member: state.weights for member, state in states.items()})
    grad = stacked.zero_grad().normal_(std=1e-3)
    taken = seconds_of(lambda: stepped(stacked, states, grad, _step(setting).rules), stacked.device)
    yield single(f"optimiser_seconds_p{len(states)}", taken, "s")


def _sampling(setting: Scenario, stacked: StackedAdapters) -> Iterator[BenchRow]:
    members = _resident(setting, stacked)
    sampler = TorchSampler(stacked, (), rows=setting.requests)

    def seconds(prompt: tuple[int, int], new_tokens: int, different: int) -> float:
        asked = _requests(setting, members, prompt, new_tokens, different)
        return seconds_of(lambda: sampler.generate(asked), stacked.device)

    drawn = setting.requests * setting.new_tokens
    few = {"scattered": 0, "masked": 1 << 40}
    for name, products in few.items():
        with patch.dict(routes.FEW_PRODUCTS, {stacked.device.type: products}):
            taken = seconds(setting.prompt, setting.new_tokens, setting.requests)
            yield single(f"sampler_tokens_per_second_{name}", drawn / taken, "1/s")
    for tokens in PASSES:
        with patch.dict(torch_sampler.PASS_TOKENS, {stacked.device.type: tokens}):
            taken = seconds(setting.prompt, 1, setting.requests)
            yield single(f"reading_seconds_pass_{tokens}", taken, "s")
    deep = (setting.long // 2, setting.long // 2 + 1)  # about what keys and values a long completion meets
    taken = seconds(deep, setting.new_tokens, len(members))
    yield single("sampler_tokens_per_second_deep", drawn / taken, "1/s")


def _mismatch(setting: Scenario, stacked: StackedAdapters) -> Iterator[BenchRow]:
    members = _resident(setting, stacked)
    asked = _requests(setting, members, setting.prompt, setting.new_tokens, setting.requests)[:16]
    apart: list[float] = []
    for request, made in zip(asked, TorchSampler(stacked, ()).generate(asked), strict=True):
        learner = given_logprobs(stacked, request.member_id, request.prompt_ids, made.token_ids)
        apart += np.abs(np.subtract(learner, made.logprobs)).tolist()
    for name, value in (("mean", np.mean(apart)), ("p99", np.quantile(apart, 0.99)), ("largest", max(apart))):
        yield single(f"mismatch_{name}", float(value), "nats")


def _files(setting: Scenario, stacked: StackedAdapters) -> Iterator[BenchRow]:
    layout, row = stacked.layout, trained(stacked.layout, 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ways: dict[str, Callable[[], Any]] = {
            "write": lambda: write_peft(folder, layout, row, "base"),
            "hash": lambda: file_sha256(folder / "adapter_model.safetensors"),
            "read": lambda: read_weights(folder, layout),
        }
        for way, work in ways.items():
            yield single(f"adapter_{way}_seconds", seconds_of(work, stacked.device), "s")
    rows = {str(member): row for member in range(max(setting.members))}
    taken = seconds_of(lambda: stacked.load(rows), stacked.device)
    yield single(f"adapters_to_device_seconds_p{len(rows)}", taken, "s")


def _waiting(setting: Scenario, stacked: StackedAdapters) -> Iterator[BenchRow]:
    """The share of the time in which the GPU computes, and its kernels by time, to standard error."""
    states, rows = _states(setting, stacked), _rows(setting, setting.completion)
    members, sampler = list(states), TorchSampler(stacked, (), rows=setting.requests)
    asked = _requests(setting, members, setting.prompt, setting.new_tokens, setting.requests)
    works: dict[str, Callable[[], object]] = {
        "update": lambda: update_members(stacked, states, rows, _step(setting).rules),
        "sampling": lambda: sampler.generate(asked),
    }
    on_gpu = stacked.device.type == "cuda"
    kinds = [ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]
    for name, work in works.items():
        with profile(activities=kinds) as told:
            taken = seconds_of(work, stacked.device)
        found = told.key_averages()
        by = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        print(f"{name}:\n{found.table(sort_by=by, row_limit=KERNELS)}", file=sys.stderr, flush=True)
        busy = sum(getattr(event, by) for event in found) / 1e6
        yield single(f"{name}_busy_share", busy / taken, "share")


def _step(setting: Scenario) -> Step:
    return Step(setting.token_budget, setting.pack_tokens, setting.checkpointing)


def _rows(setting: Scenario, completion: tuple[int, int], share: int = 1) -> list[TrainingRow]:
    """Half of an update of the largest population, or this share of the half, with completions of these lengths."""
    vocabulary, problems = setting.model["vocab_size"], max(setting.members)
    attempts = max(1, setting.problems * setting.attempts // 2 // problems // share)
    return training_rows(problems, vocabulary, problems, attempts, setting.prompt, completion)


def _states(setting: Scenario, stacked: StackedAdapters) -> dict[str, MemberState]:
    row = trained(stacked.layout, 0)
    return {str(member): MemberState.newborn(row) for member in range(max(setting.members))}


def _resident(setting: Scenario, stacked: StackedAdapters) -> list[str]:
    states = _states(setting, stacked)
    stacked.load({member: state.weights for member, state in states.items()})
    return list(states)


def _requests(
    setting: Scenario, members: Sequence[str], prompt: tuple[int, int], new_tokens: int, different: int
) -> list[Request]:
    """Requests of all members in turn, with so many different prompts."""
    rng = np.random.default_rng(0)
    prompts = [drawn_ids(rng, prompt, setting.model["vocab_size"]) for _ in range(different)]
    return [
        Request(members[index % len(members)], prompts[index % different], seed=index, max_tokens=new_tokens)
        for index in range(setting.requests)
    ]
