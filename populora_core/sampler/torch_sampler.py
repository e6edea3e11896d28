"""Sampling in this process, over the same stacked adapters that the learner trains.

A batch holds rows of several members. Equal prompts of one member are read once, ended rows leave the batch and
waiting requests take their places. A request's randomness is its own, so its tokens depend on the rest of the
batch through rounding only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from populora_core.base_model import hidden_states, output_layer
from populora_core.errors import ConfigError
from populora_core.learner.adapter_files import read_peft
from populora_core.learner.stacked import StackedAdapters
from populora_core.sampler.cache import SlabCache
from populora_core.sampler.draw import draw, uniforms
from populora_core.sampler.protocol import Completion, FinishReason, Progress, Request, Served, Text

DROP_SHARE = 0.2  # ended rows leave the batch once they are this share of it: dropping copies the cache
REFILL_SHARE = (
    0.5  # waiting requests join once this share of the places is free: reading them is a pass of its own
)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much is sampled at once: completions, and tokens that the key-value cache has room for."""

    rows: int = 256
    tokens: int = 65536


@dataclass(slots=True)
class _Rows:
    """Completions under way, sorted by member: row i of the cache and of every tensor in `state` is one of them.

    Attributes:
        slots: population row of each row's member; None for the base.
        state: index [n], which request; start [n], its first column of the cache; logits [n, V], of its next
            token; taken [n], tokens drawn so far; tokens, logprobs, uniform [n, length], those tokens and the
            random numbers that they are drawn by; given [n, length], tokens to take instead of drawing.
            temperature, top_p, budget [n]. ended [n]: it waits to leave.
    """

    slots: list[int | None]
    cache: SlabCache
    state: dict[str, Tensor]

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def to_draw(self) -> int:
        """Tokens that the row with the most of them may still draw."""
        return int((self.state["budget"] - self.state["taken"]).max())

    def choose(self, rows: Tensor) -> None:
        """Make row i what row rows[i] was."""
        self.state = {name: values[rows] for name, values in self.state.items()}
        self.slots = [self.slots[row] for row in rows.tolist()]
        first = int(self.state["start"].min())
        self.state["start"] -= first
        self.cache.choose(rows, self.cache.capacity, first)

    def join(self, other: _Rows) -> None:
        """Take in the rows of `other`, each among those of its member."""
        lengths = self.cache.get_seq_length(), other.cache.get_seq_length()
        for rows, length in zip((self, other), lengths, strict=True):
            rows.state["start"] += max(lengths) - length
        slots = self.slots + other.slots
        order = torch.tensor(sorted(range(len(slots)), key=lambda row: _rank(slots[row])))
        order = order.to(self.state["index"].device)
        self.slots = [slots[row] for row in order.tolist()]
        self.state = {name: torch.cat([own, other.state[name]])[order] for name, own in self.state.items()}
        capacity = max(self.cache.capacity, max(lengths) + self.to_draw)
        self.cache.join(other.cache, order.argsort(), capacity)


class TorchSampler:
    """A `Sampler` over the members that are resident in `stacked`, which it shares with the learner.

    Args:
        stop_ids: token ids that end a completion.
    """

    name = "torch"

    def __init__(
        self, stacked: StackedAdapters, stop_ids: Collection[int], limits: BatchLimits | None = None
    ) -> None:
        self._stacked, self._limits = stacked, limits or BatchLimits()
        self._stop_ids = frozenset(stop_ids)
        self._stops = torch.tensor(sorted(stop_ids), device=stacked.device)
        self._config = stacked.model.config.get_text_config()

    def load(self, adapters: Sequence[Served]) -> None:
        """Make exactly these adapters resident in `stacked`.

        Raises:
            AdapterError: a weights file is missing or damaged, has another hash, or does not fit the base.
        """
        for adapter in adapters:
            adapter.require_whole()
        layout = self._stacked.layout
        self._stacked.load({adapter.member_id: read_peft(adapter.folder, layout) for adapter in adapters})

    def rest(self) -> None:
        """Nothing to give back: base and adapters are the learner's."""

    def close(self) -> None:
        """Nothing to end."""

    def generate(self, requests: Sequence[Request], progress: Progress | None = None) -> list[Completion]:
        """One completion for each request, in the same order.

        Raises:
            PopulationError: a request names a member that is not resident.
            ConfigError: a prompt and its completion may outgrow the base model's context.
        """
        return self._sample(requests, None, progress)

    def score(self, texts: Sequence[Text]) -> list[tuple[float, ...]]:
        """Log-probabilities of given completions, token by token in one batch, as `generate` computes them."""
        requests = [
            Request(text.member_id, text.prompt_ids, seed=0, max_tokens=len(text.completion_ids))
            for text in texts
        ]
        scored = self._sample(requests, [text.completion_ids for text in texts], None)
        return [completion.logprobs for completion in scored]

    @torch.no_grad()
    def _sample(
        self,
        requests: Sequence[Request],
        given: Sequence[tuple[int, ...]] | None,
        progress: Progress | None,
    ) -> list[Completion]:
        waiting = deque(self._in_order(requests))
        self._refuse_too_long(requests)
        restricted = any(request.top_p < 1.0 for request in requests)
        done: dict[int, Completion] = {}
        rows: _Rows | None = None
        while waiting or rows is not None:
            fresh = self._admit(waiting, rows, requests)
            if fresh:
                read = self._read(requests, fresh, given)
                if rows is None:
                    rows = read
                else:
                    rows.join(read)
            assert rows is not None  # with none under way, a request is admitted
            self._draw(rows, requests, restricted)
            alive = ~rows.state["ended"]
            left = int(alive.sum())
            if left <= (1.0 - DROP_SHARE) * len(rows):
                gone = self._completions(rows, requests)
                done.update(gone)
                if progress is not None:
                    progress(len(gone))
                if left == 0:
                    rows = None
                    continue
                rows.choose(alive.nonzero().squeeze(-1))
            self._step(rows)
        return [done[index] for index in range(len(requests))]

    def _in_order(self, requests: Sequence[Request]) -> list[int]:
        """Requests of like length follow each other, and among them those of one member and one prompt."""

        def key(index: int) -> tuple[int, int, int, tuple[int, ...]]:
            asked = requests[index]
            return len(asked.prompt_ids), asked.max_tokens, self._rank(asked), asked.prompt_ids

        return sorted(range(len(requests)), key=key)

    def _rank(self, request: Request) -> int:
        return _rank(self._stacked.slot(request.member_id))

    def _admit(self, waiting: deque[int], rows: _Rows | None, requests: Sequence[Request]) -> list[int]:
        """The waiting requests that go in now, sorted by member; none while too few places are free."""
        limits = self._limits
        under_way = 0 if rows is None else len(rows)
        if not waiting or (rows is not None and limits.rows - under_way < REFILL_SHARE * limits.rows):
            return []
        room = limits.rows - under_way
        to_draw, read, capacity = 0, 0, 0
        if rows is not None:
            to_draw, read, capacity = rows.to_draw, rows.cache.get_seq_length(), rows.cache.capacity
        chosen: list[int] = []
        while waiting and len(chosen) < room:
            request = requests[waiting[0]]
            to_draw, read = max(to_draw, request.max_tokens), max(read, len(request.prompt_ids))
            count = under_way + len(chosen) + 1
            if count > 1 and count * max(capacity, read + to_draw) > limits.tokens:
                break
            chosen.append(waiting.popleft())
        return sorted(chosen, key=lambda index: self._rank(requests[index]))

    def _read(
        self, requests: Sequence[Request], chosen: Sequence[int], given: Sequence[tuple[int, ...]] | None
    ) -> _Rows:
        """Rows for the chosen requests. Each different prompt of a member is run once; every row gets its copy."""
        device = self._stacked.device
        asked = [requests[index] for index in chosen]
        length = 1 + max(request.max_tokens for request in requests)  # ended rows go on drawing into the last
        prompts = list(dict.fromkeys((request.member_id, request.prompt_ids) for request in asked))
        place = {prompt: row for row, prompt in enumerate(prompts)}
        origin = torch.tensor([place[request.member_id, request.prompt_ids] for request in asked]).to(device)
        width = max(len(prompt) for _, prompt in prompts)
        ids, seen = torch.zeros(2, len(prompts), width, dtype=torch.long)
        for row, (_, prompt) in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            seen[row, width - len(prompt) :] = 1
        ids, seen = ids.to(device), seen.to(device)
        cache = SlabCache(self._config.num_hidden_layers, width)
        positions = (seen.cumsum(-1) - 1).clamp_(min=0)
        logits = self._logits(
            [self._stacked.slot(member_id) for member_id, _ in prompts], ids, seen, positions, cache
        )
        cache.choose(origin, width + max(request.max_tokens for request in asked))

        def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        state = {
            "index": column(chosen, torch.long),
            "start": column([width - len(request.prompt_ids) for request in asked], torch.long),
            "logits": logits.index_select(0, origin),
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
            padded = [[*given[index], *[0] * (length - len(given[index]))] for index in chosen]
            state["given"] = torch.tensor(padded, device=device)
        return _Rows([self._stacked.slot(request.member_id) for request in asked], cache, state)

    def _draw(self, rows: _Rows, requests: Sequence[Request], restricted: bool) -> None:
        """Draw each row's next token; rows that have ended draw on, and nobody reads it."""
        state = rows.state
        at = state["taken"][:, None]
        tokens, logprobs = draw(
            state["logits"],
            state["uniform"].gather(1, at).squeeze(1),
            state["temperature"],
            state["top_p"] if restricted else None,
            state["given"].gather(1, at).squeeze(1) if "given" in state else None,
        )
        state["tokens"].scatter_(1, at, tokens[:, None])
        state["logprobs"].scatter_(1, at, logprobs[:, None])
        state["last"] = tokens
        state["taken"] += ~state["ended"]
        state["ended"] |= state["taken"] >= state["budget"]
        if "given" not in state:
            state["ended"] |= torch.isin(tokens, self._stops)
            if any(request.stop for request in requests):
                state["ended"] |= _stopped(rows, requests)

    def _step(self, rows: _Rows) -> None:
        """Append the tokens drawn last; the logits of the next ones take the place of the old."""
        start, length = rows.state["start"], rows.cache.get_seq_length()
        columns = torch.arange(length + 1, device=start.device)
        rows.state["logits"] = self._logits(
            rows.slots,
            rows.state["last"][:, None],
            (columns >= start[:, None]).long(),
            (length - start)[:, None],
            rows.cache,
        )

    def _logits(
        self, slots: Sequence[int | None], ids: Tensor, seen: Tensor, positions: Tensor, cache: SlabCache
    ) -> Tensor:
        """Logits [n, V] of the token after ids [n, T]; seen [n, L + T] says which columns are real."""
        model = self._stacked.model
        with self._stacked.routed(slots, ids.shape[1]):
            states = hidden_states(
                model,
                input_ids=ids,
                attention_mask=seen,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
        return output_layer(model)(states[:, -1])

    def _completions(self, rows: _Rows, requests: Sequence[Request]) -> dict[int, Completion]:
        """What the ended rows wrote, by request."""
        ended = rows.state["ended"]
        parts = (rows.state[name][ended].tolist() for name in ("index", "taken", "tokens", "logprobs"))
        done = {}
        for index, count, tokens, logprobs in zip(*parts, strict=True):
            ids = tuple(tokens[:count])
            stopped = ids[-1] in self._stop_ids or _ends_with(ids, requests[index].stop)
            reason = FinishReason.STOP if stopped else FinishReason.LENGTH
            done[index] = Completion(ids, tuple(logprobs[:count]), reason)
        return done

    def _refuse_too_long(self, requests: Sequence[Request]) -> None:
        longest = max((len(request.prompt_ids) + request.max_tokens for request in requests), default=0)
        limit = getattr(self._config, "max_position_embeddings", None)
        if limit is not None and longest > limit:
            raise ConfigError(
                "a prompt and its completion may outgrow the base model's context",
                expected=f"at most {limit} tokens together",
                came=str(longest),
                remedy="lower max_tokens of the stage, or show fewer reference problems",
            )


def _rank(slot: int | None) -> int:
    """Where a member's rows stand in a batch; the base's come first."""
    return -1 if slot is None else slot


def _stopped(rows: _Rows, requests: Sequence[Request]) -> Tensor:
    """[n], whether the tokens drawn so far end with a stop sequence of the row's request."""
    parts = (rows.state[name].tolist() for name in ("index", "taken", "tokens"))
    found = [
        _ends_with(tokens[:count], requests[index].stop) for index, count, tokens in zip(*parts, strict=True)
    ]
    return torch.tensor(found, device=rows.state["ended"].device)


def _ends_with(ids: Sequence[int], sequences: Sequence[tuple[int, ...]]) -> bool:
    return any(tuple(ids[-len(sequence) :]) == sequence for sequence in sequences)
