"""Updates by dense algebra, which the operators' results are held against."""

from __future__ import annotations

import torch
from torch import Tensor

from populora_core.population.variation.lowrank import Factors
from populora_core.population.variation.space import TOLERANCES, Triplets


def decompose(factors: Factors) -> Triplets:
    """The triplets of one update B A in float64: u [out, m], s [m], v [in, m]; zero where s is a rounding error."""
    a, _ = factors
    u, s, vt = torch.linalg.svd(update(factors), full_matrices=False)
    m = min(len(s), len(a))
    live = s[:m] > TOLERANCES[a.dtype].value * s[0]
    return Triplets(u[:, :m] * live, s[:m] * live, vt[:m].mT * live)


def update(factors: Factors) -> Tensor:
    """B A in float64."""
    a, b = factors
    return b.double() @ a.double()


def best(target: Tensor, rank: int) -> Tensor:
    """The best approximation of that rank."""
    u, s, vt = torch.linalg.svd(target, full_matrices=False)
    return u[:, :rank] * s[:rank] @ vt[:rank]
