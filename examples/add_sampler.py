"""Add a sampler: PEFT's adapters in transformers' model, one request after another, and no cache: plain and slow.

    PYTHONPATH=examples populora run --preset quick --set sampler.engine=add_sampler:Plain

It has a base of its own, and leaves the learner's `stacked` adapters. Every load is proven: what does not serve the
weights that the learner has is refused. A package registers its sampler under an entry point of "populora.engines".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from populora_core import Completion, FinishReason, Request, Served, Text, load_base


class Plain:
    def __init__(self, spec: Any, vocabulary: Any, stacked: Any) -> None:
        self.model: Any = load_base(spec.base.folder(), spec.base.dtype, spec.base.device).model
        self.name, self.stop_ids, self.text = "plain", vocabulary.stop_ids, vocabulary.text
        self.members: list[str] = []

    def load(self, adapters: Sequence[Served]) -> None:
        if self.members:
            self.model.delete_adapter(self.members)
        for each in adapters:
            each.require_whole()
            self.model.load_adapter(str(each.folder), each.member_id)
        self.members = [each.member_id for each in adapters]

    @torch.no_grad()
    def logits(self, asked: Request | Text, ids: Sequence[int]) -> torch.Tensor:  # [1 + ids, vocabulary]
        if asked.member_id or self.members:
            self.model.set_adapter([asked.member_id] if asked.member_id else [])  # none: the bare base
        whole = torch.tensor([[*asked.prompt_ids, *ids]], device=self.model.device)
        return self.model(whole).logits[0, len(asked.prompt_ids) - 1 :].float().cpu()

    def generate(self, requests: Sequence[Request], progress: Any = None, drawn: Any = None) -> list[Any]:
        return [self.complete(request) for request in requests]

    def complete(self, asked: Request) -> Completion:
        if asked.top_p < 1.0:
            raise ValueError("this sampler draws from all tokens; set top_p to 1")
        rng, ids, logs, ended = torch.Generator().manual_seed(asked.seed), list[int](), list[float](), False
        while len(ids) < asked.max_tokens and not ended:
            row = (self.logits(asked, ids)[-1] / (asked.temperature or 1.0)).log_softmax(-1)
            ids.append(int(row.exp().multinomial(1, generator=rng) if asked.temperature else row.argmax()))
            logs.append(float(row[ids[-1]]))
            ended = ids[-1] in self.stop_ids or any(stop in self.text(ids) for stop in asked.stop)
        return Completion(tuple(ids), tuple(logs), FinishReason.STOP if ended else FinishReason.LENGTH)

    def score(self, texts: Sequence[Text]) -> list[tuple[float, ...]]:
        found = ((text.completion_ids, self.logits(text, text.completion_ids)) for text in texts)
        return [tuple(rows.log_softmax(-1)[range(len(ids)), ids].tolist()) for ids, rows in found]

    def rest(self) -> None: ...
    def close(self) -> None: ...
