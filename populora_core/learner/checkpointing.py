"""Gradient checkpointing: backward runs each decoder layer again instead of keeping what it computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from torch import nn
from torch.utils.checkpoint import checkpoint

from populora_core.support.errors import BaseModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@contextmanager
def checkpointed(model: PreTrainedModel, enabled: bool = True) -> Iterator[None]:
    """Inside, only the inputs of the decoder layers are kept for backward, which must end inside too.

    transformers' own switch works in training mode alone, where a base with dropout would be another policy.

    Raises:
        BaseModelError: the architecture has no layers that can be run again.
    """
    with ExitStack() as stack:
        for layer in _layers(model) if enabled else ():
            # An attribute of the instance hides the method of its class until it is deleted.
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
            stack.callback(delattr, layer, "forward")
        yield


def _layers(model: PreTrainedModel) -> list[nn.Module]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise BaseModelError(
            f"{type(model).__name__} does not support gradient checkpointing",
            expected="decoder layers of transformers' GradientCheckpointingLayer",
            fix="set update.gradient_checkpointing = false, and lower update.token_budget for memory",
        )
    return layers
