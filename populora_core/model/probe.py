"""Log-probabilities by the learner's own forward pass of a fixed text, which every sampler must reproduce."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from populora_core.model.base import hidden_states
from populora_core.model.exact import in_float32
from populora_core.model.stacked import StackedAdapters


def given_logprobs(
    stacked: StackedAdapters,
    member_id: str | None,
    prompt_ids: Sequence[int],
    completion_ids: Sequence[int],
    temperature: float = 1.0,
) -> tuple[float, ...]:
    """Log-probability of each completion token under softmax(logits / temperature), alone in one pass in float32.

    Args:
        member_id: a resident member; None for the bare base.
    """
    with in_float32(stacked.model):
        return rounded_logprobs(stacked, member_id, prompt_ids, completion_ids, temperature)


@torch.no_grad()
def rounded_logprobs(
    stacked: StackedAdapters,
    member_id: str | None,
    prompt_ids: Sequence[int],
    completion_ids: Sequence[int],
    temperature: float = 1.0,
) -> tuple[float, ...]:
    """The same in the precision of the base, with members' terms added as another engine adds them."""
    ids = torch.tensor([[*prompt_ids, *completion_ids]], device=stacked.device)
    with stacked.adding_to_base(), stacked.routed([stacked.slot(member_id)]):
        states = hidden_states(stacked.model, input_ids=ids[:, :-1], use_cache=False)
        logits = stacked.model.get_output_embeddings()(states[0, len(prompt_ids) - 1 :])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    targets = ids[0, len(prompt_ids) :, None]
    return tuple(torch.log_softmax(logits / temperature, dim=-1).gather(-1, targets).squeeze(-1).tolist())
