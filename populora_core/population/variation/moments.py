"""Inheritance of Adam's moments: a child takes them from its parents, direction by direction.

The moments of a parent belong to its factors, and most operators write a child in other factors. The gradient
of an update B A is G: that of B is G A^T, that of A is B^T G. So where the child's A is M times the parent's,
its gradient of B is the parent's times M^T, and a running mean of gradients goes the same way. Entries of a
gradient are taken as independent, as Adam does, so a mean square goes through the squares of M. M is the least
squares fit of the child's directions by the parent's; for a copy it is the identity, also where a rank
above the module's width leaves several fits.

Several parents add up, each with the share of a direction that it has. A child of both halves of two parents
thus takes the moments of the one in its half, and an average of alike parents the mean of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from populora_core.population.variation.lowrank import Adapter, Factors

KNOWN = 0.01
"""Share of a direction that parents must have between them; below it their mean squares stand for it."""
PARALLEL = 1e-6
"""Eigenvalues of a Gram matrix below this share of the largest, directions a thousandth as long as the longest, count
as zero where directions are fitted."""


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Adam's running means of a member's gradients and of their squares, module by module."""

    mean: Adapter
    square: Adapter


def inherited(
    child: Adapter,
    parents: Sequence[Adapter],
    moments: Sequence[Moments],
    weights: Sequence[float] | None = None,
) -> Moments:
    """The moments with which the child goes on learning where its parents stopped.

    Args:
        child: module -> (A [rank, in], B [out, rank]).
        parents, moments: those that it was made from, of one layout.
        weights: how much each parent counts, 1 on average; alike unless said.
    """
    counts = [1.0] * len(parents) if weights is None else weights
    mean: dict[str, Factors] = {}
    square: dict[str, Factors] = {}
    for name, (a, b) in child.items():
        own = [parent[name] for parent in parents]
        means, squares = [each.mean[name] for each in moments], [each.square[name] for each in moments]
        # The gradient of B goes with A's directions, and the gradient of A with B's.
        b_mean, b_square = _carried(
            a.mT, [x.mT for x, _ in own], [m for _, m in means], [v for _, v in squares], counts
        )
        a_mean, a_square = _carried(
            b, [x for _, x in own], [m.mT for m, _ in means], [v.mT for v, _ in squares], counts
        )
        mean[name], square[name] = (a_mean.mT, b_mean), (a_square.mT, b_square)
    return Moments(mean, square)


def _carried(
    child: Tensor,
    parents: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    weights: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """Moments [width, r] of one side, carried by the directions of the other.

    Args:
        child: its directions, the columns of [other width, r].
        parents: theirs.
        means, squares: each parent's moments [width, r].
    """
    fits = [_fit(child, parent) for parent in parents]
    reached = torch.stack([share for _, share in fits]).sum(dim=0)  # [r]
    shares = torch.stack([w * share for w, (_, share) in zip(weights, fits, strict=True)]).sum(dim=0)
    carried = list(zip(weights, fits, means, squares, strict=True))
    mean = torch.stack([w * m @ fit.to(m) for w, (fit, _), m, _ in carried]).sum(dim=0)
    square = torch.stack([w * v @ fit.square().to(v) for w, (fit, _), _, v in carried]).sum(dim=0)
    usual = torch.stack([w * v.mean(dim=1) for w, _, _, v in carried]).mean(dim=0)  # [width]
    square = torch.where(shares >= KNOWN, square / shares.clamp(min=KNOWN).to(square), usual[:, None])
    # What parents reach beyond a whole direction they have in common; what is reached in part is no more than that.
    least = torch.finfo(shares.dtype).tiny
    common = shares.clamp(min=least) / reached.clamp(min=least, max=1.0)
    return mean / common.to(mean), square


def _fit(child: Tensor, parent: Tensor) -> tuple[Tensor, Tensor]:
    """M [r, r] by which parent @ M is nearest to the child's directions, and the share of each that it reaches [r]."""
    tall, wanted = parent.double(), child.double()
    width, rank = wanted.shape
    if rank > width and torch.equal(child, parent):
        return torch.eye(rank).to(wanted), wanted.new_ones(rank)
    gram, onto = tall.mT @ tall, tall.mT @ wanted
    fit = torch.linalg.pinv(gram, rtol=PARALLEL, hermitian=True) @ onto
    reached, whole = (onto * fit).sum(dim=0), wanted.square().sum(dim=0)
    return fit, torch.where(whole > 0.0, reached / whole.clamp(min=torch.finfo(whole.dtype).tiny), 0.0)
