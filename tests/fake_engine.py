"""A sampler without a model, for an engine's process: what it answers follows from the request and the adapters."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from populora_core.sampler.requests import Completion, Drawn, Request, Served, Text
from populora_core.support.aliases import Progress
from populora_core.support.errors import PopulationError
from populora_core.support.finish import FinishReason


class FakeEngine:
    """See `Sampler`. Where `deadly` names a folder, each file in it ends one process in the middle of a batch."""

    name = "fake"

    def __init__(self, deadly: Path | None = None) -> None:
        self._deadly, self._loaded = deadly, dict[str, str]()

    def load(self, adapters: Sequence[Served]) -> None:
        self._loaded = {each.member_id: each.sha256 for each in adapters}

    def generate(
        self,
        requests: Sequence[Request],
        progress: Progress | None = None,
        drawn: Drawn | None = None,
    ) -> list[Completion]:
        made = []
        for request in requests:
            if request.member_id not in self._loaded:
                raise PopulationError(f"member {request.member_id} is not resident")
            seen = (int(self._loaded[request.member_id], 16) + 31 * request.seed) % 1000
            made.append(Completion((seen, request.seed), (-0.5, -1.0), FinishReason.LENGTH))
            if drawn is not None:
                alone = drawn([len(made) - 1] * 2, made[-1].token_ids, made[-1].logprobs)
                if len(made) - 1 in (alone or ()):
                    made[-1] = Completion((), (), FinishReason.LENGTH)
            if progress is not None:
                progress(1)
            if self._deadly is not None and len(made) == 2:
                for file in list(self._deadly.iterdir())[:1]:
                    file.unlink()
                    os._exit(9)
        return made

    def score(self, texts: Sequence[Text]) -> list[tuple[float, ...]]:
        return [(-1.0,) * len(text.completion_ids) for text in texts]

    def rest(self) -> None:
        """It holds no memory."""

    def close(self) -> None:
        """It started nothing."""


class EndlessEngine(FakeEngine):
    """Begins with a batch, and never ends it."""

    def generate(
        self,
        requests: Sequence[Request],
        progress: Progress | None = None,
        drawn: Drawn | None = None,
    ) -> list[Completion]:
        if progress is not None:
            progress(1)
        threading.Event().wait()
        return []


def broken() -> FakeEngine:
    raise ValueError("no such device")
