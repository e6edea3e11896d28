"""Algebra on updates B A of low rank, never as a matrix [out, in].

The thin SVD comes from the Gram matrices of the factors, whose size is the rank: several times cheaper than
QR of the tall factors, and in float64 as exact as the float32 factors are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from populora_core.errors import PopulationError

Factors = tuple[Tensor, Tensor]
"""A [rank, in] and B [out, rank] in float32."""

Adapter = Mapping[str, Factors]
"""Module name -> its factors."""

NEGLIGIBLE = 1e-6
"""Singular values below this share of the largest are rounding errors of float32 factors, not directions."""


@dataclass(frozen=True, slots=True, eq=False)
class Triplets:
    """Thin SVD of one update, float64: u [out, n], s [n] >= 0, v [in, n], with u and v zero where s is.

    u and v have orthonormal columns where s > 0. The sign that an SVD leaves open is set by u's largest
    entry, so that equal updates have equal triplets however they are factored.
    """

    u: Tensor
    s: Tensor
    v: Tensor

    @property
    def live(self) -> Tensor:
        """Which directions the update has, bool [n]."""
        return self.s > 0.0

    @property
    def energy(self) -> float:
        """Squared Frobenius norm of the update."""
        return float((self.s**2).sum())

    def scaled(self, weights: Tensor) -> Triplets:
        """The singular values times weights [n] >= 0."""
        return replace(self, s=self.s * weights)

    def part(self, start: int, stop: int) -> Triplets:
        return Triplets(self.u[:, start:stop], self.s[start:stop], self.v[:, start:stop])

    def split(self) -> Factors:
        """A and B in float64, the singular values shared evenly between them."""
        root = self.s.sqrt()
        return root[:, None] * self.v.mT, self.u * root

    def factors(self) -> Factors:
        """A and B in float32."""
        a, b = self.split()
        return a.float(), b.float()


def decompose(factors: Factors) -> Triplets:
    """The n triplets of B A, largest first, for A [n, in] and B [out, n]."""
    a, b = (factor.double() for factor in factors)
    b_root, b_basis = _orthogonalise(b.mT @ b)
    a_root, a_basis = _orthogonalise(a @ a.mT)
    u, s, vt = torch.linalg.svd(b_root @ a_root.mT)
    # The second bound catches what float64 leaves where the terms of a sum cancel.
    rounding = NEGLIGIBLE**2 * a_root.norm() * b_root.norm()
    s = torch.where((s > NEGLIGIBLE * s[0]) & (s > rounding), s, 0.0)
    live = (s > 0.0).double()
    u, v = b @ (b_basis @ u) * live, a.mT @ (a_basis @ vt.mT) * live
    largest = u.gather(0, u.abs().argmax(dim=0, keepdim=True))
    sign = torch.where(largest < 0.0, -1.0, 1.0)
    return Triplets(u * sign, s, v * sign)


def _orthogonalise(gram: Tensor) -> Factors:
    """(R, P) with R'R = gram = M'M and orthonormal columns in M P = M R^+; [n, n] each."""
    values, vectors = torch.linalg.eigh(gram)
    keep = values > NEGLIGIBLE**2 * values[-1]
    root = torch.where(keep, values, 0.0).sqrt()
    inverse = torch.where(keep, values, torch.inf).rsqrt()
    return root[:, None] * vectors.mT, vectors * inverse


def combine(first: float, p1: Factors, second: float, p2: Factors, rank: int) -> tuple[Triplets, float]:
    """The best approximation of first * P1 + second * P2 by `rank` triplets, and the energy of that sum.

    Best in the Frobenius norm (Eckart and Young).
    """
    (a1, b1), (a2, b2) = p1, p2
    both = decompose(
        (torch.cat([a1, a2]).double(), torch.cat([first * b1.double(), second * b2.double()], 1))
    )
    return both.part(0, rank), both.energy


def rank_of(adapter: Adapter) -> int:
    """Rows of A: the most directions that an update can have."""
    return len(next(iter(adapter.values()))[0])


def by_module(
    parents: Sequence[Adapter], breed: Callable[..., tuple[Triplets, float]]
) -> tuple[dict[str, Factors], float]:
    """Breed each module from its parents' factors, one argument a parent.

    Args:
        breed: gives the child's triplets and the energy of what it aimed at.

    Returns:
        The child and the share of the energy aimed at that it has.
    """
    child, kept, aimed = {}, 0.0, 0.0
    for name in parents[0]:
        triplets, energy = breed(*(parent[name] for parent in parents))
        child[name] = triplets.factors()
        kept += triplets.energy
        aimed += energy
    return child, kept / aimed if aimed else 1.0


def revive(factors: Factors, rng: np.random.Generator) -> Factors:
    """A copy without dead directions.

    Where a row of A and the matching column of B are both zero, neither ever gets a gradient. Such a row is
    drawn as at birth, uniform in +-1/sqrt(in); B stays zero there, and with it the update what it is.
    """
    a, b = (factor.clone(memory_format=torch.contiguous_format) for factor in factors)
    dead = (a == 0.0).all(dim=1) & (b == 0.0).all(dim=0)
    bound = 1.0 / math.sqrt(a.shape[1])
    fresh = rng.uniform(-bound, bound, size=(int(dead.sum()), a.shape[1]))
    a[dead] = torch.from_numpy(fresh).to(a)
    return a, b


def normal(rng: np.random.Generator, like: Tensor) -> Tensor:
    """Standard normal numbers of the shape, type and device of `like`."""
    return torch.from_numpy(rng.standard_normal(tuple(like.shape), dtype=np.float32)).to(like)


def inner(x: Adapter, y: Adapter) -> float:
    """Frobenius inner product of two adapters' updates B A, over all modules."""
    total = 0.0
    for name, (a, b) in x.items():
        other_a, other_b = y[name]
        outs = b.double().mT @ other_b.double()
        total += float((outs * (a.double() @ other_a.double().mT)).sum())
    return total


def relative_distance(child: Adapter, parent: Adapter) -> float | None:
    """Frobenius norm of the difference of the updates over that of the parent's; None where that is zero."""
    norm = inner(parent, parent)
    if norm <= 0.0:
        return None
    return math.sqrt(max(0.0, inner(child, child) + norm - 2.0 * inner(child, parent)) / norm)


def require_alike(adapters: Sequence[Adapter], what: str) -> None:
    """Raise PopulationError unless all have the same modules and shapes, in float32."""
    layouts = [
        {name: [(tuple(factor.shape), factor.dtype) for factor in factors] for name, factors in each.items()}
        for each in adapters
    ]
    for layout in layouts:
        for name in sorted(layouts[0].keys() | layout):
            expected, came = layouts[0].get(name), layout.get(name)
            if came is None or expected != came or any(dtype != torch.float32 for _, dtype in came):
                raise PopulationError(
                    f"{what} are not adapters of one layout",
                    expected=f"A [rank, in] and B [out, rank] of every module in float32; {name}: {expected}",
                    came=f"{name}: {came}",
                    remedy="breed only members of one population, and give the child its parents' layout",
                )
