"""Three members on a tiny model drawn at random, requests to them of many lengths, and one pass over an answer."""

from __future__ import annotations

import torch
from tiny_base import VOCABULARY, layout_of, random_rows, tiny_model

from populora_core.model.stacked import StackedAdapters
from populora_core.sampler.requests import Completion, Request

MEMBERS = ("a", "b", "c")
STOP = 1


def tiny_stacked() -> StackedAdapters:
    model = tiny_model()
    layout = layout_of(model)
    stacked = StackedAdapters(model, layout)
    stacked.load(random_rows(layout, *MEMBERS))
    return stacked


def some_requests(count: int = 40, temperature: float = 1.0, max_tokens: int = 16) -> list[Request]:
    """Members in mixed order, prompts of 1 to 9 tokens, some of them equal."""
    members = (*MEMBERS, None)
    return [
        Request(
            members[i % 4],
            tuple(2 + (i // 4 * 5 + j) % (VOCABULARY - 2) for j in range(1 + i // 4 % 9)),
            seed=1000 + i,
            temperature=temperature,
            max_tokens=max_tokens + i % 3,
        )
        for i in range(count)
    ] * 2


def distributions(stacked: StackedAdapters, request: Request, completion: Completion) -> torch.Tensor:
    """Log-probabilities of the vocabulary at each token of the completion [n, V], in one forward pass over the text."""
    ids = torch.tensor([request.prompt_ids + completion.token_ids])
    with torch.no_grad(), stacked.routed([stacked.slot(request.member_id)]):
        logits = stacked.model(input_ids=ids, use_cache=False).logits[0, len(request.prompt_ids) - 1 : -1]
    return torch.log_softmax(logits / (request.temperature or 1.0), -1)


def teacher_forced(stacked: StackedAdapters, request: Request, completion: Completion) -> torch.Tensor:
    """Log-probabilities of the completion's own tokens."""
    return distributions(stacked, request, completion)[range(len(completion.token_ids)), completion.token_ids]
