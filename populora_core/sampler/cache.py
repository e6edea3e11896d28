"""A key-value cache whose rows come and go: a row that ends leaves a place, and newcomers join on the right.

All rows share one clock: the next token of every row goes into the same column, so that a step appends without
a copy. A shorter row has unused columns on its left, and columns that no row uses any more are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer


class _SlabLayer(DynamicLayer):
    """One layer's keys and values: rows [0, rows) and columns [first, end) of two slabs.

    Attributes:
        slabs: keys and values [room, heads, columns, width].
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.rows, self.first, self.end = 0, 0, 0
        self.slabs: tuple[Tensor, ...] = ()

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.rows = len(key_states)
        self.slabs = tuple(_like(states, self.rows, self.columns) for states in (key_states, value_states))
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self.end = self.end, self.end + key_states.shape[2]
        assert self.end <= self.columns  # beyond it, a slice would be empty and nothing written
        for slab, states in zip(self.slabs, (key_states, value_states), strict=True):
            slab[: self.rows, :, start : self.end] = states
        keys, values = self.used()
        return keys, values

    def used(self) -> list[Tensor]:
        """Keys and values [rows, heads, length, width]."""
        return [slab[: self.rows, :, self.first : self.end] for slab in self.slabs]

    def get_seq_length(self) -> int:
        return self.end - self.first

    def lay_out(self, room: int, columns: int, end: int) -> None:
        """Move everything to new slabs, so that it ends in column `end`."""
        length = self.get_seq_length()
        moved = []
        for slab, used in zip(self.slabs, self.used(), strict=True):
            fresh = _like(slab, room, columns)
            fresh[: self.rows, :, end - length : end] = used
            moved.append(fresh)
        self.slabs, self.columns, self.first, self.end = tuple(moved), columns, end - length, end

    def widen(self, length: int) -> None:
        """Let every row have so many columns; those before its own hold zeros, which are masked.

        Uninitialised memory may hold NaN, which a mask does not stop.
        """
        first = self.end - length
        if first < self.first:
            for slab in self.slabs:
                slab[: self.rows, :, first : self.first] = 0.0
            self.first = first

    def keep(self, rows: int, sources: Tensor, places: Tensor, first: int) -> None:
        self.rows, self.first = rows, self.first + first
        for slab in self.slabs:
            used = slab[:, :, self.first : self.end]
            used[places] = used[sources]

    def close_up(self, columns: Tensor) -> None:
        """Let column i of each row be what was its column columns[row, i]."""
        for slab in self.slabs:
            used = slab[: self.rows, :, self.first : self.end]
            used.copy_(used.gather(2, columns[:, None, :, None].expand_as(used)))

    def append(self, newer: Sequence[tuple[_SlabLayer, Tensor, Tensor]]) -> None:
        """Rows of other layers follow the own ones, each in its place among the newcomers."""
        start, self.rows = self.rows, self.rows + sum(len(rows) for _, rows, _ in newer)
        for layer, rows, places in newer:
            gap = self.get_seq_length() - layer.get_seq_length()
            for slab, added in zip(self.slabs, layer.used(), strict=True):
                fresh = slab[start : self.rows, :, self.first : self.end]
                fresh[:, :, :gap].index_fill_(0, places, 0.0)
                fresh[:, :, gap:].index_copy_(0, places, added.index_select(0, rows))


class SlabCache(Cache):
    """A transformers cache that keeps everything, so that sliding windows are left to the mask."""

    layers: list[_SlabLayer]

    def __init__(self, n_layers: int, columns: int) -> None:
        super().__init__(layers=[_SlabLayer(columns) for _ in range(n_layers)])

    @property
    def columns(self) -> int:
        """Tokens that a row has room for."""
        return self.layers[0].columns

    @classmethod
    def beside(cls, other: SlabCache, rows: int, columns: int) -> SlabCache:
        """An empty cache of the shape of `other`, with room for so many rows and columns."""
        made = cls(len(other.layers), columns)
        for layer, like in zip(made.layers, other.layers, strict=True):
            layer.slabs = tuple(_like(slab, rows, columns) for slab in like.slabs)
            layer.first = layer.end = like.get_seq_length()
            layer.is_initialized = True
        return made

    def reserve(self, rows: int = 0, columns: int = 0, longest: int = 0) -> None:
        """Make room for one more token, and for `rows` rows in all, of at most `longest` tokens.

        Args:
            columns: tokens that a row may come to.
        """
        for layer in self.layers:
            room, length = len(layer.slabs[0]), max(longest, layer.get_seq_length())
            if rows > room or columns > layer.columns:
                layer.lay_out(rows, max(columns, layer.columns), length)
            elif length > layer.end or layer.end == layer.columns:
                layer.lay_out(room, layer.columns, length)
            layer.widen(length)

    def append(self, newer: Sequence[tuple[SlabCache, Tensor, Tensor]]) -> None:
        """Rows of other caches follow the own ones, after `reserve` for them.

        Args:
            newer: of each other cache, which of its rows come [n], and in which places among the newcomers [n].
        """
        for number, layer in enumerate(self.layers):
            layer.append([(cache.layers[number], rows, places) for cache, rows, places in newer])

    def close_up(self, known: int, gaps: Tensor) -> None:
        """Bring the first `known` columns of each row over its next `gaps` [n], which hold nothing."""
        columns = torch.arange(self.get_seq_length(), device=gaps.device).expand(len(gaps), -1)
        moved = (columns - gaps[:, None]).clamp(min=0)
        sources = torch.where(moved < known, moved, columns)
        for layer in self.layers:
            layer.close_up(sources)

    def keep(self, rows: int, sources: Tensor, places: Tensor, first: int) -> None:
        """Go on with the first `rows` rows, once rows `sources` lie in `places`, without the columns before `first`."""
        for layer in self.layers:
            layer.keep(rows, sources, places, first)


def _like(states: Tensor, rows: int, columns: int) -> Tensor:
    return states.new_empty(rows, states.shape[1], columns, states.shape[3])
