"""Sampling in this process, over the same stacked adapters that the learner trains.

A batch holds rows of several members. Equal prompts of one member are read once, ended rows leave the batch,
and a request's randomness is its own, so its tokens depend on the rest of the batch through rounding only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from populora_core.base_model import hidden_states, output_layer
from populora_core.errors import ConfigError
from populora_core.learner.stacked import StackedAdapters
from populora_core.sampler.cache import SlabCache
from populora_core.sampler.draw import draw, uniforms
from populora_core.sampler.protocol import Completion, FinishReason, Progress, Request

DROP_SHARE = 0.2  # ended rows leave the batch once they are this share of it: dropping copies the cache


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much is sampled at once: completions, and tokens that the key-value cache has room for."""

    rows: int = 256
    tokens: int = 65536


class TorchSampler:
    """A `Sampler` over the members that are resident in `stacked`.

    Args:
        stop_ids: token ids that end a completion.
    """

    def __init__(
        self, stacked: StackedAdapters, stop_ids: Collection[int], limits: BatchLimits | None = None
    ) -> None:
        self._stacked, self._limits = stacked, limits or BatchLimits()
        self._stop_ids = frozenset(stop_ids)
        self._stops = torch.tensor(sorted(stop_ids), device=stacked.device)
        self._config = stacked.model.config.get_text_config()

    @torch.no_grad()
    def generate(self, requests: Sequence[Request], progress: Progress | None = None) -> list[Completion]:
        """One completion for each request, in the same order.

        Raises:
            PopulationError: a request names a member that is not resident.
            ConfigError: a prompt and its completion may outgrow the base model's context.
        """
        completions: dict[int, Completion] = {}
        for batch in self._batches(requests):
            self._refuse_too_long([requests[index] for index in batch])
            done = self._complete([requests[index] for index in batch])
            completions.update(zip(batch, done, strict=True))
            if progress is not None:
                progress(len(batch))
        return [completions[index] for index in range(len(requests))]

    def _batches(self, requests: Sequence[Request]) -> Iterator[list[int]]:
        """Indices of requests of like length, sorted by member inside each batch."""

        def slot(index: int) -> int:
            found = self._stacked.slot(requests[index].member_id)
            return -1 if found is None else found

        def size(index: int) -> tuple[int, int]:
            return len(requests[index].prompt_ids), requests[index].max_tokens

        by_length = sorted(range(len(requests)), key=lambda i: (*size(i), slot(i), requests[i].prompt_ids))
        batch: list[int] = []
        longest = 0
        for index in by_length:
            longest = max(longest, sum(size(index)))
            full = len(batch) == self._limits.rows or (len(batch) + 1) * longest > self._limits.tokens
            if batch and full:
                yield sorted(batch, key=slot)
                batch, longest = [], sum(size(index))
            batch.append(index)
        if batch:
            yield sorted(batch, key=slot)

    def _complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample one batch whose requests are sorted by member."""
        device, count = self._stacked.device, len(requests)
        longest = max(request.max_tokens for request in requests)
        logits, seen, cache = self._read_prompts(requests, longest)
        width = seen.shape[1] - longest
        prompt_lengths = torch.tensor([[len(request.prompt_ids)] for request in requests], device=device)
        uniform = uniforms([request.seed for request in requests], longest).to(device)
        temperature = torch.tensor([request.temperature for request in requests], device=device)
        top_p = torch.tensor([request.top_p for request in requests], dtype=torch.float64, device=device)
        budget = torch.tensor([request.max_tokens for request in requests], device=device)
        restricted = any(request.top_p < 1.0 for request in requests)

        tokens = torch.zeros(count, longest, dtype=torch.long, device=device)
        logprobs = torch.zeros(count, longest, dtype=torch.float32, device=device)
        lengths = torch.zeros(count, dtype=torch.long, device=device)
        rows = torch.arange(count, device=device)  # batch row -> request
        alive = torch.ones(count, dtype=torch.bool, device=device)
        members = [request.member_id for request in requests]
        for step in range(longest):
            drawn, logprob = draw(
                logits, uniform[rows, step], temperature[rows], top_p[rows] if restricted else None
            )
            tokens[rows, step], logprobs[rows, step] = drawn, logprob
            ended = alive & (torch.isin(drawn, self._stops) | (budget[rows] == step + 1))
            lengths[rows[ended]] = step + 1
            alive &= ~ended
            left = int(alive.sum())
            if left == 0:
                break
            if left <= (1.0 - DROP_SHARE) * len(rows):
                kept = alive.nonzero().squeeze(-1)
                rows, drawn, alive = rows[kept], drawn[kept], alive[kept]
                cache.choose(kept, width + longest)
                members = [requests[row].member_id for row in rows.tolist()]
            logits = self._logits(
                members, drawn[:, None], seen[rows, : width + step + 1], prompt_lengths[rows] + step, cache
            )
        return [
            self._completion(ids[:length], values[:length])
            for ids, values, length in zip(tokens.tolist(), logprobs.tolist(), lengths.tolist(), strict=True)
        ]

    def _read_prompts(self, requests: Sequence[Request], longest: int) -> tuple[Tensor, Tensor, SlabCache]:
        """Run each different prompt of a member once, and give every request its copy.

        Returns:
            Logits [n, V] of the first tokens; which columns of the cache are real [n, width + longest]; the
            cache, with prompts padded on the left to `width` and room for `longest` tokens more.
        """
        device = self._stacked.device
        prompts = list(dict.fromkeys((request.member_id, request.prompt_ids) for request in requests))
        place = {prompt: row for row, prompt in enumerate(prompts)}
        origin = torch.tensor([place[request.member_id, request.prompt_ids] for request in requests])
        origin = origin.to(device)
        width = max(len(prompt) for _, prompt in prompts)
        ids, seen = torch.zeros(2, len(prompts), width, dtype=torch.long)
        for row, (_, prompt) in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            seen[row, width - len(prompt) :] = 1
        ids, seen = ids.to(device), seen.to(device)
        cache = SlabCache(self._config.num_hidden_layers, width)
        positions = (seen.cumsum(-1) - 1).clamp_(min=0)
        logits = self._logits([member_id for member_id, _ in prompts], ids, seen, positions, cache)
        cache.choose(origin, width + longest)
        seen = torch.cat([seen[origin], seen.new_ones(len(requests), longest)], dim=1)
        return logits.index_select(0, origin), seen, cache

    def _logits(
        self, members: Sequence[str | None], ids: Tensor, seen: Tensor, positions: Tensor, cache: SlabCache
    ) -> Tensor:
        """Logits [n, V] of the token after ids [n, T]."""
        model = self._stacked.model
        with self._stacked.routed([self._stacked.slot(member_id) for member_id in members]):
            states = hidden_states(
                model,
                input_ids=ids,
                attention_mask=seen,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
        return output_layer(model)(states[:, -1])

    def _completion(self, ids: list[int], logprobs: list[float]) -> Completion:
        reason = FinishReason.STOP if ids[-1] in self._stop_ids else FinishReason.LENGTH
        return Completion(tuple(ids), tuple(logprobs), reason)

    def _refuse_too_long(self, requests: Sequence[Request]) -> None:
        longest = max(len(request.prompt_ids) + request.max_tokens for request in requests)
        limit = getattr(self._config, "max_position_embeddings", None)
        if limit is not None and longest > limit:
            raise ConfigError(
                "a prompt and its completion may outgrow the base model's context",
                expected=f"at most {limit} tokens together",
                came=str(longest),
                remedy="lower max_tokens of the stage, or show fewer reference problems",
            )
