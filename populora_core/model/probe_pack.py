"""Two texts as one sequence, as the learner packs attempts: a base must read each as if it came alone.

A pack tells by position ids where a token is, and by a mask what it sees. Layers that go by the column instead, as
ALiBi's do, would learn from other numbers than were sampled, without any error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.support.errors import BaseModelError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PACKED = frozenset({"llama", "mistral", "phi3", "qwen2", "qwen3"})
"""Types of models that tests try in packs, so that no load has to."""
SHARED, FIRST, SECOND = 4, 24, 8
"""Tokens that both texts begin with, and tokens of each alone: the first one's part the second one's from these."""
LENGTH = SHARED + FIRST + SECOND
SAME = 1e-3
"""Share of their size by which the second text's hidden states in and out of a pack differ at most, in float32."""
ROUNDED = 0.1
"""The same in 16 bits."""


def require_packs(model: PreTrainedModel) -> None:
    """Refuse a base that reads a pack otherwise than its texts, or that takes no gradients through adapters there.

    Raises:
        BaseModelError: it is such a base.
    """
    try:
        tokens = torch.arange(LENGTH, device=model.device) % model.config.get_text_config().vocab_size
        alone, packed = _alone(model, tokens).float(), _packed(model, tokens).float()
        gap = float((packed - alone).norm() / alone.norm())
    except Exception as error:  # a model of transformers raises what it likes
        raise _refused(model, f"{type(error).__name__}: {first_line(error)}") from error
    if not gap <= (SAME if model.dtype == torch.float32 else ROUNDED):
        raise _refused(model, f"hidden states that differ by {gap:.1%}")


def _refused(model: PreTrainedModel, got: str) -> BaseModelError:
    return BaseModelError(
        f"{type(model).__name__} cannot learn from several texts in one sequence",
        expected="layers that go by position_ids and the mask, so that a text counts as it does alone",
        got=got,
        fix="choose a base with rotary positions, for instance a Qwen2.5 or Llama",
    )


@torch.no_grad()
def _alone(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Hidden states [SECOND, d] of the second text by itself, of the bare base."""
    text = torch.cat([tokens[:SHARED], tokens[-SECOND:]])
    return model.base_model(input_ids=text[None], use_cache=False).last_hidden_state[0, SHARED:]


def _packed(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """The same behind the first text, under a member that equals the base; its gradients are taken."""
    columns = torch.arange(LENGTH, device=tokens.device)
    unseen = columns > columns[:, None]
    unseen[-SECOND:, SHARED:-SECOND] = True
    mask = torch.zeros(1, 1, LENGTH, LENGTH, dtype=model.dtype, device=tokens.device)
    positions = torch.cat([columns[:-SECOND], columns[SHARED : SHARED + SECOND]])
    with _adapted(model):
        states = model.base_model(
            input_ids=tokens[None],
            position_ids=positions[None],
            attention_mask=mask.masked_fill_(unseen, torch.finfo(mask.dtype).min),
            use_cache=False,
        ).last_hidden_state[0]
        if states.requires_grad:
            states.sum().backward()
    return states[-SECOND:].detach()


@contextmanager
def _adapted(model: PreTrainedModel) -> Iterator[None]:
    """Inside, gradients are taken through adapters; not where there is no layer for them, which is refused later."""
    head = model.get_output_embeddings()
    if not any(isinstance(each, nn.Linear) and each is not head for each in model.modules()):
        with torch.no_grad():
            yield
        return
    stacked = StackedAdapters(model, AdapterLayout.of(model, rank=1, alpha=1.0))
    try:
        stacked.load({"probe": torch.zeros(stacked.layout.dimension)})
        with torch.enable_grad(), stacked.routed([0], LENGTH):
            yield
    finally:
        stacked.detach()
