"""A key-value cache whose rows can be chosen anew: repeated for equal prompts, dropped when they end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer


class _Slab:
    """Keys or values [rows, heads, capacity, width], with a second buffer that choosing rows copies into."""

    def __init__(self, states: Tensor, capacity: int) -> None:
        self._spare: Tensor | None = None
        self.data = self._empty(states, len(states), capacity)

    def choose(self, rows: Tensor, length: int, capacity: int) -> None:
        old, spare = self.data, self._spare
        if spare is not None and spare.shape[0] >= len(rows) and spare.shape[2] == capacity:
            self.data = spare[: len(rows)]
        else:
            self.data = self._empty(old, len(rows), capacity)
        torch.index_select(old[:, :, :length], 0, rows, out=self.data[:, :, :length])
        self._spare = old

    @staticmethod
    def _empty(like: Tensor, rows: int, capacity: int) -> Tensor:
        return like.new_empty(rows, like.shape[1], capacity, like.shape[3])


class _SlabLayer(DynamicLayer):
    """One layer's keys and values in memory of fixed capacity, so that a token appends without a copy."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity, self.length = capacity, 0
        self.slabs: tuple[_Slab, ...] = ()

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.slabs = _Slab(key_states, self.capacity), _Slab(value_states, self.capacity)
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

    def choose(self, rows: Tensor, capacity: int) -> None:
        """Make batch row i what row rows[i] was, with room for `capacity` tokens."""
        for layer in self.layers:
            layer.capacity = capacity
            for slab in layer.slabs:
                slab.choose(rows, layer.length, capacity)
