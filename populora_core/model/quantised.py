"""A frozen linear layer kept in 8 or 4 bits: for a base that a GPU does not hold in 16.

Weights are rounded once, to the nearest of 255 or 15 steps between plus and minus the largest of their group. A product
takes them in the base's precision, so adapters, gradients and log-probabilities are those of the rounded base, in the
learner and in the torch sampler alike.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

GROUP = 64  # inputs that share a scale, at most
LARGEST = {8: 127, 4: 7}


class QuantisedLinear(nn.Linear):
    """A linear layer with quantised weights, made from the one it replaces.

    Attributes:
        codes: int8 [out, in], or uint8 [out, in / 2] with two weights each.
        scales: of each group [out, groups, 1].
    """

    codes: Tensor
    scales: Tensor

    def __init__(self, linear: nn.Linear, bits: Literal[8, 4]) -> None:
        nn.Module.__init__(self)  # not nn.Linear's, which makes a weight
        self.in_features, self.out_features, self.bits = linear.in_features, linear.out_features, bits
        self.bias = linear.bias
        weight = linear.weight.detach()
        groups = weight.float().unflatten(1, (-1, math.gcd(self.in_features, GROUP)))
        scales = groups.abs().amax(2, keepdim=True).clamp_(min=1e-12) / LARGEST[bits]
        scales = scales.to(weight.dtype)
        codes = (groups / scales.float()).round_().clamp_(-LARGEST[bits], LARGEST[bits]).flatten(1)
        if bits == 4:
            even, odd = (codes + 8).to(torch.uint8).unflatten(1, (-1, 2)).unbind(2)
            codes = (even << 4) | odd
        self.register_buffer("codes", codes.to(torch.uint8 if bits == 4 else torch.int8))
        self.register_buffer("scales", scales)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """[out, in] in the base's precision, made at every use."""
        codes = self.codes
        if self.bits == 4:
            codes = torch.stack([codes >> 4, codes & 15], dim=2).flatten(1)
        values = codes.to(self.scales.dtype) - (8 if self.bits == 4 else 0)
        return values.unflatten(1, (-1, values.shape[1] // self.scales.shape[1])).mul_(self.scales).flatten(1)


def quantise(model: PreTrainedModel, bits: Literal[8, 4], device: str) -> None:
    """Round every linear layer but the output layer; layers go to the device one at a time, before they are rounded."""
    head = model.get_output_embeddings()
    # Names alone: a list of the layers would keep all their weights until the last is rounded.
    names = [
        name for name, module in model.named_modules() if isinstance(module, nn.Linear) and module is not head
    ]
    for name in names:
        parent, _, leaf = name.rpartition(".")
        layer = QuantisedLinear(model.get_submodule(name).to(device), bits)
        setattr(model.get_submodule(parent), leaf, layer)
