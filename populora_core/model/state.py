"""A member's trainable state between generations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class MemberState:
    """Genotype and optimiser state of one member.

    Attributes:
        weights: the adapter [D], float32 on the CPU, in the order of `AdapterLayout`.
        exp_avg: Adam's first moment [D].
        exp_avg_sq: Adam's second moment [D].
        steps: optimiser steps made, which the bias correction depends on.
    """

    weights: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    steps: int

    @classmethod
    def newborn(cls, weights: Tensor) -> MemberState:
        """A state with a fresh optimiser."""
        return cls(weights, torch.zeros_like(weights), torch.zeros_like(weights), 0)
