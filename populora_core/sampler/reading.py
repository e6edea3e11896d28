"""Prompts read into caches: those of like length in one pass, and what all of a member's begin with once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from populora_core.model.base import hidden_states
from populora_core.model.routes import Route
from populora_core.model.stacked import StackedAdapters
from populora_core.sampler.cache import SlabCache
from populora_core.sampler.requests import Request

WORTH = 64  # tokens saved that are worth a pass of their own


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Beginnings of the prompts of each member, all read to one length.

    Attributes:
        rows: of each member in the cache.
    """

    length: int
    cache: SlabCache
    rows: Mapping[str | None, int]


class Reader:
    """Passes over the base for tokens that follow what is in a cache."""

    def __init__(self, stacked: StackedAdapters) -> None:
        self._stacked = stacked
        self._layers = stacked.model.config.get_text_config().num_hidden_layers

    def logits(self, route: Route, ids: Tensor, seen: Tensor, positions: Tensor, cache: SlabCache) -> Tensor:
        """Logits [n, V] of the token after ids [n, T]; seen [n, L + T] says which columns are real."""
        return self._stacked.logits(self._states(route, ids, seen, positions, cache)[:, -1])

    def begin(self, requests: Sequence[Request]) -> Beginnings | None:
        """Read what each member's prompts begin with; None where it is not to be shared, or too little."""
        prompts: dict[str | None, set[tuple[int, ...]]] = {}
        for request in requests if self._stacked.shares_beginnings else ():
            prompts.setdefault(request.member_id, set()).add(request.prompt_ids)
        length = min((_in_common(asked) for asked in prompts.values()), default=0)
        if length * sum(len(asked) - 1 for asked in prompts.values()) < WORTH:
            return None
        members = sorted(prompts, key=self._stacked.rank)
        ids = torch.tensor([min(prompts[member])[:length] for member in members])
        cache = SlabCache(self._layers, length)
        route = self._stacked.route_for([self._stacked.slot(member) for member in members], length)
        self._states(route, ids, torch.ones_like(ids), torch.arange(length).expand_as(ids), cache)
        return Beginnings(length, cache, {member: row for row, member in enumerate(members)})

    def read(
        self, prompts: Sequence[tuple[str | None, tuple[int, ...]]], begun: Beginnings | None
    ) -> tuple[SlabCache, Tensor]:
        """The cache of these members and prompts, sorted by member, and the logits [n, V] of what follows each."""
        known = begun.length if begun is not None else 0
        width = max(len(prompt) for _, prompt in prompts) - known
        ids, seen = torch.zeros(2, len(prompts), width, dtype=torch.long)
        for row, (_, prompt) in enumerate(prompts):
            ids[row, width - len(prompt) + known :] = torch.tensor(prompt[known:])
            seen[row, width - len(prompt) + known :] = 1
        ids, seen = ids.to(self._stacked.device), seen.to(self._stacked.device)
        positions = known + (seen.cumsum(-1) - 1).clamp_(min=0)
        route = self._stacked.route_for([self._stacked.slot(member_id) for member_id, _ in prompts], width)
        if begun is None:
            cache = SlabCache(self._layers, width)
            return cache, self.logits(route, ids, seen, positions, cache)
        cache = SlabCache.beside(begun.cache, len(prompts), known + width)
        cache.reserve(len(prompts), known + width, known)
        rows = torch.tensor([begun.rows[member_id] for member_id, _ in prompts])
        cache.append([(begun.cache, rows, torch.arange(len(prompts)))])
        gaps = width - seen.sum(-1)
        seen = torch.cat([seen.new_ones(len(prompts), known), seen], dim=1)
        logits = self.logits(route, ids, seen, positions, cache)
        cache.close_up(known, gaps)
        return cache, logits

    def _states(self, route: Route, ids: Tensor, seen: Tensor, positions: Tensor, cache: SlabCache) -> Tensor:
        with self._stacked.along(route):
            return hidden_states(
                self._stacked.model,
                input_ids=ids,
                attention_mask=seen,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )


def _in_common(prompts: set[tuple[int, ...]]) -> int:
    """Tokens that all prompts begin with; one at least of each is left to read after them."""
    first, last = min(prompts), max(prompts)  # what these two have in common, all have
    shortest = min(map(len, prompts)) - 1
    return next((at for at in range(shortest) if first[at] != last[at]), shortest)
