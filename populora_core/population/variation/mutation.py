"""Mutations: one parent, a child near it.

The operators of PopuLoRA (arXiv 2605.16727). Noise on factors comes after the factors are balanced by SVD, so
that the child depends on the parent's update alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from populora_core.population.variation.lowrank import (
    Adapter,
    Factors,
    Triplets,
    by_module,
    decompose,
    normal,
)

Child = tuple[dict[str, Factors], dict[str, Any]]


def copy_parent(parents: Sequence[Adapter], rng: np.random.Generator) -> Child:
    """The parent itself: the control that an operator must beat."""
    return dict(parents[0]), {}


def svd_perturbation(parents: Sequence[Adapter], rng: np.random.Generator, *, strength: float = 0.1) -> Child:
    """Singular values times exp(strength * normal), both sets of singular vectors rotated within their span.

    The rotation is the exponential of strength times a random skew matrix [rank, rank]: orthogonal at any
    strength, so that the norm changes only by what the singular values do.
    """

    def breed(factors: Factors) -> tuple[Triplets, float]:
        parent = decompose(factors)
        stretch = (strength * normal(rng, parent.s)).exp()
        u = parent.u @ _rotation(rng, strength, parent.live)
        v = parent.v @ _rotation(rng, strength, parent.live)
        child = Triplets(u, parent.s * stretch, v)
        return child, child.energy

    child, _ = by_module(parents, breed)
    return child, {}


def component_masking(
    parents: Sequence[Adapter], rng: np.random.Generator, *, fraction: float = 0.3
) -> Child:
    """A random share of each module's singular values, rounded up, set to zero."""

    def breed(factors: Factors) -> tuple[Triplets, float]:
        parent = decompose(factors)
        n_live = int(parent.live.sum())
        masked = rng.permutation(len(parent.s))
        # Live directions come first in the SVD, so that masking a dead one never counts.
        masked = masked[masked < n_live][: math.ceil(fraction * n_live)]
        mask = torch.ones_like(parent.s)
        mask[torch.from_numpy(masked)] = 0.0
        return parent.scaled(mask), parent.energy

    child, energy_kept = by_module(parents, breed)
    return child, {"energy_kept": energy_kept}


def layer_gaussian(
    parents: Sequence[Adapter],
    rng: np.random.Generator,
    *,
    strength: float = 0.1,
    fraction: float = 1.0 / 3.0,
) -> Child:
    """Gaussian noise on a random share of the modules, rounded up; the others are the parent's."""
    names = list(parents[0])
    chosen = rng.choice(len(names), size=math.ceil(fraction * len(names)), replace=False)
    changed = sorted(names[index] for index in chosen)
    return _with_noise(parents[0], changed, strength, rng), {"n_modules": len(changed)}


def full_gaussian(parents: Sequence[Adapter], rng: np.random.Generator, *, strength: float = 0.15) -> Child:
    """Gaussian noise on every module."""
    return _with_noise(parents[0], parents[0], strength, rng), {}


def _with_noise(
    parent: Adapter, names: Collection[str], strength: float, rng: np.random.Generator
) -> dict[str, Factors]:
    """Noise of strength times each balanced factor's root mean square on the named modules."""
    child = dict(parent)
    for name in names:
        a, b = (
            factor + strength * factor.square().mean().sqrt() * normal(rng, factor)
            for factor in decompose(parent[name]).factors()
        )
        child[name] = a, b
    return child


def _rotation(rng: np.random.Generator, strength: float, live: Tensor) -> Tensor:
    """A random rotation [n, n] of the live directions among themselves."""
    square = normal(rng, torch.empty(len(live), len(live), dtype=torch.float64, device=live.device))
    skew = (square - square.mT) / 2.0 * (live[:, None] & live)
    return torch.linalg.matrix_exp(strength * skew)
