"""A key-value cache whose rows can be chosen anew: repeated for equal prompts, dropped when ended, joined by others.

All rows share one clock: the next token of every row goes into the same column, so that a step appends without
a copy, and a shorter row has unused columns on its left.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer


class _Slab:
    """Keys or values [rows, heads, capacity, width], in one of two buffers that choosing rows copies between."""

    def __init__(self, states: Tensor, capacity: int) -> None:
        self._spare: Tensor | None = None
        self._buffer = self._empty(states, len(states), capacity)
        self.data = self._buffer

    def choose(self, rows: Tensor, columns: slice, capacity: int) -> None:
        old = self._turn(len(rows), capacity)
        kept = columns.stop - columns.start
        torch.index_select(old[:, :, columns], 0, rows, out=self.data[:, :, :kept])

    def join(self, other: Tensor, place: Tensor, lengths: tuple[int, int], capacity: int) -> None:
        """Own rows, then `other`'s, go to rows `place`, so that all end in the same column."""
        old, end = self._turn(len(place), capacity), max(lengths)
        targets = place.split([len(old), len(other)])
        for states, target, length in zip((old, other), targets, lengths, strict=True):
            if length < end:
                self.data[target, :, : end - length] = 0.0  # masked; yet what lay there may be no number
            self.data[target, :, end - length : end] = states[:, :, :length]

    def _turn(self, rows: int, capacity: int) -> Tensor:
        """Make room in the other buffer the data, and return what was the data."""
        old, buffer = self.data, self._spare
        if buffer is None or buffer.shape[0] < rows or buffer.shape[2] != capacity:
            buffer = self._empty(old, rows, capacity)
        self._spare, self._buffer = self._buffer, buffer
        self.data = buffer[:rows]
        return old

    @staticmethod
    def _empty(like: Tensor, rows: int, capacity: int) -> Tensor:
        return like.new_empty(rows, like.shape[1], capacity, like.shape[3])


class _SlabLayer(DynamicLayer):
    """One layer's keys and values in memory of fixed capacity, so that a token appends without a copy."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity, self.length = capacity, 0
        self.slabs: tuple[_Slab, ...] = ()

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.slabs = _Slab(key_states, self._capacity), _Slab(value_states, self._capacity)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self.length = self.length, self.length + key_states.shape[2]
        for slab, states in zip(self.slabs, (key_states, value_states), strict=True):
            slab.data[:, :, start : self.length] = states
        keys, values = (slab.data[:, :, : self.length] for slab in self.slabs)
        return keys, values

    def get_seq_length(self) -> int:
        return self.length


class SlabCache(Cache):
    """A transformers cache that keeps everything, so that sliding windows are left to the mask."""

    def __init__(self, n_layers: int, capacity: int) -> None:
        super().__init__(layers=[_SlabLayer(capacity) for _ in range(n_layers)])
        self.capacity = capacity

    def choose(self, rows: Tensor, capacity: int, first: int = 0) -> None:
        """Make batch row i what row rows[i] was, without the columns before `first`.

        Args:
            capacity: room for so many tokens; where it stays as it was, no memory is asked for.
        """
        self.capacity = capacity
        for layer in self.layers:
            for slab in layer.slabs:
                slab.choose(rows, slice(first, layer.length), capacity)
            layer.length -= first

    def join(self, other: SlabCache, place: Tensor, capacity: int) -> None:
        """Take in the rows of `other`: own row i becomes row place[i], the other's follow in `place`."""
        self.capacity = capacity
        for layer, newer in zip(self.layers, other.layers, strict=True):
            lengths = layer.length, newer.length
            for slab, added in zip(layer.slabs, newer.slabs, strict=True):
                slab.join(added.data, place, lengths, capacity)
            layer.length = max(lengths)
