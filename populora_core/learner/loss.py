"""The clipped policy-gradient loss, taken through the output layer a chunk of tokens at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK_LOGITS = 1 << 24  # logits held at once


@dataclass(frozen=True, slots=True)
class TokenStats:
    """What the loss found at each of n tokens, all [n]."""

    loss: Tensor
    entropy: Tensor
    clipped: Tensor
    mismatch: Tensor


def backward_policy_gradient(
    output_layer: Callable[[Tensor], Tensor],
    hidden: Tensor,
    *,
    targets: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    temperatures: Tensor,
    token_weights: Tensor,
    clips: Tensor,
    importance_cap: float = 0.0,
) -> TokenStats:
    """Back-propagate sum over tokens of weight * -min(ratio A, clamp(ratio, 1 - clip, 1 + clip) A).

    The objective is PPO's (arXiv 1707.06347) without a value function or KL term. Its old log-probabilities
    are the sampler's, so that the ratio also corrects for how the sampler's numbers differ from the learner's.
    With an importance cap C that correction is apart from the trust region: A is multiplied by the constant
    min(learner's old probability / sampler's, C), truncated importance sampling (Ionides 2008), and the ratio
    is taken against the learner itself: it is 1 and nothing is clipped. Where these are no longer the weights
    that sampled, a second step on the same generation, the weight corrects for that as well.

    The output layer is frozen, so the gradient with respect to `hidden` can be taken chunk by chunk: no more
    than `CHUNK_LOGITS` logits exist at once, and one backward pass goes through the decoder.

    Args:
        output_layer: hidden states [m, d] -> logits [m, V].
        hidden: [n, d], the states that predict the targets, still attached to the decoder's graph.
        targets: [n] int64. old_logprobs, advantages, temperatures, clips: [n].
        token_weights: [n], 1 / tokens of the token's member for a token mean in each member.

    Returns:
        Per-token loss (unweighted), entropy in nats, whether the clip cut its gradient off, and how far the
        log-probability is from the old one.
    """
    states = hidden.detach()
    gradient = torch.empty_like(states)
    parts: list[tuple[Tensor, ...]] = []
    size = max(1, CHUNK_LOGITS // output_layer(states[:1]).shape[-1])
    for start in range(0, len(states), size):
        chosen = slice(start, start + size)
        leaf = states[chosen].requires_grad_()
        logits = output_layer(leaf)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperatures[chosen, None]
        logprobs = torch.log_softmax(logits, dim=-1)
        taken = logprobs.gather(-1, targets[chosen, None]).squeeze(-1)
        old, advantage = old_logprobs[chosen], advantages[chosen]
        mismatch = (taken.detach() - old).abs()
        if importance_cap:
            advantage = advantage * torch.exp(taken.detach() - old).clamp(max=importance_cap)
            old = taken.detach()
        ratio = torch.exp(taken - old)
        free = ratio * advantage
        kept = torch.clamp(ratio, 1.0 - clips[chosen], 1.0 + clips[chosen]) * advantage
        loss = -torch.minimum(free, kept)
        (gradient[chosen],) = torch.autograd.grad((loss * token_weights[chosen]).sum(), leaf)
        with torch.no_grad():
            entropy = -(logprobs.exp() * logprobs).sum(-1)
            parts.append((loss.detach(), entropy, kept < free, mismatch))
    hidden.backward(gradient)
    return TokenStats(*(torch.cat(column) for column in zip(*parts, strict=True)))
