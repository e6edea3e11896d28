"""Mutations: one parent, a child near it.

The operators of PopuLoRA (arXiv 2605.16727), on the update B A and not on the factors. Noise on factors comes
after the factors are balanced by SVD (B = U sqrt(S), A = sqrt(S) V^T), so that the child depends on the
parent's update alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from populora_core.population.variation.lowrank import Adapter, Bred, Factors, draw_rows, revive
from populora_core.population.variation.space import Space, Triplets
from populora_core.support.registry import Share, Strength


def copy_parent(parents: Sequence[Adapter], rng: np.random.Generator) -> Bred:
    """The parent itself: the control that an operator must beat."""
    space = Space.of(parents)
    child = {name: revive(factors, rng) for name, factors in parents[0].items()}
    return Bred(child, {}, space.norm(0), space.relative([0.0]))


def svd_perturbation(
    parents: Sequence[Adapter], rng: np.random.Generator, *, strength: Strength = 0.1
) -> Bred:
    """Singular values times exp(strength * normal), both sets of singular vectors rotated within their span.

    The rotation is the exponential of strength times a random skew matrix [rank, rank]: orthogonal at any
    strength, so that the norm changes only by what the singular values do.
    """
    space = Space.of(parents)
    parent = space.parent(0)
    stretch = torch.from_numpy(np.exp(strength * rng.standard_normal(tuple(parent.s.shape))))
    turned = Triplets(
        parent.u @ _rotations(rng, strength, parent.live),
        parent.s * stretch,
        parent.v @ _rotations(rng, strength, parent.live),
    )
    return space.bred(turned, rng)


def component_masking(parents: Sequence[Adapter], rng: np.random.Generator, *, fraction: Share = 0.3) -> Bred:
    """A random share of each module's singular values that are not zero, rounded up, set to zero."""
    space = Space.of(parents)
    parent = space.parent(0)
    lots = torch.from_numpy(rng.random(tuple(parent.s.shape))).masked_fill(~parent.live, torch.inf)
    places = lots.argsort(dim=1).argsort(dim=1)
    # The small term keeps 0.3 of ten, 3.0000000000000004 in some products, at three.
    masked = torch.ceil(fraction * parent.live.sum(dim=1, keepdim=True) - 1e-9)
    bred = space.bred(parent.scaled((places >= masked).double()), rng)
    kept = (bred.norm / space.norm(0)) ** 2 if space.norm(0) > 0.0 else 1.0
    return replace(bred, drawn={"energy_kept": kept})


def layer_gaussian(
    parents: Sequence[Adapter],
    rng: np.random.Generator,
    *,
    strength: Strength = 0.1,
    fraction: Share = 1.0 / 3.0,
) -> Bred:
    """Gaussian noise on a random share of the modules, rounded up; the others are the parent's."""
    n_modules = len(parents[0])
    chosen = rng.choice(n_modules, size=math.ceil(fraction * n_modules - 1e-9), replace=False)
    return _with_noise(parents, sorted(int(index) for index in chosen), strength, rng)


def full_gaussian(parents: Sequence[Adapter], rng: np.random.Generator, *, strength: Strength = 0.15) -> Bred:
    """Gaussian noise on every module."""
    return _with_noise(parents, range(len(parents[0])), strength, rng)


def _with_noise(
    parents: Sequence[Adapter], chosen: Sequence[int], strength: float, rng: np.random.Generator
) -> Bred:
    """Noise of strength times each balanced factor's root mean square on the chosen modules."""
    space = Space.of(parents)
    parent = space.parent(0)
    to_a, to_b = space.balancing(parent)
    # torch draws normals several times faster than numpy; the seed alone comes from the generator.
    noise = torch.Generator().manual_seed(int(rng.integers(2**63)))
    noisy = set(chosen)
    child, squares, gap = {}, parent.s.square().sum(dim=1), 0.0
    for index, name in enumerate(parents[0]):
        if index not in noisy:
            child[name] = revive(parents[0][name], rng)
            continue
        a, b = parents[0][name]
        balanced = to_a[index].to(a) @ a, b @ to_b[index].to(b)
        child[name], norm, change = _noisy(balanced, parent.s[index], strength, noise)
        squares[index] = norm
        gap += change
        if strength == 0.0 or norm == 0.0:
            draw_rows(child[name][0], ~parent.live[index], rng)
    distances = space.relative([math.sqrt(max(0.0, gap))])
    return Bred(child, {"n_modules": len(noisy)}, math.sqrt(float(squares.sum())), distances)


def _noisy(
    balanced: Factors, s: Tensor, strength: float, noise: torch.Generator
) -> tuple[Factors, float, float]:
    """Balanced factors with noise, the squared norm of their update, and that of its change.

    With noise E on B and F on A the change is B F + E (A + F), whose norm takes only the small products of
    factors and noise: no difference of large numbers, however weak the noise.
    """
    a, b = balanced
    f, e = (
        torch.empty_like(factor)
        .normal_(generator=noise)
        .mul_(strength * math.sqrt(float(s.sum()) / factor.numel()))
        for factor in (a, b)
    )
    af, ff = (a @ f.mT).double(), (f @ f.mT).double()
    be, ee = (b.mT @ e).double(), (e.mT @ e).double()
    aa = bb = torch.diag(s)
    all_a = aa + af + af.mT + ff  # (A + F)(A + F)^T
    all_b = bb + be + be.mT + ee
    # <X Y, X' Y'> = sum(X^T X' * Y Y'^T)
    change = (bb * ff).sum() + (ee * all_a).sum() + 2.0 * (be * (af.mT + ff)).sum()
    return (a.add_(f), b.add_(e)), float((all_a * all_b).sum()), float(change)


def _rotations(rng: np.random.Generator, strength: float, live: Tensor) -> Tensor:
    """Random rotations [n, m, m] of the live directions [n, m] among themselves."""
    square = torch.from_numpy(rng.standard_normal((*live.shape, live.shape[1])))
    skew = (square - square.mT) / 2.0 * (live[:, :, None] & live[:, None])
    return torch.linalg.matrix_exp(strength * skew)
