"""Singular triplets of an update by dense algebra, which the operators' results are held against."""

from __future__ import annotations

import torch

from populora_core.population.variation.lowrank import Factors
from populora_core.population.variation.space import TOLERANCES, Triplets


def decompose(factors: Factors) -> Triplets:
    """The triplets of one update B A in float64: u [out, m], s [m], v [in, m]; zero where s is a rounding error."""
    a, b = factors
    u, s, vt = torch.linalg.svd(b.double() @ a.double(), full_matrices=False)
    m = min(len(s), len(a))
    live = s[:m] > TOLERANCES[a.dtype].value * s[0]
    return Triplets(u[:, :m] * live, s[:m] * live, vt[:m].mT * live)
