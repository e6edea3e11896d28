"""A GPU played by torch's `meta` device: shapes and types alone, and every byte that lives there counted."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


class ShapesAlone(TorchDispatchMode):
    """Inside, what is computed on `meta` comes back as ones where it is copied to the host.

    An operation that mixes tensors of both devices raises, as on a GPU.

    Attributes:
        live, peak: bytes of the device's tensors, now and at most.
        products: dtypes of the matrix products there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.products: set[torch.dtype] = set()
        self._held: set[int] = set()

    def hold(self, tensor: Any) -> None:
        """Count a tensor's storage until it is freed."""
        if not isinstance(tensor, Tensor) or tensor.device.type != "meta":
            return
        storage = tensor.untyped_storage()
        name, size = storage._cdata, storage.nbytes()
        if name not in self._held:
            self._held.add(name)
            weakref.finalize(storage, self._freed, name, size)
            self.live += size
            self.peak = max(self.peak, self.live)

    def _freed(self, name: int, size: int) -> None:
        self._held.discard(name)
        self.live -= size

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, Tensor) and first.device.type == "meta":
            to = kwargs.get("device")
            if func is aten._to_copy.default and to is not None and torch.device(to).type == "cpu":
                return torch.ones((), dtype=kwargs.get("dtype") or first.dtype).expand(first.shape)
            if (
                func is aten._local_scalar_dense.default
            ):  # a mask that lets not all through; a count of what goes on
                return first.dtype is not torch.bool and 1 << 30
            if func._schema.name.removeprefix("aten::") in PRODUCTS:
                self.products.add(first.dtype)
        found = func(*args, **kwargs)
        for leaf in tree_leaves(found):
            self.hold(leaf)
        return found


def attention_kernels(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What `scaled_dot_product_attention` takes on a GPU: flash attention, with a mask the memory-efficient one."""
    if attn_mask is None:
        flash: Callable[..., tuple[Tensor, ...]] = aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    assert not enable_gqa  # it would fall back to one that holds all scores
    if attn_mask.dtype is torch.bool:
        seen = attn_mask
        attn_mask = torch.zeros_like(seen, dtype=query.dtype).masked_fill_(seen.logical_not(), -1e30)
    mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    efficient: Callable[..., tuple[Tensor, ...]] = aten._scaled_dot_product_efficient_attention
    return efficient(query, key, value, mask, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale)[0]
