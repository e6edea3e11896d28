"""Routes of a batch: the member of each row, and how the members' products are put together.

Sorted by member, rows go through in blocks: all members in one batched product where their parts of the batch are
multiples of a part that is long enough; else those with equal parts. Rows of a single token, whose products
are small, may come in any order: while they are few, the product of each with every member is cheaper than bringing
it to its own; else they are gathered by member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import gcd
from typing import Protocol

import torch
from torch import Tensor

COPY_TOKENS = 2
"""Times the rank: parts of as many tokens are worth a copy of their member's factors, so that one product has all."""
FEW_BLOCKS = 2
"""Number of products that cost less than bringing a step's rows into parts of one length and back."""
FEW_PRODUCTS = {"cpu": 8192, "cuda": 0}
"""Rows of a step times all residents' ranks: up to here the product of every row with every member is cheapest.
On a GPU it was not measured, and would cost memory: it wants a copy of all factors."""


class LayerFactors(Protocol):
    """The members' factors of one linear layer, as the two kinds of mixed rows want them.

    Attributes:
        a, b: [P, rank, in] and [P, out, rank].
    """

    a: Tensor
    b: Tensor

    def side_by_side(self) -> tuple[Tensor, Tensor]:
        """The same as [in, P * rank] and [P * rank, out]."""
        ...


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Batch rows [start, stop) in `count` parts of equal length, each of one member.

    Attributes:
        members: the parts' population rows: a slice, or [count] where that would not be one.
        owners: the U different members [U], and which parts are whose [U, count]; None where every part has a
            member of its own, and where no gradients are taken.
    """

    start: int
    stop: int
    count: int
    members: slice | Tensor
    owners: tuple[Tensor, Tensor] | None = None

    def of(self, matrix: Tensor) -> Tensor:
        """The parts' members' rows of a matrix [P, ...]: a view with a slice."""
        return _of_members(matrix, self.members)

    def add_to(self, matrix: Tensor, values: Tensor, scale: float) -> None:
        """Add the parts' values [count, ...] to their members' rows of a matrix [P, ...]."""
        members = self.members
        if isinstance(members, slice):
            matrix[members].add_(values, alpha=scale)
            return
        if self.owners is not None:  # summed first: to add twice to one row has no fixed order on a GPU
            members, whose = self.owners
            values = (whose @ values.flatten(1).to(whose)).unflatten(1, values.shape[1:])
        matrix.index_add_(0, members, values.to(matrix), alpha=scale)


@dataclass(frozen=True, slots=True)
class Scattered:
    """Batch rows in any order for one product: gathered by member into parts that are padded.

    Attributes:
        members: the parts' population rows: a slice, or [U] where that would not be one.
        sources: the batch row in each place of the parts [U, longest]; any where there is none.
        places: where among all places each row with a member is [n].
        rows: those rows [n]; None where all have members.
    """

    members: slice | Tensor
    sources: Tensor
    places: Tensor
    rows: Tensor | None

    @classmethod
    def of(cls, slots: Sequence[int | None], device: torch.device | None = None) -> Scattered:
        """Build from the population row of each batch row; at least one row must have a member."""
        own: dict[int, list[int]] = {
            slot: [] for slot in sorted({slot for slot in slots if slot is not None})
        }
        longest = max(map(slots.count, own))
        rows, places = [], []
        for row, slot in enumerate(slots):
            if slot is not None:
                rows.append(row)
                places.append((slot, len(own[slot])))
                own[slot].append(row)
        part = {slot: number * longest for number, slot in enumerate(own)}
        return cls(
            _members(list(own), device),
            torch.tensor([taken + [0] * (longest - len(taken)) for taken in own.values()], device=device),
            torch.tensor([part[slot] + place for slot, place in places], device=device),
            torch.tensor(rows, device=device) if len(rows) < len(slots) else None,
        )

    def add_to(self, y: Tensor, x: Tensor, factors: LayerFactors, scale: float) -> None:
        """y += scale B A x for each row's member, of x [N, T, in] and y [N, T, out]."""
        parts, tokens = len(self.sources), x.shape[1]
        gathered = x.index_select(0, self.sources.flatten()).view(parts, -1, x.shape[-1])
        a, b = (_of_members(factor, self.members).to(x.dtype) for factor in (factors.a, factors.b))
        u = torch.bmm(a, gathered.mT)
        added = torch.bmm(u.mT, b.mT).view(-1, tokens, y.shape[-1])
        added = added.index_select(0, self.places)
        if self.rows is None:
            y.add_(added, alpha=scale)
        else:
            y.index_add_(0, self.rows, added, alpha=scale)


@dataclass(frozen=True, slots=True)
class Masked:
    """Batch rows in any order, for a product with all members of which each keeps its own.

    Attributes:
        foreign: what each row must not keep of all members' products [N, 1, P * rank].
    """

    foreign: Tensor

    @classmethod
    def of(
        cls, slots: Sequence[int | None], members: int, rank: int, device: torch.device | None = None
    ) -> Masked:
        """Build from the population row of each batch row; None for a row without a member."""
        own = torch.tensor([-1 if slot is None else slot for slot in slots], device=device)
        return cls(torch.arange(members * rank, device=device) // rank != own[:, None, None])

    def add_to(self, y: Tensor, x: Tensor, factors: LayerFactors, scale: float) -> None:
        """y += scale B A x for each row's member, of x [N, T, in] and y [N, T, out]."""
        a, b = (factor.to(x.dtype) for factor in factors.side_by_side())
        u = torch.matmul(x, a).masked_fill_(self.foreign, 0.0)
        y.view(-1, y.shape[-1]).addmm_(u.flatten(0, 1), b, alpha=scale)


@dataclass(frozen=True, slots=True)
class Route:
    """The member of each row of a batch. Rows without a member run on the base alone.

    Attributes:
        mixed: stands for all blocks where rows come in any order.
    """

    n_rows: int
    blocks: tuple[RowBlock, ...]
    mixed: Scattered | Masked | None = None


def route_of(
    slots: Sequence[int | None],
    shortest: int = 1,
    device: torch.device | None = None,
    gradients: torch.dtype | None = None,
) -> Route:
    """The route of a batch from the population row of each batch row; sorted slots give the fewest blocks.

    Args:
        shortest: rows of a part that are worth a copy of its member's factors.
        gradients: their precision; None where none are taken.
    """
    planned = _planned(slots, shortest)
    return Route(len(slots), tuple(_block(*block, device, gradients) for block in planned))


def step_route(
    slots: Sequence[int | None], members: int, rank: int, device: torch.device | None = None
) -> Route:
    """The route of a batch of one token a row, in any order, of which no gradients are taken.

    Args:
        members: how many are resident.
    """
    blocks = sum(1 for _ in _planned(slots, COPY_TOKENS * rank))
    few = FEW_PRODUCTS["cpu" if device is None else device.type]
    if blocks > 1 and len(slots) * members * rank <= few:
        return Route(len(slots), (), Masked.of(slots, members, rank, device))
    if blocks > FEW_BLOCKS:
        return Route(len(slots), (), Scattered.of(slots, device))
    return route_of(slots, COPY_TOKENS * rank, device)


def _planned(slots: Sequence[int | None], shortest: int) -> Iterator[tuple[int, int, list[int]]]:
    """Yield (first row, rows per part, member of each part) for each block."""
    start = 0
    for adapted, stretch in groupby(slots, key=lambda slot: slot is not None):
        rows = list(stretch)
        if adapted:
            for length, members in _parts([slot for slot in rows if slot is not None], shortest):
                yield start, length, members
                start += length * len(members)
        else:
            start += len(rows)


def _parts(slots: list[int], shortest: int) -> Iterator[tuple[int, list[int]]]:
    """Rows of a part, and the member of each part, of the blocks of neighbouring rows that all have members."""
    runs = [(slot, sum(1 for _ in run)) for slot, run in groupby(slots)]
    common = gcd(*(rows for _, rows in runs))
    if common >= shortest:
        yield common, [slot for slot, rows in runs for _ in range(rows // common)]
    else:
        for rows, equal in groupby(runs, key=lambda run: run[1]):
            yield rows, [slot for slot, _ in equal]


def _block(
    start: int, length: int, members: list[int], device: torch.device | None, gradients: torch.dtype | None
) -> RowBlock:
    count = len(members)
    stop, chosen, owners = start + length * count, _members(members, device), None
    different = sorted(set(members))
    if gradients is not None and len(different) < count:
        whose = [[slot == member for slot in members] for member in different]
        owners = torch.tensor(different, device=device), torch.tensor(whose, device=device, dtype=gradients)
    return RowBlock(start, stop, count, chosen, owners)


def _members(members: list[int], device: torch.device | None) -> slice | Tensor:
    """Population rows to take: as a slice, which gives a view, if they are neighbours in order."""
    first, count = members[0], len(members)
    if members == list(range(first, first + count)):
        return slice(first, first + count)
    return torch.tensor(members, device=device)


def _of_members(matrix: Tensor, members: slice | Tensor) -> Tensor:
    """These rows of a matrix [P, ...]."""
    return matrix[members] if isinstance(members, slice) else matrix.index_select(0, members)
