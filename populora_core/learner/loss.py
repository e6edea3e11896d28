"""The clipped policy-gradient loss, taken through the output layer a chunk of tokens at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from populora_core.planning.memory import CHUNK_LOGITS


@dataclass(frozen=True, slots=True)
class TokenStats:
    """Loss and statistics of n tokens, all [n]; `kl` is 0 without a reference."""

    loss: Tensor
    entropy: Tensor
    clipped: Tensor
    kl: Tensor
    mismatch: Tensor

    def at(self, chosen: Tensor) -> TokenStats:
        """The tokens selected by a boolean mask [n]."""
        columns = (getattr(self, column.name) for column in fields(self))
        return TokenStats(*(column[chosen.to(column.device)] for column in columns))


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
    reference: Tensor | None = None,
    kl_weight: float = 0.0,
    supervised: Tensor | None = None,
) -> TokenStats:
    """Back-propagate sum over tokens of weight * (-min(ratio A, clamp(ratio, 1 - clip, 1 + clip) A) + kl_weight KL).

    The objective is PPO's (arXiv 1707.06347) without a value function. KL(member || base) is exact: a sum over
    the vocabulary at the states that were sampled, not an estimate from the sampled token. The old
    log-probabilities are the sampler's, so that the ratio also corrects for how the sampler's numbers differ
    from the learner's.
    With an importance cap C that correction is apart from the trust region: A is multiplied by the constant
    min(learner's old probability / sampler's, C), truncated importance sampling (Ionides 2008), and the ratio
    is taken against the learner itself: it is 1 and nothing is clipped. Where these are no longer the weights
    that sampled, a second step on the same generation, the weight corrects for that as well.

    A supervised token, of a corpus, takes the present log-probability for the old one: its ratio is 1, nothing is
    clipped, and its gradient is that of -A log p. It has no KL term.

    The output layer is frozen, so the gradient with respect to `hidden` can be taken chunk by chunk: no more
    than `CHUNK_LOGITS` logits exist at once, and one backward pass goes through the decoder.

    Args:
        output_layer: hidden states [m, d] -> logits [m, V].
        hidden: [n, d], the states that predict the targets, still attached to the decoder's graph.
        targets: [n] int64. old_logprobs, advantages, temperatures, clips: [n].
        token_weights: [n], 1 / tokens of the token's member for a token mean in each member.
        reference: [n, d], the states of the bare base at the same tokens, without a graph.
        supervised: [n] bool; None where no token is.

    Returns:
        Per-token policy-gradient loss (unweighted), entropy in nats, whether the clip cut its gradient off, KL to
        the base in nats, and how far the log-probability is from the old one.
    """
    states = hidden.detach()
    gradient = torch.empty_like(states)
    parts: list[tuple[Tensor, ...]] = []
    size = max(1, CHUNK_LOGITS // output_layer(states[:1]).shape[-1])
    for start in range(0, len(states), size):
        chosen = slice(start, start + size)
        leaf = states[chosen].requires_grad_()
        logprobs = _logprobs(output_layer(leaf), temperatures[chosen])
        taken = logprobs.gather(-1, targets[chosen, None]).squeeze(-1)
        old, advantage = old_logprobs[chosen], advantages[chosen]
        if supervised is not None:
            old = torch.where(supervised[chosen], taken.detach(), old)
        mismatch = (taken.detach() - old).abs()
        if importance_cap:
            weight = torch.exp(taken.detach() - old).clamp(max=importance_cap)
            if supervised is not None:
                weight = torch.where(supervised[chosen], 1.0, weight)
            advantage = advantage * weight
            old = taken.detach()
        ratio = torch.exp(taken - old)
        free = ratio * advantage
        kept = torch.clamp(ratio, 1.0 - clips[chosen], 1.0 + clips[chosen]) * advantage
        loss = objective = -torch.minimum(free, kept)
        kl = torch.zeros_like(mismatch)
        if reference is not None:
            base = _logprobs(output_layer(reference[chosen]), temperatures[chosen])
            kl = (logprobs.exp() * (logprobs - base)).sum(-1)
            if supervised is not None:
                kl = kl * ~supervised[chosen]
            objective = loss + kl_weight * kl
        (gradient[chosen],) = torch.autograd.grad((objective * token_weights[chosen]).sum(), leaf)
        with torch.no_grad():
            entropy = -(logprobs.exp() * logprobs).sum(-1)
            parts.append((loss.detach(), entropy, kept < free, kl.detach(), mismatch))
    hidden.backward(gradient)
    return TokenStats(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _logprobs(logits: Tensor, temperatures: Tensor) -> Tensor:
    """Logits [m, V] as log-probabilities at the temperatures [m], in float32 at least."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.log_softmax(logits / temperatures[:, None], dim=-1)
