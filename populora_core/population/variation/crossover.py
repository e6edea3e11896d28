"""Crossovers: two parents of one rank, a child of the same rank.

The operators of PopuLoRA (arXiv 2605.16727), on the updates B A and not on the factors, since
B1 A1 + B2 A2 is not (B1 + B2)(A1 + A2). Where the result has a higher rank it is cut to the best
approximation in the Frobenius norm (Eckart and Young), and `energy_kept` says what that cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from populora_core.population.variation.lowrank import (
    Adapter,
    Bred,
    dead_rows,
    distances_of,
    draw_rows,
    revive,
)
from populora_core.population.variation.space import Space, Triplets
from populora_core.support.registry import Dropped, Strength

CHUNK = 8192  # columns of a factor worked on at once


def average(parents: Sequence[Adapter], rng: np.random.Generator) -> Bred:
    """The mean of the updates, of two parents or more: a control, and the soup of `populora assemble`."""
    space = Space.of(parents)
    return _cut(space, space.weighted([1.0 / len(parents)] * len(parents)), rng)


def extrapolation(parents: Sequence[Adapter], rng: np.random.Generator, *, overshoot: Strength = 0.5) -> Bred:
    """(1 - h) P1 + h P2 with h uniform in [1, 1 + overshoot]: from the first parent beyond the second."""
    h = float(rng.uniform(1.0, 1.0 + overshoot))
    space = Space.of(parents)
    bred = _cut(space, space.weighted((1.0 - h, h)), rng)
    return replace(bred, drawn=bred.drawn | {"h": h})


def dare_triplets(parents: Sequence[Adapter], rng: np.random.Generator, *, drop: Dropped = 0.7) -> Bred:
    """Drop and rescale (DARE; Yu et al., arXiv 2311.03099) on singular triplets, then the mean.

    Each triplet of each parent is dropped with probability `drop` and otherwise divided by 1 - drop, so that
    the expected sum is the mean of the parents; it is cut only when more than the rank survive.
    """
    space = Space.of(parents)
    thinned = []
    for index in range(len(parents)):
        parent = space.parent(index)
        survives = torch.from_numpy(rng.random(tuple(parent.s.shape))) >= drop
        thinned.append(parent.scaled(0.5 * survives / (1.0 - drop)))
    return _cut(space, _joined(space, thinned), rng)


def layer_choice(parents: Sequence[Adapter], rng: np.random.Generator) -> Bred:
    """Each module whole from one parent, by a fair coin."""
    coins = rng.integers(2, size=len(parents[0]))
    space = Space.of(parents)
    second = torch.from_numpy(coins == 1)[:, None, None]
    core = torch.where(second, space.core(1), space.core(0))
    child = {
        name: revive(parents[coin][name], rng) for name, coin in zip(parents[0], coins.tolist(), strict=True)
    }
    norm = float(torch.linalg.vector_norm(core))
    return Bred(child, {"from_second": int(coins.sum())}, norm, space.distances(core))


def svd_mix(parents: Sequence[Adapter], rng: np.random.Generator) -> Bred:
    """The k strongest triplets of the first parent, the less fit, and the others, k + 1 to rank, of the fitter.

    k is uniform in 1 to rank - 1 (1 at rank 1). The second parent's part is projected off the first's, on
    both sides: joined as they are, the two would add up where they overlap.
    """
    space = Space.of(parents)
    r = space.rank
    k = int(rng.integers(1, r)) if r > 1 else 1
    top, rest = space.parent(0).part(0, k), space.parent(1).part(k, r)
    apart = Triplets(rest.u - top.u @ (top.u.mT @ rest.u), rest.s, rest.v - top.v @ (top.v.mT @ rest.v))
    aimed = top.energy + rest.energy
    bred = _cut(space, _joined(space, [top, apart]), rng, aimed)
    return replace(bred, drawn=bred.drawn | {"k": k})


def dare_factors(parents: Sequence[Adapter], rng: np.random.Generator, *, drop: Dropped = 0.7) -> Bred:
    """DARE on the entries of the factors, the likely form of the paper: it has cross terms.

    Both parents' factors are balanced by SVD, so that the child depends on their updates alone; each entry is
    dropped with probability `drop` (to 1/65536) or divided by 1 - drop, and the factors are averaged apart.
    The expected child is ((B1 + B2) / 2)((A1 + A2) / 2), which is the parents' mean plus
    (B1 - B2)(A2 - A1) / 4: what belongs to neither parent. `cross_terms` is that part's norm, relative to
    the mean's.
    """
    spaces = [Space.of([parent]) for parent in parents]
    triplets = [space.parent(0) for space in spaces]
    weights = [space.balancing(each) for space, each in zip(spaces, triplets, strict=True)]
    lots = np.random.SFC64(int(rng.integers(2**63)))  # the quickest of numpy's
    child, cross, mean = {}, 0.0, 0.25 * sum(each.energy for each in triplets)
    square, onto = 0.0, np.zeros(len(parents))
    for module, name in enumerate(parents[0]):
        ins = _Side.averaged(
            [parent[name][0] for parent in parents], [to_a[module] for to_a, _ in weights], drop, lots
        )
        outs = _Side.averaged(
            [parent[name][1].mT for parent in parents], [to_b[module].mT for _, to_b in weights], drop, lots
        )
        both = torch.diag(triplets[0].s[module] + triplets[1].s[module])
        a_apart, b_apart = (both - each.between - each.between.mT for each in (ins, outs))
        cross += float((a_apart * b_apart).sum()) / 16.0
        mean += float((ins.between * outs.between).sum()) / 2.0
        square += float((ins.own * outs.own).sum())
        onto += [float((x * y).sum()) for x, y in zip(ins.onto, outs.onto, strict=True)]
        a, b = ins.factor, outs.factor.mT
        draw_rows(a, dead_rows(a, b), rng)
        child[name] = (a, b)
    distances = distances_of(child, parents, square, [space.norm(0) ** 2 for space in spaces], onto.tolist())
    share = math.sqrt(max(0.0, cross) / mean) if mean > 0.0 else 0.0
    return Bred(child, {"cross_terms": share}, math.sqrt(square), distances)


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One side of a child by `dare_factors`, A or B transposed, with what its norm and distances are made of.

    Attributes:
        factor: the mean of both parents' thinned factors [r, width].
        between: the first parent's balanced factor times the second's [r, r]; this and the others in float64.
        own: the child's factor times itself.
        onto: the child's factor times each parent's as it was.
    """

    factor: Tensor
    between: Tensor
    own: Tensor
    onto: tuple[Tensor, ...]

    @classmethod
    def averaged(
        cls, parents: Sequence[Tensor], weights: Sequence[Tensor], drop: float, lots: np.random.BitGenerator
    ) -> _Side:
        """The side of parents [r, width] that weights [r, r] balance."""
        first, second = parents
        r, width = first.shape
        factor = torch.empty_like(first)
        between, own, *onto = first.new_zeros(4, r, r)
        share = 0.5 / (1.0 - drop)
        to_first, to_second = ((share * each).to(first) for each in weights)
        # Chunk by chunk, so that what one step writes the next one finds in the cache.
        for start in range(0, width, CHUNK):
            span = slice(start, start + CHUNK)
            x, y, mixed = first[:, span], second[:, span], factor[:, span]
            x_share, y_share = to_first @ x, to_second @ y
            between.addmm_(x_share, y_share.mT)
            torch.add(_thinned(x_share, drop, lots), _thinned(y_share, drop, lots), out=mixed)
            own.addmm_(mixed, mixed.mT)
            onto[0].addmm_(mixed, x.mT)
            onto[1].addmm_(mixed, y.mT)
        return cls(factor, between.double() / share**2, own.double(), tuple(each.double() for each in onto))


def _thinned(factor: Tensor, drop: float, lots: np.random.BitGenerator) -> Tensor:
    """The factor with each entry zeroed with probability `drop`, in place."""
    n = factor.numel()
    # Four draws of 16 bits from one of 64: a tenth of the time of a uniform float an entry.
    draws = lots.random_raw((n + 3) // 4).view(np.uint16)[:n]
    entries = (factor if factor.is_contiguous() else factor.mT).numpy()
    entries *= (draws >= min(round(drop * 65536), 65535)).reshape(entries.shape)
    return factor


def _joined(space: Space, parts: Sequence[Triplets]) -> Triplets:
    """The triplets of the parts' sum."""
    return space.triplets(
        torch.cat([part.left for part in parts], dim=-1), torch.cat([part.right for part in parts], dim=-1)
    )


def _cut(space: Space, wanted: Triplets, rng: np.random.Generator, aimed: float | None = None) -> Bred:
    """The best child of the rank for the wanted update, whose energy is `aimed` (its own unless given)."""
    kept = wanted.part(0, space.rank)
    aimed = wanted.energy if aimed is None else aimed
    return replace(space.bred(kept, rng), drawn={"energy_kept": kept.energy / aimed if aimed else 1.0})
