"""The completions under way: rows that join, draw tokens and leave, in any order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from populora_core.model.routes import Route
from populora_core.planning.memory import SAMPLER_ROWS, SAMPLER_TOKENS
from populora_core.sampler.cache import SlabCache
from populora_core.sampler.draw import uniforms
from populora_core.sampler.requests import Request

REFILL_SHARE = 0.25
"""Waiting requests join once this share of the places is free: reading them is a pass of its own."""


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Rows whose prompts have been read.

    Attributes:
        slots, state: as a `DecodeBatch` has them, but for `start`, which counts from the end.
        read: caches of different prompts, the longest last, and which prompt is whose, as `SlabCache.append` has it.
    """

    slots: list[int | None]
    state: dict[str, Tensor]
    read: Sequence[tuple[SlabCache, Tensor, Tensor]]

    @property
    def longest(self) -> SlabCache:
        return self.read[-1][0]


@dataclass(slots=True)
class DecodeBatch:
    """Row i of the cache and of every tensor in `state` is one completion.

    Attributes:
        slots: population row of each row's member; None for the base.
        state: index [n], which request; start [n], its first column of the cache; logits [n, V], of its next
            token; taken [n], tokens drawn so far; tokens, logprobs, uniform [n, length], those tokens and the
            random numbers that they are drawn by; given [n, length], tokens to take instead of drawing.
            temperature, top_p, budget [n]. last [n], the token drawn last. ended [n]: it waits to leave.
        route: of a step; None until these rows take one.
    """

    slots: list[int | None]
    state: dict[str, Tensor]
    cache: SlabCache
    route: Route | None = None

    @classmethod
    def of(cls, new: Newcomers, columns: int) -> DecodeBatch:
        """A batch of these rows, each of which may come to so many tokens."""
        batch = cls([], {}, SlabCache.beside(new.longest, len(new.slots), columns))
        batch.join(new, columns)
        return batch

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def to_draw(self) -> int:
        """Tokens that the row with the most of them may still draw; one that has ended counts with what it left."""
        return int((self.state["budget"] - self.state["taken"]).max())

    def next_draw(self, restricted: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Inputs of each row's next draw: logits [n, V]; random number, temperature, top_p, forced token, [n] each.

        Args:
            restricted: whether any request has a top_p below 1.
        """
        state = self.state
        at = state["taken"][:, None]
        given = state["given"].gather(1, at).squeeze(1) if "given" in state else None
        uniform = state["uniform"].gather(1, at).squeeze(1)
        top_p = state["top_p"] if restricted else None
        return state["logits"], uniform, state["temperature"], top_p, given

    def under_way(self, *values: Tensor) -> list[list]:
        """The indices of the requests that have not ended, and the entries of each value [n] for them."""
        going = ~self.state["ended"]
        return [each[going].tolist() for each in (self.state["index"], *values)]

    def end(self, requests: Collection[int]) -> None:
        """End the rows of these requests with what they have."""
        index = self.state["index"]
        self.state["ended"] |= torch.isin(index, torch.tensor([*requests], device=index.device))

    def join(self, new: Newcomers, columns: int) -> None:
        """Take in rows, each of which may come to so many tokens."""
        before = self.cache.get_seq_length()
        self.cache.reserve(len(self) + len(new.slots), columns, new.longest.get_seq_length())
        length = self.cache.get_seq_length()
        self.cache.append(new.read)
        state = new.state | {"start": new.state["start"] + length}
        if self.state:
            self.state["start"] += length - before
            state = {name: torch.cat([own, state[name]]) for name, own in self.state.items()}
        self.state, self.slots, self.route = state, self.slots + new.slots, None

    def keep(self, alive: Tensor) -> None:
        """Go on with these rows, given in order: the last of them take the places of those that leave."""
        count = len(alive)
        left = torch.ones(count, dtype=torch.bool, device=alive.device)
        staying = alive[alive < count]
        left[staying] = False
        places, sources = left.nonzero().squeeze(-1), alive[len(staying) :]
        rows = torch.arange(count, device=alive.device)
        rows[places] = sources
        self.state = {name: values.index_select(0, rows) for name, values in self.state.items()}
        self.slots = [self.slots[row] for row in rows.tolist()]
        self.route = None
        first = int(self.state["start"].min())
        self.state["start"] -= first
        self.cache.keep(count, sources, places, first)


def fresh_state(
    requests: Sequence[Request],
    order: Sequence[int],
    given: Sequence[tuple[int, ...]] | None,
    device: torch.device,
) -> dict[str, Tensor]:
    """A batch's state for requests of which nothing is drawn, without logits; `start` counts from the end."""
    asked = [requests[index] for index in order]
    length = 1 + max(request.max_tokens for request in requests)  # ended rows go on drawing into the last

    def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    state = {
        "index": column(order, torch.long),
        "start": column([-len(request.prompt_ids) for request in asked], torch.long),
        "taken": torch.zeros(len(asked), dtype=torch.long, device=device),
        "tokens": torch.zeros(len(asked), length, dtype=torch.long, device=device),
        "logprobs": torch.zeros(len(asked), length, device=device),
        "uniform": uniforms([request.seed for request in asked], length).to(device),
        "temperature": column([request.temperature for request in asked], torch.float32),
        "top_p": column([request.top_p for request in asked], torch.float64),
        "budget": column([request.max_tokens for request in asked], torch.long),
        "last": torch.zeros(len(asked), dtype=torch.long, device=device),
        "ended": torch.zeros(len(asked), dtype=torch.bool, device=device),
    }
    if given is not None:
        padded = [[*given[index], *[0] * (length - len(given[index]))] for index in order]
        state["given"] = torch.tensor(padded, device=device)
    return state


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of a batch: completions, and tokens that the key-value cache has room for."""

    rows: int = SAMPLER_ROWS
    tokens: int = SAMPLER_TOKENS

    def admit(
        self, waiting: deque[int], batch: DecodeBatch | None, requests: Sequence[Request]
    ) -> tuple[list[int], int]:
        """The waiting requests that go in now, none while too few places are free; tokens that a row may come to."""
        under_way = 0 if batch is None else len(batch)
        if not waiting or (batch is not None and self.rows - under_way < REFILL_SHARE * self.rows):
            return [], 0
        room = self.rows - under_way
        to_draw, read, columns = 0, 0, 0
        if batch is not None:
            to_draw, read, columns = batch.to_draw, batch.cache.get_seq_length(), batch.cache.columns
        chosen: list[int] = []
        while waiting and len(chosen) < room:
            request = requests[waiting[0]]
            most = max(to_draw, request.max_tokens), max(read, len(request.prompt_ids))
            count = under_way + len(chosen) + 1
            if count > 1 and count * max(columns, sum(most)) > self.tokens:
                break
            to_draw, read = most
            chosen.append(waiting.popleft())
        if batch is None:  # room for the longest that will come, so that nothing moves when it does
            longest = max(len(request.prompt_ids) + request.max_tokens for request in requests)
            columns = min(longest, self.tokens // len(chosen))
        return chosen, max(columns, to_draw + read)


def passes(lengths: Sequence[int], worth: int, most: float = math.inf) -> Iterator[slice]:
    """Prompts that are read in one pass over the base: of like length, since shorter ones are padded.

    Args:
        lengths: of the prompts, ascending.
        worth: padding that is worth one pass less.
        most: tokens of a pass, padding included; a longer prompt comes alone.
    """
    start, tokens = 0, 0
    for end, length in enumerate(lengths):
        count = end - start
        if count * length - tokens > worth or (count and (count + 1) * length > most):
            yield slice(start, end)
            start, tokens = end, 0
        tokens += length
    yield slice(start, len(lengths))
