"""Three members on a tiny model drawn at random, and requests to them of many lengths."""

from __future__ import annotations

from tiny_base import VOCABULARY, layout_of, random_rows, tiny_model

from populora_core.model.stacked import StackedAdapters
from populora_core.sampler.requests import Request

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
