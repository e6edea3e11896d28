"""The torch sampler at work: the rows of its batches, the passes in which prompts are read, and the cache."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from tiny_base import VOCABULARY, layout_of, random_rows, tiny_model
from tiny_requests import MEMBERS, STOP, some_requests, tiny_stacked

from populora_core.model.attention import group_queries, grouped_attention
from populora_core.model.base import hidden_states
from populora_core.model.routes import Route
from populora_core.model.stacked import StackedAdapters
from populora_core.planning.memory import READ_TOKENS
from populora_core.sampler import reading, torch_sampler
from populora_core.sampler.batch import REFILL_SHARE, BatchLimits, passes
from populora_core.sampler.cache import SlabCache
from populora_core.sampler.requests import Request
from populora_core.sampler.torch_sampler import TorchSampler


@pytest.fixture(scope="module")
def stacked() -> StackedAdapters:
    return tiny_stacked()


def test_waiting_requests_take_the_places_of_ended_ones(stacked: StackedAdapters):
    under_way: list[int] = []
    requests = some_requests(60, max_tokens=24)
    sampler = TorchSampler(stacked, [STOP], BatchLimits(rows=16))
    sampler.generate(requests, drawn=lambda drawing, *_: under_way.append(len(drawing)))
    busy = under_way[: -2 * 24]  # until nothing waits any more
    assert max(under_way) <= 16
    assert busy and sum(busy) / len(busy) > 16 * (1.0 - REFILL_SHARE) - 2


def test_rows_of_a_new_batch_stand_by_member_so_that_steps_gather_nothing(
    stacked: StackedAdapters, monkeypatch: pytest.MonkeyPatch
):
    routes: list[Route] = []
    along = StackedAdapters.along

    def watched(adapters: StackedAdapters, route: Route) -> AbstractContextManager[None]:
        routes.append(route)
        return along(adapters, route)

    monkeypatch.setattr(StackedAdapters, "along", watched)
    requests = [
        Request(MEMBERS[seed % 3], (2,) * (1 + seed % 7), seed, temperature=0.0, max_tokens=6)
        for seed in range(3 * 80)
    ]
    TorchSampler(stacked, []).generate(requests)
    assert len(routes) >= 6 and all(len(route.blocks) == 1 and route.mixed is None for route in routes)


def test_the_cache_limit_keeps_batches_small(stacked: StackedAdapters, monkeypatch: pytest.MonkeyPatch):
    held: list[int] = []
    reserve = SlabCache.reserve

    def watched(cache: SlabCache, *more: int, **also: int) -> None:
        if not more and not also:  # as every step begins
            held.append(cache.layers[0].slabs[0].shape[0] * cache.columns)
        reserve(cache, *more, **also)

    monkeypatch.setattr(SlabCache, "reserve", watched)
    requests = [Request("a", (2,) * (4 + seed % 7), seed, max_tokens=10 + seed % 3) for seed in range(40)]
    TorchSampler(stacked, [STOP], BatchLimits(tokens=120)).generate(requests)
    assert 60 < max(held) <= 120


def test_prompts_are_read_by_length_equal_ones_once_and_nothing_stays_of_the_reading(
    stacked: StackedAdapters, monkeypatch: pytest.MonkeyPatch
):
    read: list[list[int]] = []
    caches: list[int] = []
    alive: weakref.WeakSet[SlabCache] = weakref.WeakSet()

    def watched(model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, **inputs: Any) -> Any:
        alive.add(inputs["past_key_values"])
        if input_ids.shape[1] > 1:
            read.append(attention_mask.sum(dim=1).tolist())
        else:
            caches.append(len(alive))
        return hidden_states(model, input_ids=input_ids, attention_mask=attention_mask, **inputs)

    monkeypatch.setattr(reading, "hidden_states", watched)
    monkeypatch.setitem(torch_sampler.PASS_TOKENS, "cpu", 4)
    asked = [
        Request("a", (2,) * length, seed, max_tokens=4) for seed in range(3) for length in (2, 3, 30, 31)
    ]
    TorchSampler(stacked, [STOP]).generate(asked)
    assert sorted(map(sorted, read)) == [[2, 3], [30, 31]]
    assert caches and set(caches) == {1}


def test_a_row_that_ended_at_the_end_of_the_context_waits_there(stacked: StackedAdapters):
    """With 41 rows one that has ended stays for the steps of the others; its positions stay within the context."""
    context = stacked.model.config.max_position_embeddings
    asked = [Request("a", (2,) * (context - 2), 0, max_tokens=2)]
    asked += [Request("a", (2,), seed, max_tokens=12) for seed in range(1, 41)]
    positions: list[int] = []

    def watch(module: Any, args: Any, kwargs: Any) -> None:
        positions.append(int(kwargs["position_ids"].max()))

    handle = stacked.model.get_decoder().register_forward_pre_hook(watch, with_kwargs=True)
    try:
        TorchSampler(stacked, []).generate(asked)
    finally:
        handle.remove()
    assert max(positions) == context - 1


def test_on_a_gpu_a_batch_has_as_many_rows_as_free_memory_has_room_for(
    stacked: StackedAdapters, monkeypatch: pytest.MonkeyPatch
):
    asked = some_requests(max_tokens=8)
    usual = TorchSampler(stacked, [STOP]).generate(asked)
    sampler, sizes = TorchSampler(stacked, [STOP], rows=16), []
    monkeypatch.setattr(torch_sampler, "CUDA", "cpu")
    reading = 1.1 * READ_TOKENS * (3 * 48 + 4 * 32) * 4  # bytes that one layer works in
    for free, rows in ((1e9, 16), (reading + 5e4, 12)):
        sizes.clear()
        monkeypatch.setattr(torch_sampler, "free_memory", lambda free=free: free)
        found = sampler.generate(asked, drawn=lambda drawing, *_: sizes.append(len(drawing)))
        assert max(sizes) == rows, sizes
        assert [each.token_ids for each in found] == [each.token_ids for each in usual]


def test_prompts_are_read_in_passes_of_so_many_tokens(stacked: StackedAdapters):
    assert list(passes([3, 3, 4, 9], 99, most=8)) == [slice(0, 2), slice(2, 3), slice(3, 4)]
    assert list(passes([3, 3, 4, 9], 99)) == [slice(0, 4)]


def test_heads_that_share_keys_attend_as_with_keys_of_their_own(monkeypatch: pytest.MonkeyPatch):
    """What a GPU's step takes: the queries of a group as the tokens of one head, and no copies of keys and values."""
    found, shapes = [], []
    attend = torch.nn.functional.scaled_dot_product_attention

    def watched(query: torch.Tensor, key: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        shapes.append((tuple(query.shape[1:3]), key.shape[1]))
        return attend(query, key, *rest, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    for prepare in (lambda model: None, group_queries):
        model = tiny_model()
        prepare(model)
        stacked = StackedAdapters(model, layout_of(model))
        stacked.load(random_rows(layout_of(tiny_model()), *MEMBERS))
        shapes.clear()
        found.append(TorchSampler(stacked, [STOP]).generate(some_requests(8)))
    steps = {shape for shape in shapes if shape[0][1] != shape[0][0]}
    assert ((2, 2), 2) in shapes, "two heads of keys, and two queries for each"
    assert not any(heads == 4 and tokens == 1 for (heads, tokens), _ in steps), (
        "no step has keys for every head"
    )
    for plain, grouped in zip(*found, strict=True):
        assert plain.token_ids == grouped.token_ids
        assert plain.logprobs == pytest.approx(grouped.logprobs, abs=1e-5)


class OnGpu(torch.Tensor):
    """A tensor that says it lies on a GPU."""

    is_cuda = True


@pytest.mark.parametrize(("dtype", "heads"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_on_a_gpu_a_pass_in_float32_has_keys_for_every_head(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, heads: int
) -> None:
    """Torch's kernels that keep no scores take shared keys in 16 bits alone."""
    layer = tiny_model().model.layers[0].self_attn
    shapes = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def watched(query: torch.Tensor, key: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        shapes.append((tuple(query.shape[1:3]), key.shape[1], more.get("is_causal")))
        return attend(query, key, *rest, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    drawn = torch.Generator().manual_seed(1)
    query, key, value = (
        torch.randn(3, count, 7, 8, generator=drawn).to(dtype).as_subclass(OnGpu) for count in (4, 2, 2)
    )
    found, _ = grouped_attention(layer, query, key, value, None)
    assert shapes == [((4, 7), heads, True)]
    shared = (each.repeat_interleave(2, dim=1) for each in (key, value))
    assert torch.allclose(found, attend(query, *shared, is_causal=True).transpose(1, 2), atol=1e-2)
    shapes.clear()
    grouped_attention(layer, query[:, :, -1:], key, value, None)
    step = (2, 2) if dtype == torch.float32 else (4, 1)
    assert [(queries, keys) for queries, keys, _ in shapes] == [(step, 2)], "no step has copies of keys"


def test_what_prompts_begin_with_is_read_once_and_gives_the_same_completions(
    stacked: StackedAdapters, monkeypatch: pytest.MonkeyPatch
):
    rng = np.random.default_rng(4)
    asked = []
    for number, member in enumerate([*MEMBERS, None] * 4):
        beginning = tuple(np.random.default_rng(7).integers(2, VOCABULARY, 30).tolist())
        own = tuple(rng.integers(2, VOCABULARY, int(rng.integers(1, 9))).tolist())
        asked.append(Request(member, beginning + own, seed=number, max_tokens=9))
    read: list[int] = []
    stacked.model.model.embed_tokens.register_forward_hook(
        lambda layer, ids, out: read.append(ids[0].numel())
    )
    found = []
    for shares in (False, True):
        read.clear()
        monkeypatch.setattr(stacked, "shares_beginnings", shares)
        found.append((TorchSampler(stacked, [STOP]).generate(asked), max(read)))
    (apart, whole), (together, left) = found
    assert left < whole / 2, "one pass reads each member's beginning, others what follows it"
    for one, other in zip(apart, together, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_prompts_that_are_equal_or_end_where_others_go_on_share_all_but_a_token(
    stacked: StackedAdapters, monkeypatch: pytest.MonkeyPatch
):
    long = tuple(range(2, 20)) * 5
    asked = [Request("a", prompt, seed=3, max_tokens=4) for prompt in (long, long[:70], long[:71])]
    plain = TorchSampler(stacked, [STOP]).generate(asked)
    monkeypatch.setattr(stacked, "shares_beginnings", True)
    assert [one.token_ids for one in TorchSampler(stacked, [STOP]).generate(asked)] == [
        one.token_ids for one in plain
    ]
