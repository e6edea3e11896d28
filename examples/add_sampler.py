"""Add a sampler: PEFT's adapters in transformers' model, one request after another, and no cache: plain and slow.

    PYTHONPATH=examples populora run --preset quick --set sampler.engine=add_sampler:Plain

A package registers its own under an entry point of "populora.engines". Every load is proven: what does not serve the
weights that the learner has is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from populora_core import Completion, FinishReason, Request, Served, Text, load_base


class Plain:
    """A `Sampler` with a base of its own; the learner's `stacked` adapters are left."""

    name = "plain"  # recorded with what it samples

    def __init__(self, spec: Any, vocabulary: Any, stacked: Any) -> None:
        self.model: Any = load_base(spec.base.folder(), spec.base.dtype, spec.base.device).model
        self.members: list[str] = []
        self.stop_ids, self.text = vocabulary.stop_ids, vocabulary.text

    def load(self, adapters: Sequence[Served]) -> None:
        if self.members:
            self.model.delete_adapter(self.members)
        for each in adapters:
            each.require_whole()
            self.model.load_adapter(str(each.folder), each.member_id)
        self.members = [each.member_id for each in adapters]

    @torch.no_grad()
    def logits(self, member: str | None, ids: Sequence[int]) -> torch.Tensor:  # [tokens, vocabulary]
        if member is not None:
            self.model.enable_adapters()
            self.model.set_adapter(member)
        elif self.members:
            self.model.disable_adapters()
        found: torch.Tensor = (
            self.model(torch.tensor([ids], device=self.model.device)).logits[0].float().cpu()
        )
        return found

    def generate(
        self, requests: Sequence[Request], progress: Any = None, drawn: Any = None
    ) -> list[Completion]:
        return [self.complete(request) for request in requests]

    def complete(self, request: Request) -> Completion:
        if request.top_p < 1.0:
            raise ValueError("this sampler draws from all tokens; set top_p to 1")
        rng, tokens, logprobs = torch.Generator().manual_seed(request.seed), list[int](), list[float]()
        while len(tokens) < request.max_tokens:
            logits = self.logits(request.member_id, [*request.prompt_ids, *tokens])[-1]
            logprob = (logits / (request.temperature or 1.0)).log_softmax(-1)
            chosen = logprob.exp().multinomial(1, generator=rng) if request.temperature else logprob.argmax()
            tokens.append(int(chosen))
            logprobs.append(float(logprob[tokens[-1]]))
            if tokens[-1] in self.stop_ids or any(stop in self.text(tokens) for stop in request.stop):
                return Completion(tuple(tokens), tuple(logprobs), FinishReason.STOP)
        return Completion(tuple(tokens), tuple(logprobs), FinishReason.LENGTH)

    def score(self, texts: Sequence[Text]) -> list[tuple[float, ...]]:
        found = []
        for text in texts:
            logits = self.logits(text.member_id, (*text.prompt_ids, *text.completion_ids))
            rows = logits[len(text.prompt_ids) - 1 : -1].log_softmax(-1)
            found.append(
                tuple(float(row[token]) for row, token in zip(rows, text.completion_ids, strict=True))
            )
        return found

    def rest(self) -> None: ...
    def close(self) -> None: ...
