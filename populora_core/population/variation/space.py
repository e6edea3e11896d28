"""The small space that the parents' updates span, in which operators work.

For parents B_i A_i of rank r put the B_i side by side and the A_i on top of each other. With orthonormal bases
Q_B and Q_A of what they span, every parent is Q_B C_i Q_A^T with a matrix C_i of the parents' joint rank at
most (r for one parent, 2 r for two). Norms, distances and singular values of the updates are those of their
coordinates C, whatever the factors were; no matrix [out, in] is ever made.

The bases come from Gram matrices summed in float64, several times cheaper than QR of the tall factors and
more exact than float32 factors are; numpy makes X^T X by its symmetric kernel, in less than half the time of
torch's general product. Factors in float64 take QR, since a Gram matrix squares the condition
number. Small matrices of all modules are stacked, so that one batched call serves all layers of a model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from populora_core.population.variation.lowrank import Adapter, Bred, Factors, draw_rows, rank_of
from populora_core.support.errors import PopulationError

CHUNK = 2048  # rows converted to float64 at once: what a core's own cache holds


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Shares below which a figure is a rounding error and not a direction.

    Attributes:
        value: a singular value, of the largest.
        basis: a singular value of the factors side by side, of the largest.
        rounding: a singular value, of the factors' norms multiplied: what is left where terms cancel.
    """

    value: float
    basis: float
    rounding: float


TOLERANCES = {torch.float32: Tolerance(1e-6, 1e-6, 1e-12), torch.float64: Tolerance(1e-13, 1e-14, 1e-14)}


@dataclass(frozen=True, slots=True, eq=False)
class Triplets:
    """Thin SVDs of n updates in float64: u [n, K, m], s [n, m] >= 0 largest first, v [n, K, m]; n may be absent.

    u and v are orthonormal where s > 0 and zero elsewhere. The sign that an SVD leaves open is set by a fixed
    vector, so that equal updates have equal triplets however they are factored.
    """

    u: Tensor
    s: Tensor
    v: Tensor

    @property
    def live(self) -> Tensor:
        """Mask of the directions that the updates have, bool [n, m]."""
        return self.s > 0.0

    @property
    def energy(self) -> float:
        """Squared Frobenius norm of all updates together."""
        return float(self.s.square().sum())

    @property
    def matrix(self) -> Tensor:
        """u diag(s) v^T [n, K, K]."""
        return (self.u * self.s.unsqueeze(-2)) @ self.v.mT

    @property
    def left(self) -> Tensor:
        """u sqrt(s) [n, K, m]: the singular values are shared evenly between the sides."""
        return self.u * self.s.sqrt().unsqueeze(-2)

    @property
    def right(self) -> Tensor:
        return self.v * self.s.sqrt().unsqueeze(-2)

    def scaled(self, weights: Tensor) -> Triplets:
        """The singular values times weights [n, m] >= 0."""
        return replace(self, s=self.s * weights)

    def part(self, start: int, stop: int) -> Triplets:
        return Triplets(self.u[..., start:stop], self.s[..., start:stop], self.v[..., start:stop])


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One side (all B, or all A transposed) of n modules: side by side M = Q R with Q = M P orthonormal.

    Attributes:
        root: R [n, K, K]; parent i has the columns i r to (i + 1) r.
        basis: P [n, K, K], zero where the parents together have fewer directions than columns.
        probe: Q^T g [n, K] for a fixed vector g.
    """

    root: Tensor
    basis: Tensor
    probe: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """The space that the parents' updates span, over n modules; see the module's docstring."""

    parents: tuple[Adapter, ...]
    outs: Side
    ins: Side
    tolerance: Tolerance

    @classmethod
    def of(cls, parents: Sequence[Adapter]) -> Space:
        """The space of parents of one layout.

        Raises:
            PopulationError: a factor holds numbers that are not finite.
        """
        names = list(parents[0])
        dtype = parents[0][names[0]][0].dtype
        tolerance = TOLERANCES[dtype]
        make = _side_by_gram if dtype == torch.float32 else _side_by_qr
        outs = make([[parent[name][1] for parent in parents] for name in names], tolerance.basis)
        ins = make([[parent[name][0].mT for parent in parents] for name in names], tolerance.basis)
        return cls(tuple(parents), outs, ins, tolerance)

    @property
    def names(self) -> list[str]:
        """The modules, in the order of every [n, ...] tensor."""
        return list(self.parents[0])

    @property
    def rank(self) -> int:
        return rank_of(self.parents[0])

    def core(self, parent: int) -> Tensor:
        """The parent's coordinates C [n, K, K]."""
        left, right = self._columns(parent)
        return left @ right.mT

    def parent(self, parent: int) -> Triplets:
        """The r triplets of a parent."""
        return self.triplets(*self._columns(parent))

    def triplets(self, left: Tensor, right: Tensor) -> Triplets:
        """The m triplets of left right^T, for left and right [n, K, m] in this space's coordinates."""
        if left.shape[-1] < left.shape[-2]:
            outer_left, inner_left = torch.linalg.qr(left)
            outer_right, inner_right = torch.linalg.qr(right)
            u, s, vt = torch.linalg.svd(inner_left @ inner_right.mT)
            u, v = outer_left @ u, outer_right @ vt.mT
        else:
            u, s, vt = torch.linalg.svd(left @ right.mT)
            v = vt.mT
        size = torch.linalg.matrix_norm(left) * torch.linalg.matrix_norm(right)
        least = torch.maximum(self.tolerance.value * s[:, 0], self.tolerance.rounding * size)
        s = torch.where(s > least[:, None], s, 0.0)
        sign = torch.where((self.outs.probe[:, None] @ u) < 0.0, -1.0, 1.0) * (s > 0.0)[:, None]
        return Triplets(u * sign, s, v * sign)

    def weighted(self, weights: Sequence[float]) -> Triplets:
        """The triplets of the sum of weight * update over the parents, all K of them."""
        columns = torch.tensor(weights, dtype=torch.float64).repeat_interleave(self.rank)
        return self.triplets(self.outs.root * columns, self.ins.root)

    def bred(self, triplets: Triplets, rng: np.random.Generator) -> Bred:
        """A child whose updates are u diag(s) v^T with r triplets."""
        core = triplets.matrix
        norm = float(torch.linalg.vector_norm(core))
        return Bred(self._factors(triplets, rng), {}, norm, self.distances(core))

    def _factors(self, triplets: Triplets, rng: np.random.Generator) -> dict[str, Factors]:
        """Fresh factors of the updates; where s is zero A is drawn afresh."""
        left = self.outs.basis @ triplets.left
        right = self.ins.basis @ triplets.right
        child = {}
        for index, name in enumerate(self.parents[0]):
            a = _mix([parent[name][0].mT for parent in self.parents], right[index]).mT
            b = _mix([parent[name][1] for parent in self.parents], left[index])
            draw_rows(a, ~triplets.live[index], rng)
            child[name] = (a, b)
        return child

    def balancing(self, triplets: Triplets) -> tuple[Tensor, Tensor]:
        """X and Y [n, r, r] by which X A = sqrt(s) v^T and B Y = u sqrt(s), for the first parent and its triplets."""
        left, right = self._columns(0)
        # u sqrt(s) = left (right^T v / sqrt(s)), so that the parent's own B suffices; so with A.
        shares = torch.where(triplets.live, triplets.s, torch.inf).rsqrt()[:, None]
        return (left.mT @ triplets.u * shares).mT, right.mT @ triplets.v * shares

    def norm(self, parent: int) -> float:
        return float(torch.linalg.vector_norm(self.core(parent)))

    def distances(self, core: Tensor) -> list[float | None]:
        """Frobenius distance of coordinates [n, K, K] to each parent, relative to its norm; None at norm 0."""
        gaps = [core - self.core(parent) for parent in range(len(self.parents))]
        return self.relative([float(torch.linalg.vector_norm(gap)) for gap in gaps])

    def relative(self, distances: Sequence[float]) -> list[float | None]:
        """Distances to each parent over its norm; None at norm 0."""
        return [
            distance / norm if (norm := self.norm(parent)) > 0.0 else None
            for parent, distance in enumerate(distances)
        ]

    def _columns(self, parent: int) -> tuple[Tensor, Tensor]:
        span = slice(parent * self.rank, (parent + 1) * self.rank)
        return self.outs.root[..., span], self.ins.root[..., span]


def _side_by_gram(modules: Sequence[Sequence[Tensor]], tolerance: float) -> Side:
    """The side of tall factors [width, r] a parent, by the eigenvectors of their Gram matrix in float64."""
    rank, columns = modules[0][0].shape[1], sum(part.shape[1] for part in modules[0])
    gram = np.zeros((len(modules), columns, columns))
    probed = np.zeros((len(modules), columns))
    room = np.empty((CHUNK, columns))
    with _blas().limit(limits=1):  # more threads take longer to meet than one takes for a chunk
        for index, parts in enumerate(modules):
            tall = [part.numpy() for part in parts]
            # In the memory order that the factors have: a copy that transposes costs several times one that does not.
            chunks = room if tall[0].flags.c_contiguous else room.reshape(columns, CHUNK).T
            probe = _probe(len(tall[0])).numpy()
            for start in range(0, len(probe), CHUNK):
                signs = probe[start : start + CHUNK]
                chunk = chunks[: len(signs)]
                for place, part in enumerate(tall):
                    chunk[:, place * rank : (place + 1) * rank] = part[start : start + CHUNK]
                gram[index] += chunk.T @ chunk
                probed[index] += signs @ chunk
    return _side_of(torch.from_numpy(gram), torch.from_numpy(probed), tolerance)


def _side_of(gram: Tensor, probed: Tensor, tolerance: float) -> Side:
    """The side whose factors, side by side, have these Gram matrices [n, K, K] and products with g [n, K]."""
    _require_finite(gram)
    values, vectors = torch.linalg.eigh(gram)
    keep = values > tolerance**2 * values[:, -1:]
    root = torch.where(keep, values, 0.0).sqrt()
    inverse = torch.where(keep, values, torch.inf).rsqrt()
    basis = vectors * inverse[:, None]
    return Side(root[..., None] * vectors.mT, basis, (probed[:, None] @ basis)[:, 0])


def _side_by_qr(modules: Sequence[Sequence[Tensor]], tolerance: float) -> Side:
    """The same by QR and a small SVD, which keep every digit of float64."""
    columns = sum(part.shape[1] for part in modules[0])
    roots, probed = [], []
    for parts in modules:
        stacked = torch.cat(list(parts), dim=1)
        _require_finite(stacked)
        triangle = torch.linalg.qr(stacked, mode="r").R
        roots.append(torch.cat([triangle, triangle.new_zeros(columns - len(triangle), columns)]))
        probed.append(stacked.mT @ _probe(len(stacked)))
    _, s, vt = torch.linalg.svd(torch.stack(roots))
    s = torch.where(s > tolerance * s[:, :1], s, 0.0)
    inverse = torch.where(s > 0.0, 1.0 / s, 0.0)
    basis = vt.mT * inverse[:, None]
    return Side(s[..., None] * vt, basis, (torch.stack(probed)[:, None] @ basis)[:, 0])


def _mix(parts: Sequence[Tensor], weights: Tensor) -> Tensor:
    """The parts [width, r] side by side times weights [K, m], in the parts' precision and memory order."""
    blocks = weights.to(parts[0]).split(parts[0].shape[1])
    if parts[0].stride(0) == 1:
        mixed = blocks[0].mT @ parts[0].mT
        for part, block in zip(parts[1:], blocks[1:], strict=True):
            mixed.addmm_(block.mT, part.mT)
        return mixed.mT
    mixed = parts[0] @ blocks[0]
    for part, block in zip(parts[1:], blocks[1:], strict=True):
        mixed.addmm_(part, block)
    return mixed


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    """The controller of numpy's BLAS threads."""
    return ThreadpoolController().select(user_api="blas")


@lru_cache(maxsize=32)
def _probe(size: int) -> Tensor:
    """A fixed vector [size] in general position, by which singular vectors get their signs."""
    steps = np.arange(1, size + 1, dtype=np.float64)
    return torch.from_numpy(np.sin(steps * steps * (math.pi * (3.0 - math.sqrt(5.0)) / 2.0)) + 0.1)


def _require_finite(values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise PopulationError(
            "a parent holds numbers that are not finite",
            expected="finite factors",
            got="NaN or infinity",
            fix="breed from the adapter of an earlier generation",
        )
