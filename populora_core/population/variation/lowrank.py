"""Adapters as operators see them, and what holds for any of them: layout, inner products, live directions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from populora_core.support.errors import PopulationError

Factors = tuple[Tensor, Tensor]
"""A [rank, in] and B [out, rank], both in float32 or both in float64."""

Adapter = Mapping[str, Factors]
"""Module name -> its factors."""


@dataclass(frozen=True, slots=True, eq=False)
class Bred:
    """A child whose operator already knows what would otherwise be measured.

    Attributes:
        factors: the child, sharing no memory with its parents and without dead directions.
        drawn: what the operator drew, plain JSON.
        norm: Frobenius norm of the child's update B A.
        distances: of the child's update to each parent's, relative to that parent's norm; None where the
            parent has no update.
    """

    factors: dict[str, Factors]
    drawn: dict[str, Any]
    norm: float
    distances: list[float | None] = field(default_factory=list)


def rank_of(adapter: Adapter) -> int:
    """Rows of A: the most directions that an update can have."""
    return len(next(iter(adapter.values()))[0])


def revive(factors: Factors, rng: np.random.Generator) -> Factors:
    """A copy without dead directions.

    Where a row of A and the matching column of B are both zero, neither ever gets a gradient. Such a row is
    drawn afresh; B stays zero there, and with it the update what it is.
    """
    a, b = (factor.clone(memory_format=torch.contiguous_format) for factor in factors)
    draw_rows(a, dead_rows(a, b), rng)
    return a, b


def dead_rows(a: Tensor, b: Tensor) -> Tensor:
    """Directions [rank] in which both A and B are zero."""
    # A live direction shows in the first entries; only where it does not are all of them read.
    dead = ~(a[:, :64].any(dim=1) | b[:64].any(dim=0))
    if bool(dead.any()):
        dead = ~(a.any(dim=1) | b.any(dim=0))
    return dead


def draw_rows(a: Tensor, dead: Tensor, rng: np.random.Generator) -> None:
    """Draw the `dead` rows of A [rank, in] as at birth: uniform in +-1/sqrt(in)."""
    count = int(dead.sum())
    if count:
        bound = 1.0 / math.sqrt(a.shape[1])
        a[dead] = torch.from_numpy(rng.uniform(-bound, bound, size=(count, a.shape[1]))).to(a)


def inner(x: Adapter, y: Adapter, *, exact: bool = True) -> float:
    """Frobenius inner product of two adapters' updates B A, over all modules.

    Args:
        exact: in float64; otherwise in the factors' own precision, several times faster.
    """
    total = 0.0
    for name, (a, b) in x.items():
        other_a, other_b = y[name]
        pairs = ((b.mT, other_b), (a, other_a.mT))
        outs, ins = ((p.double() @ q.double()) if exact else (p @ q).double() for p, q in pairs)
        total += float((outs * ins).sum())
    return total


def measured(child: Adapter, parents: Sequence[Adapter]) -> tuple[float, list[float | None]]:
    """The child's norm and its relative distance to each parent; None where a parent has no update."""
    square = inner(child, child, exact=False)
    norms = [inner(parent, parent, exact=False) for parent in parents]
    onto = [inner(child, parent, exact=False) for parent in parents]
    return math.sqrt(max(0.0, square)), distances_of(child, parents, square, norms, onto)


def distances_of(
    child: Adapter, parents: Sequence[Adapter], square: float, norms: Sequence[float], onto: Sequence[float]
) -> list[float | None]:
    """The child's relative distance to each parent; None where a parent has no update.

    Args:
        square: |C|^2, the child's update with itself.
        norms: |P|^2, each parent's.
        onto: <C, P>, the child's with each parent's.

    The distance is |C|^2 + |P|^2 - 2 <C, P>, which loses digits where the two nearly agree: then, and only
    then, it is taken in float64.
    """
    distances: list[float | None] = []
    for parent, norm, shared in zip(parents, norms, onto, strict=True):
        gap = square + norm - 2.0 * shared
        if gap < 1e-3 * norm:
            norm = inner(parent, parent)
            gap = inner(child, child) + norm - 2.0 * inner(child, parent)
        distances.append(math.sqrt(max(0.0, gap) / norm) if norm > 0.0 else None)
    return distances


def require_finite(adapter: Adapter, what: str) -> None:
    """Raise PopulationError if a factor holds a number that is not finite."""
    for name, factors in adapter.items():
        if not all(bool(factor.isfinite().all()) for factor in factors):
            raise PopulationError(
                f"{what} holds numbers that are not finite",
                expected="finite factors of every module",
                got=f"others in {name}",
                fix="correct the operator; a founder's B is 0, so nothing may be divided by its norm",
            )


def require_alike(adapters: Sequence[Adapter], what: str) -> None:
    """Raise PopulationError unless all have the same modules and shapes, one rank, and one precision.

    The precision is float32 or float64; half precision would lose what singular vectors need.
    """
    layouts = [
        {name: [(tuple(factor.shape), factor.dtype) for factor in factors] for name, factors in each.items()}
        for each in adapters
    ]
    (rank, _), dtype = next(iter(layouts[0].values()))[0]
    for layout in layouts:
        for name in sorted(layouts[0].keys() | layout):
            expected, got = layouts[0].get(name), layout.get(name)
            if (
                got is None
                or expected != got
                or any(kind != dtype for _, kind in got)
                or dtype not in (torch.float32, torch.float64)
                or not got[0][0][0] == got[1][0][1] == rank
            ):
                raise PopulationError(
                    f"{what} are not adapters of one layout",
                    expected=f"A [{rank}, in] and B [out, {rank}] of every module, all in float32 or all in "
                    f"float64; {name}: {expected}",
                    got=f"{name}: {got}",
                    fix="breed only members of one population, and give the child its parents' layout",
                )
