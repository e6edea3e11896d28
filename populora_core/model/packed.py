"""Frozen weights in the layout that a CPU's products in bfloat16 want, for passes of which no gradients are taken.

A step of a few rows reads every weight once, and bringing them into that layout takes as long as the products do. Done
once, it costs the memory of a second copy. Float32 is left alone: its results stay what they are to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from populora_core.support.devices import cpu_has_bfloat16

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROWS = 16  # of a product that the layout is chosen for
MOST = 1 << 32  # bytes of weights beyond which a second copy would take more than it gives


class PackedLinear:
    """A frozen linear layer whose weight is laid out at the first product."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer
        self._weight: Tensor | None = None

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """x [..., in] in bfloat16 -> [..., out], with `plus` [..., out] added before it is rounded."""
        if self._weight is None:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._layer.weight.detach(), ROWS)
        bias = self._layer.bias
        if plus is None:
            return torch.ops.mkldnn._linear_pointwise(x, self._weight, bias, "none", [], "")
        return torch.ops.mkldnn._linear_pointwise.binary(x, plus, self._weight, bias, "add")


def packed(layer: nn.Module) -> PackedLinear | None:
    """The layer with a packed weight; None where it is of another kind than this CPU gains by."""
    if not isinstance(layer, nn.Linear) or not isinstance(layer.weight, nn.Parameter):
        return None
    weight = layer.weight
    return PackedLinear(layer) if weight.dtype == torch.bfloat16 and weight.device.type == "cpu" else None


def worth_packing(model: PreTrainedModel) -> bool:
    """True if there is something to gain on this CPU, with this PyTorch, and memory for it."""
    linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    size = sum(parameter.numel() * parameter.itemsize for parameter in model.parameters())
    return linear is not None and cpu_has_bfloat16() and size <= MOST
