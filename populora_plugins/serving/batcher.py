"""One loop over one sampler: it takes what waits, of all members, as one batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from populora_core.sampler.requests import Completion, Request, Sampler
from populora_core.support.errors import PopuloraError
from populora_plugins.serving.metrics import Metrics

PAUSE = 0.02
"""Seconds without a newcomer after which a batch begins: requests sent together arrive one by one."""

Told = Callable[[int, int, float], None]
"""A callback with the place of a request among those sent together, a token of it and its log-probability."""


class BadQuestion(PopuloraError):
    """A body that cannot be answered."""


class Overloaded(PopuloraError):
    """More completions wait than the endpoint lets wait."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A request until it is done; to give up, cancel `done`."""

    request: Request
    done: asyncio.Future[Completion]
    place: int
    told: Told | None


class Batcher:
    """Completions for whoever asks, sampled together. All methods belong to one event loop.

    Args:
        rows: completions of one batch.
        most: completions that may wait.
    """

    def __init__(self, sampler: Sampler, metrics: Metrics, rows: int = 128, most: int = 512) -> None:
        self._sampler, self._metrics, self._rows, self._most = sampler, metrics, rows, most
        self._waiting: deque[Waiting] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "sampler")

    def require_room(self, count: int) -> None:
        """Raise Overloaded where so many more may not wait now, BadQuestion where they never may."""
        if count > self._most:
            raise BadQuestion(
                "a request asks for more completions than may wait",
                expected=f"at most {self._most}",
                got=f"{count}",
                fix="ask for fewer, or serve with a higher --waiting",
            )
        waiting = sum(not row.done.done() for row in self._waiting)  # those whose client left do not wait
        if waiting + count > self._most:
            raise Overloaded(
                "too many completions wait",
                expected=f"at most {self._most}",
                got=f"{count} more than {waiting}",
                fix="ask again in a moment",
            )

    async def complete(self, requests: Sequence[Request], told: Told | None = None) -> list[Completion]:
        """One completion for each request, in order; cancelling it gives up those that are not whole yet.

        Args:
            told: called with every token when it is drawn.

        Raises:
            Overloaded: too many wait already; none of these was taken.
            BadQuestion: these alone are too many.
        """
        self.require_room(len(requests))
        loop = asyncio.get_running_loop()
        rows = [Waiting(each, loop.create_future(), place, told) for place, each in enumerate(requests)]
        self._waiting.extend(rows)
        self._count_waiting()
        self._arrived.set()
        return await asyncio.gather(*(row.done for row in rows))

    async def work(self) -> None:
        """Sample what waits, batch by batch, until cancelled; a batch that fails fails for those in it alone.

        The one under way is given up then: see `close`.
        """
        while True:
            await self._arrived.wait()
            await self._all_here()
            batch = self._next()
            if batch:
                await self._sample(batch)

    def close(self) -> None:
        """Wait, once `work` is cancelled, for the batch that was under way: it ends at its next token."""
        self._thread.shutdown()

    async def _all_here(self) -> None:
        """Wait until no more requests come in for a moment."""
        count = 0
        while count < len(self._waiting) < self._rows:
            count = len(self._waiting)
            await asyncio.sleep(PAUSE)

    def _next(self) -> list[Waiting]:
        """The longest waiting, without those that were given up."""
        batch: list[Waiting] = []
        while self._waiting and len(batch) < self._rows:
            row = self._waiting.popleft()
            if row.done.done():
                self._metrics.add("abandoned_total")
            else:
                batch.append(row)
        if not self._waiting:
            self._arrived.clear()
        self._count_waiting()
        return batch

    async def _sample(self, batch: Sequence[Waiting]) -> None:
        loop = asyncio.get_running_loop()

        def drawn(places: Sequence[int], tokens: Sequence[int], logprobs: Sequence[float]) -> list[int]:
            if any(row.told for row in batch):
                loop.call_soon_threadsafe(_tell, batch, places, tokens, logprobs)
            return [place for place, row in enumerate(batch) if row.done.done()]

        requests = [row.request for row in batch]
        try:
            found = await loop.run_in_executor(self._thread, self._sampler.generate, requests, None, drawn)
        except asyncio.CancelledError:
            for row in batch:
                row.done.cancel()
            raise
        except Exception as error:  # whatever the sampler raises belongs to those who wait for it
            for row in batch:
                if not row.done.done():
                    row.done.set_exception(error)
            return
        self._metrics.add("batches_total")
        for row, completion in zip(batch, found, strict=True):
            self._metrics.completed(row.request, completion)
            if row.done.done():
                self._metrics.add("abandoned_total")
            else:
                row.done.set_result(completion)

    def _count_waiting(self) -> None:
        self._metrics.set("waiting", len(self._waiting))


def _tell(
    batch: Sequence[Waiting], places: Sequence[int], tokens: Sequence[int], logprobs: Sequence[float]
) -> None:
    for place, token, logprob in zip(places, tokens, logprobs, strict=True):
        row = batch[place]
        if row.told is not None and not row.done.done():
            row.told(row.place, token, logprob)
