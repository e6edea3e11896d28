"""Sampling in this process, over the same stacked adapters that the learner trains.

A batch holds rows of several members. Equal prompts of one member are read once (see `reading`), ended rows leave
the batch and waiting requests take their places, in any order. A request's randomness is its own, so its tokens
depend on the rest of the batch through rounding only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from populora_core.model.adapter_files import read_weights
from populora_core.model.base import longest_sequence
from populora_core.model.exact import in_float32
from populora_core.model.stacked import StackedAdapters
from populora_core.planning.memory import READ_TOKENS, SAMPLER_ROWS, cache_room, shape_of
from populora_core.sampler.batch import BatchLimits, DecodeBatch, Newcomers, fresh_state, passes
from populora_core.sampler.draw import LARGE, drawn_by_blocks, nucleus
from populora_core.sampler.reading import Beginnings, Reader
from populora_core.sampler.requests import Completion, Drawn, Request, Served, Text, refuse_too_long
from populora_core.sampler.stops import Decode, StopTexts, end_at_stop_texts, stop_texts
from populora_core.support.aliases import Progress
from populora_core.support.devices import CUDA, free_memory
from populora_core.support.errors import BaseModelError
from populora_core.support.finish import FinishReason

if TYPE_CHECKING:
    from populora_core.model.base import Vocabulary
    from populora_core.sampler.spec import ModelSpec

DROP_SHARE = 0.05
"""Ended rows leave the batch once they are this share of it."""
PASS_TOKENS = {"cpu": 64, "cuda": 4096}
"""Fixed cost of a pass over the base, in tokens: padding up to this is worth one pass less. 4096 is a guess."""
PASS_LIMITS = {"cpu": math.inf, "cuda": READ_TOKENS}
"""Tokens of a pass: on a GPU what a layer works in would else take the room of keys and values."""


def open_torch(
    spec: ModelSpec, vocabulary: Vocabulary, stacked: Callable[[], StackedAdapters]
) -> TorchSampler:
    """Open the engine `torch`, which serves the learner's own adapters."""
    return TorchSampler(stacked(), vocabulary.stop_ids, rows=spec.sampler.rows, decode=vocabulary.text)


class TorchSampler:
    """A `Sampler` over the members that are resident in `stacked`, which it shares with the learner.

    Args:
        stop_ids: token ids that end a completion.
        limits: None for as many tokens as fit the GPU whenever it samples, and on a CPU for the usual ones.
        rows: completions at once, where the GPU's memory is the limit.
        decode: the text of tokens, without which no request may have stop texts.
    """

    name = "torch"

    def __init__(
        self,
        stacked: StackedAdapters,
        stop_ids: Collection[int],
        limits: BatchLimits | None = None,
        rows: int = SAMPLER_ROWS,
        decode: Decode | None = None,
    ) -> None:
        self._stacked, self._limits, self._rows = stacked, limits, rows
        self._stop_ids = frozenset(stop_ids)
        self._stops = torch.tensor(sorted(stop_ids), device=stacked.device)
        self._stop_texts = None if decode is None else stop_texts(decode)
        self._reader = Reader(stacked)
        self._config = stacked.model.config.get_text_config().to_dict()
        self._longest = longest_sequence(self._config)

    def load(self, adapters: Sequence[Served]) -> None:
        """Make exactly these adapters resident in `stacked`.

        Raises:
            AdapterError: a weights file is missing or damaged, has another hash, or does not fit the base.
        """
        for adapter in adapters:
            adapter.require_whole()
        layout = self._stacked.layout
        self._stacked.load({adapter.member_id: read_weights(adapter.folder, layout) for adapter in adapters})

    def rest(self) -> None:
        """Give nothing back: base and adapters are the learner's."""

    def close(self) -> None:
        """Do nothing: there is no engine to end."""

    @torch.no_grad()
    def generate(
        self,
        requests: Sequence[Request],
        progress: Progress | None = None,
        drawn: Drawn | None = None,
        *,
        given: Sequence[tuple[int, ...]] | None = None,
    ) -> list[Completion]:
        """One completion for each request, in the same order.

        Args:
            given: tokens of each request to take as if they had been drawn; None to draw.

        Raises:
            PopulationError: a request names a member that is not resident.
            ConfigError: a prompt and its completion may outgrow the base model's context.
        """
        waiting = deque(self._in_order(requests))
        refuse_too_long(
            max((len(each.prompt_ids) + each.max_tokens for each in requests), default=0), self._longest
        )
        stopping = [self._stopping(request) for request in requests]
        limits = self._limits or self._fitting(requests)
        begun = self._reader.begin(requests)
        restricted = any(request.top_p < 1.0 for request in requests)
        done: dict[int, Completion] = {}
        batch: DecodeBatch | None = None
        while waiting or batch is not None:
            fresh, columns = limits.admit(waiting, batch, requests)
            if fresh:
                batch = self._enter(batch, columns, self._read(requests, fresh, given, begun))
            assert batch is not None  # with none under way, a request is admitted
            tokens, logprobs = draw(*batch.next_draw(restricted))
            left_alone = () if drawn is None else drawn(*batch.under_way(tokens, logprobs))
            self._append(batch, stopping, tokens, logprobs)
            if left_alone:
                batch.end(left_alone)
            alive = ~batch.state["ended"]
            left = int(alive.sum())
            if left <= (1.0 - DROP_SHARE) * len(batch):
                gone = self._completions(batch, stopping)
                done.update(gone)
                if progress is not None:
                    progress(len(gone))
                if left == 0:
                    batch = None
                    continue
                batch.keep(alive.nonzero().squeeze(-1))
            self._step(batch)
        return [done[index] for index in range(len(requests))]

    def score(self, texts: Sequence[Text]) -> list[tuple[float, ...]]:
        """Log-probabilities of fixed completions, token by token in one batch: as `generate` goes, and in float32."""
        requests = [
            Request(text.member_id, text.prompt_ids, seed=0, max_tokens=len(text.completion_ids))
            for text in texts
        ]
        with in_float32(self._stacked.model):
            scored = self.generate(requests, given=[text.completion_ids for text in texts])
        return [completion.logprobs for completion in scored]

    def _fitting(self, requests: Sequence[Request]) -> BatchLimits:
        """Limits that fit the GPU's free memory; fixed on a CPU, where the batches decide the last bits."""
        if self._stacked.device.type != CUDA or not requests:
            return BatchLimits()
        prompt = max(len(request.prompt_ids) for request in requests)
        longest = max(len(request.prompt_ids) + request.max_tokens for request in requests)
        try:
            shape = shape_of(self._config, self._stacked.layout.rank)
        except BaseModelError:  # of widths that cannot be reckoned with
            return BatchLimits(self._rows)
        number_bytes, free = self._stacked.compute_dtype.itemsize, free_memory()
        return BatchLimits(self._rows, cache_room(shape, number_bytes, free, self._rows, prompt, longest))

    @staticmethod
    def _enter(batch: DecodeBatch | None, columns: int, new: Newcomers) -> DecodeBatch:
        """The batch with the newcomers in it; of what they were read into nothing stays."""
        if batch is None:
            return DecodeBatch.of(new, columns)
        batch.join(new, columns)
        return batch

    def _in_order(self, requests: Sequence[Request]) -> list[int]:
        """Requests of like length follow each other, and among them those of one member and one prompt."""

        def key(index: int) -> tuple[int, int, int, tuple[int, ...]]:
            asked = requests[index]
            return (
                len(asked.prompt_ids),
                asked.max_tokens,
                self._stacked.rank(asked.member_id),
                asked.prompt_ids,
            )

        return sorted(range(len(requests)), key=key)

    def _read(
        self,
        requests: Sequence[Request],
        chosen: Sequence[int],
        given: Sequence[tuple[int, ...]] | None,
        begun: Beginnings | None,
    ) -> Newcomers:
        """Rows for the chosen requests, sorted by member. Each different prompt of one is run once, and copied."""
        device = self._stacked.device
        asking: dict[tuple[str | None, tuple[int, ...]], list[int]] = {}
        for index in chosen:
            asking.setdefault((requests[index].member_id, requests[index].prompt_ids), []).append(index)
        prompts = sorted(asking, key=lambda prompt: len(prompt[1]))
        order = sorted(chosen, key=lambda index: self._stacked.rank(requests[index].member_id))
        place = {index: number for number, index in enumerate(order)}
        costs = PASS_TOKENS[device.type], PASS_LIMITS[device.type]
        read, logits = [], []
        for part in passes([len(ids) for _, ids in prompts], *costs):
            together = sorted(prompts[part], key=lambda prompt: self._stacked.rank(prompt[0]))
            cache, next_logits = self._reader.read(together, begun)
            whose = [(row, place[index]) for row, prompt in enumerate(together) for index in asking[prompt]]
            rows, places = torch.tensor(whose, device=device).unbind(1)
            read.append((cache, rows, places))
            logits.append(next_logits.index_select(0, rows))
        in_place = torch.cat([places for *_, places in read]).argsort()
        state = fresh_state(requests, order, given, device) | {
            "logits": torch.cat(logits).index_select(0, in_place)
        }
        slots = [self._stacked.slot(requests[index].member_id) for index in order]
        return Newcomers(slots, state, read)

    def _append(
        self, batch: DecodeBatch, stopping: Sequence[StopTexts | None], tokens: Tensor, logprobs: Tensor
    ) -> None:
        """Give each row its token [n] with its log-probability [n]; what ended rows draw on, no one reads."""
        state = batch.state
        at = state["taken"][:, None]
        state["tokens"].scatter_(1, at, tokens[:, None])
        state["logprobs"].scatter_(1, at, logprobs[:, None])
        state["last"] = tokens
        state["taken"] += ~state["ended"]
        state["ended"] |= state["taken"] >= state["budget"]
        if "given" not in state:
            state["ended"] |= torch.isin(tokens, self._stops)
            if any(stopping):
                end_at_stop_texts(state, stopping)

    def _step(self, batch: DecodeBatch) -> None:
        """Append the tokens drawn last; the logits of the next ones take the place of the old."""
        if batch.route is None:
            batch.route = self._stacked.route_for(batch.slots)
        batch.cache.reserve()
        start, length = batch.state["start"], batch.cache.get_seq_length()
        # Rows that have ended may be at the context's end, and draw on.
        positions = (length - start).clamp(max=self._longest - 1)
        columns = torch.arange(length + 1, device=start.device)
        batch.state["logits"] = self._reader.logits(
            batch.route,
            batch.state["last"][:, None],
            (columns >= start[:, None]).long(),
            positions[:, None],
            batch.cache,
        )

    def _completions(self, batch: DecodeBatch, stopping: Sequence[StopTexts | None]) -> dict[int, Completion]:
        """Completions of the ended rows, by request."""
        ended = batch.state["ended"]
        parts = (batch.state[name][ended].tolist() for name in ("index", "taken", "tokens", "logprobs"))
        done = {}
        for index, count, tokens, logprobs in zip(*parts, strict=True):
            ids = tuple(tokens[:count])
            texts = stopping[index]
            stopped = ids[-1] in self._stop_ids or (texts is not None and texts.ended(ids))
            reason = FinishReason.STOP if stopped else FinishReason.LENGTH
            done[index] = Completion(ids, tuple(logprobs[:count]), reason)
        return done

    def _stopping(self, request: Request) -> StopTexts | None:
        if self._stop_texts is None and request.stop:
            raise ValueError("a sampler without `decode` knows no stop texts")
        return self._stop_texts(request.stop) if self._stop_texts is not None else None


def draw(
    logits: Tensor,
    uniform: Tensor,
    temperature: Tensor,
    top_p: Tensor | None = None,
    given: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sample one token a row by inverting the cumulative distribution.

    Args:
        logits: [n, V].
        uniform: [n] float64 in [0, 1).
        temperature: [n]; 0 takes the most probable token.
        top_p: [n], or None where no row restricts its tokens.
        given: [n], tokens to take as if they had been drawn; None to draw.

    Returns:
        Token ids [n], and their log-probabilities [n] under softmax(logits / temperature) (temperature 1 for
        greedy rows), which top_p does not renormalise.
    """
    greedy = temperature == 0.0
    scale = torch.where(greedy, 1.0, temperature).to(torch.float32)
    if logits.shape[-1] >= LARGE and top_p is None and given is None:
        return drawn_by_blocks(torch.div(logits, scale[:, None]), uniform, greedy)
    logprobs = torch.log_softmax(logits.to(torch.float32) / scale[:, None], dim=-1)
    if given is not None:
        return given, logprobs.gather(-1, given[:, None]).squeeze(-1)
    probabilities = logprobs.exp()
    if top_p is not None:
        probabilities = nucleus(probabilities, top_p)
    cumulative = probabilities.cumsum(-1, dtype=torch.float64)
    target = uniform * cumulative[:, -1]
    tokens = torch.searchsorted(cumulative, target[:, None], right=True).squeeze(-1)
    tokens = torch.where(greedy, logprobs.argmax(-1), tokens.clamp_(max=logits.shape[-1] - 1))
    return tokens, logprobs.gather(-1, tokens[:, None]).squeeze(-1)
