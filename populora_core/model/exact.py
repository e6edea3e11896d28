"""A pass in float32 over a base that is kept in 16 bits: what tells adapters apart that rounding would hide.

After one small step a member's log-probabilities and the base's differ by less than bfloat16 rounds. In float32 they
differ by a hundred times more than it does. The tensors are the resident ones: each is converted where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@contextmanager
def in_float32(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model computes in float32; adapters over it follow, since they take the precision of their input.

    One module's parameters at a time are held twice, in buffers that modules of one shape share: memory that is new
    at every step costs more than the conversion. A base in float32 is left alone.
    """
    embedding = model.get_input_embeddings()
    if embedding.weight.dtype == torch.float32:
        yield
        return
    buffers: dict[torch.Size, list[Tensor]] = {}
    with ExitStack() as hooks:
        first = embedding.register_forward_hook(lambda module, inputs, output: output.float())
        hooks.callback(first.remove)
        for module in model.modules():
            if module is not embedding and any(True for _ in module.parameters(recurse=False)):
                kept: dict[str, nn.Parameter | None] = {}
                before = module.register_forward_pre_hook(_widened(kept, buffers))
                after = module.register_forward_hook(_narrowed(kept, buffers), always_call=True)
                hooks.callback(before.remove)
                hooks.callback(after.remove)
        yield


def _widened(kept: dict[str, nn.Parameter | None], buffers: dict[torch.Size, list[Tensor]]) -> Any:
    def hook(module: nn.Module, inputs: Any) -> None:
        kept.update(module._parameters)
        for name, parameter in kept.items():
            if parameter is not None and parameter.is_floating_point():
                free = buffers.setdefault(parameter.shape, [])
                wide = free.pop() if free else torch.empty_like(parameter, dtype=torch.float32)
                module._parameters[name] = nn.Parameter(wide.copy_(parameter), requires_grad=False)

    return hook


def _narrowed(kept: dict[str, nn.Parameter | None], buffers: dict[torch.Size, list[Tensor]]) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
        for name, parameter in kept.items():
            wide = module._parameters[name]
            if wide is not None and wide is not parameter:
                buffers[wide.shape].append(wide.data)
        module._parameters.update(kept)
        kept.clear()

    return hook
