"""Crossovers: two parents of one rank, a child of the same rank.

The operators of PopuLoRA (arXiv 2605.16727), on the updates B A and not on the factors, since
B1 A1 + B2 A2 is not (B1 + B2)(A1 + A2). Where the result has a higher rank it is cut to the best
approximation, and `energy_kept` says what that cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from populora_core.population.variation.lowrank import (
    Adapter,
    Factors,
    Triplets,
    by_module,
    combine,
    decompose,
    rank_of,
)

Child = tuple[dict[str, Factors], dict[str, Any]]


def average(parents: Sequence[Adapter], rng: np.random.Generator) -> Child:
    """The mean of the two updates: a control."""
    return _weighted(parents, 0.5, 0.5)


def extrapolation(parents: Sequence[Adapter], rng: np.random.Generator, *, overshoot: float = 0.5) -> Child:
    """(1 - h) P1 + h P2 with h uniform in [1, 1 + overshoot]: from the first parent beyond the second."""
    h = float(rng.uniform(1.0, 1.0 + overshoot))
    child, drawn = _weighted(parents, 1.0 - h, h)
    return child, drawn | {"h": h}


def _weighted(parents: Sequence[Adapter], first: float, second: float) -> Child:
    def breed(p1: Factors, p2: Factors) -> tuple[Triplets, float]:
        return combine(first, p1, second, p2, rank_of(parents[0]))

    child, energy_kept = by_module(parents, breed)
    return child, {"energy_kept": energy_kept}


def dare_triplets(parents: Sequence[Adapter], rng: np.random.Generator, *, drop: float = 0.7) -> Child:
    """Drop and rescale (DARE; Yu et al., arXiv 2311.03099) on singular triplets, then the mean.

    Each triplet of each parent is dropped with probability `drop` and otherwise divided by 1 - drop, so that
    the expected sum is the mean of the parents; it is cut only when more than the rank survive.
    """

    def thin(factors: Factors) -> Factors:
        parent = decompose(factors)
        survives = torch.from_numpy(rng.random(len(parent.s)) >= drop).to(parent.s)
        return parent.scaled(survives / (1.0 - drop)).split()

    def breed(p1: Factors, p2: Factors) -> tuple[Triplets, float]:
        return combine(0.5, thin(p1), 0.5, thin(p2), rank_of(parents[0]))

    child, energy_kept = by_module(parents, breed)
    return child, {"energy_kept": energy_kept}


def layer_choice(parents: Sequence[Adapter], rng: np.random.Generator) -> Child:
    """Each module whole from one parent, by a fair coin."""
    coins = rng.integers(2, size=len(parents[0]))
    child = {name: parents[coin][name] for name, coin in zip(parents[0], coins, strict=True)}
    return child, {"from_second": int(coins.sum())}


def svd_mix(parents: Sequence[Adapter], rng: np.random.Generator) -> Child:
    """The k strongest triplets of the first parent and the others, k + 1 to rank, of the second.

    k is uniform in 1 to rank - 1 (1 at rank 1). The second parent's part is projected off the first's, on
    both sides: joined as they are, the two would add up where they overlap.
    """
    r = rank_of(parents[0])
    k = int(rng.integers(1, r)) if r > 1 else 1

    def breed(p1: Factors, p2: Factors) -> tuple[Triplets, float]:
        top, rest = decompose(p1).part(0, k), decompose(p2).part(k, r)
        apart = Triplets(rest.u - top.u @ (top.u.mT @ rest.u), rest.s, rest.v - top.v @ (top.v.mT @ rest.v))
        mixed, _ = combine(1.0, top.split(), 1.0, apart.split(), r)
        return mixed, top.energy + rest.energy

    child, energy_kept = by_module(parents, breed)
    return child, {"k": k, "energy_kept": energy_kept}
