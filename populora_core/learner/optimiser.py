"""AdamW over a matrix whose rows are members: each has its own learning rate, step count and clipping."""

from __future__ import annotations

import torch
from torch import Tensor


def clip_by_member(grad: Tensor, max_norms: Tensor) -> Tensor:
    """Scale each row of grad [P, D] down to its largest norm [P], in place; returns the norms before [P].

    Clipping the sum of all members would let one of them throttle the others.
    """
    norms = torch.linalg.vector_norm(grad, dim=1)
    grad.mul_((max_norms / (norms + 1e-6)).clamp_(max=1.0)[:, None])
    return norms


def adamw(
    weights: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    *,
    steps: Tensor,
    lr: Tensor,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """One AdamW step (arXiv 1711.05101) of every row, in place.

    Args:
        weights, grad, exp_avg, exp_avg_sq: [P, D].
        steps: [P] float64, the number of this step for each member, counted from 1.
        lr: [P] float64.
    """
    beta1, beta2 = betas
    exp_avg.lerp_(grad, 1.0 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
    step_size = (lr / (1.0 - beta1**steps)).to(weights.dtype)
    correction = torch.sqrt(1.0 - beta2**steps).to(weights.dtype)
    weights.mul_((1.0 - lr * weight_decay).to(weights.dtype)[:, None])
    denominator = exp_avg_sq.sqrt().div_(correction[:, None]).add_(eps)
    weights.sub_(exp_avg.div(denominator).mul_(step_size[:, None]))
