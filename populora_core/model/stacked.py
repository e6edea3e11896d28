"""Many adapters on one frozen base: the population is a matrix, and a batch holds rows of several members.

The base layer sees all rows at once. The low-rank term of a member touches only its own rows, so gradients
are exactly those of training each member alone. How the members' products are put together: `routes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from populora_core.model.attention import attention_window
from populora_core.model.layout import AdapterLayout, ModuleSlot
from populora_core.model.packed import PackedLinear, packed, worth_packing
from populora_core.model.routes import COPY_TOKENS, Route, RowBlock, route_of, step_route
from populora_core.support.errors import BaseModelError, PopulationError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class StackedAdapters:
    """The resident population over a transformers model, for sampling and for training.

    Use: `load` the members, then run the model inside `routed`, which says whose row is whose.

    Attributes:
        members: ids of the resident members; member i is row i of the matrices.
        weights: [P, D] in `master_dtype`, what the optimiser steps.
        grad: [P, D], the gradients summed since `zero_grad`; None until one is needed.
        shares_beginnings: whether what texts begin with in common is computed once. So it is in 16 bits on a CPU: it
            changes the last bits, which float32 promises, and puts a mask where a GPU is faster without.
        packs: whether the base's weights are kept a second time, in the layout that products in bfloat16 want.
        base_first: whether members' terms are added to the base's rounded product, as other engines do it.
    """

    def __init__(
        self, model: PreTrainedModel, layout: AdapterLayout, master_dtype: torch.dtype = torch.float32
    ) -> None:
        self.model, self.layout = model, layout
        self.members: tuple[str, ...] = ()
        self.grad: Tensor | None = None
        self.route: Route | None = None
        self.base_first = False
        self.packs = worth_packing(model)
        head = model.get_output_embeddings()
        self._head = (packed(head) if self.packs else None) or head
        self._layers = [self._attach(slot) for slot in layout.modules]
        base = self._layers[0].base.weight
        self.device, self.compute_dtype = base.device, base.dtype
        half = self.device.type == "cpu" and self.compute_dtype != torch.float32
        self.shares_beginnings = half and attention_window(model.config) is None
        self.weights = torch.empty(0, layout.dimension, dtype=master_dtype, device=self.device)
        # Frozen embeddings make the first layers' inputs gradient-free; this leaf keeps their backward alive.
        self.anchor = torch.zeros((), device=self.device, requires_grad=True)

    def load(self, rows: Mapping[str, Tensor]) -> None:
        """Make exactly these members resident, each with its row [D]."""
        for layer in self._layers:
            layer.forget()
        self.members = tuple(sorted(rows))
        self.weights = self.weights.new_empty(len(rows), self.layout.dimension)
        for target, member_id in zip(self.weights, self.members, strict=True):
            target.copy_(rows[member_id])
        self.grad = None
        shadow = self.weights.to(self.compute_dtype)
        for layer in self._layers:
            layer.a, layer.b = self.layout.factors(shadow, layer.slot)

    def logits(self, states: Tensor) -> Tensor:
        """Hidden states [n, d] -> logits [n, V], of which no gradients are taken."""
        other = states.dtype != self.compute_dtype
        usual = self.model.get_output_embeddings() if other else self._head
        return usual(states)

    def zero_grad(self) -> Tensor:
        """Clear the gradients of all resident members and return their matrix [P, D]."""
        self.grad = torch.zeros_like(self.weights)
        return self.grad

    def slot(self, member_id: str | None) -> int | None:
        """The population row of a member; None, the bare base, stays None.

        Raises:
            PopulationError: the member is not resident.
        """
        if member_id is None:
            return None
        try:
            return self.members.index(member_id)
        except ValueError:
            raise PopulationError(
                f"member {member_id} is not resident",
                expected="one of " + (", ".join(self.members) or "no members: nothing was loaded"),
                fix="load() the members of the batch first",
            ) from None

    def rank(self, member_id: str | None) -> int:
        """The place of its rows in a batch that is sorted by member: the base comes first."""
        slot = self.slot(member_id)
        return -1 if slot is None else slot

    @contextmanager
    def routed(self, slots: Sequence[int | None], tokens: int = 1) -> Iterator[None]:
        """Inside, row i of every batch, of so many tokens, belongs to the member in population row slots[i]."""
        with self.along(self.route_for(slots, tokens)):
            yield

    def route_for(self, slots: Sequence[int | None], tokens: int = 1) -> Route:
        """The route of batches of so many tokens whose row i belongs to the member in population row slots[i]."""
        rank, gradients = self.layout.rank, self.weights.dtype if torch.is_grad_enabled() else None
        if tokens == 1 and gradients is None:
            return step_route(slots, len(self.members), rank, self.device)
        return route_of(slots, -(-COPY_TOKENS * rank // tokens), self.device, gradients)

    @contextmanager
    def along(self, route: Route) -> Iterator[None]:
        """Inside, every batch takes this route."""
        self.route = route
        try:
            yield
        finally:
            self.route = None

    @contextmanager
    def adding_to_base(self) -> Iterator[None]:
        """Inside, members' terms are added as vLLM adds them: what is smaller than the base's rounding is lost."""
        self.base_first = True
        try:
            yield
        finally:
            self.base_first = False

    def detach(self) -> None:
        """Put the base's own layers back in their places; no member can be used after that."""
        for layer in self._layers:
            _replace(self.model, layer.slot.name, layer.base)

    def _attach(self, slot: ModuleSlot) -> StackedLinear:
        base = self.model.get_submodule(slot.name)
        if not isinstance(base, nn.Linear):
            raise BaseModelError(
                f"{slot.name} cannot take an adapter",
                expected="nn.Linear",
                got=type(base).__name__,
                fix="load the model again: adapters lie over this one already",
            )
        layer = StackedLinear(base, slot, self)
        _replace(self.model, slot.name, layer)
        return layer


class StackedLinear(nn.Module):
    """A frozen linear layer with every resident member's low-rank term over it.

    Attributes:
        a, b: the members' factors [P, rank, in] and [P, out, rank] in the dtype that the base computes in.
    """

    a: Tensor
    b: Tensor

    def __init__(self, base: nn.Linear, slot: ModuleSlot, stack: StackedAdapters) -> None:
        super().__init__()
        self.base, self.slot = base, slot
        self.stack = stack
        self._packed = packed(base) if stack.packs else None
        self._beside: tuple[Tensor, int, tuple[Tensor, Tensor]] | None = None

    def forget(self) -> None:
        """Drop what is kept of factors that are about to be replaced, so that both never take memory at once."""
        self._beside = None

    def side_by_side(self) -> tuple[Tensor, Tensor]:
        """All members' factors [in, P * rank] and [P * rank, out], copied again once the weights have changed."""
        known = self._beside
        if known is None or known[0] is not self.a or known[1] != self.a._version:
            copies = self.a.flatten(0, 1).mT.contiguous(), self.b.mT.flatten(0, 1)
            known = self._beside = self.a, self.a._version, copies
        return known[2]

    def forward(self, x: Tensor) -> Tensor:
        """x [N, T, in] -> [N, T, out]."""
        route = self.stack.route
        if route is None or x.dim() != 3 or x.shape[0] != route.n_rows:
            # On the bare base it would go on silently, and look like a population that does not learn.
            raise BaseModelError(
                f"{self.slot.name} got a batch without a matching route",
                expected="[N, T, in] with one route entry a row",
                got=f"{list(x.shape)} with {'no route' if route is None else f'{route.n_rows} entries'}",
                fix="run the model inside StackedAdapters.routed()",
            )
        if torch.is_grad_enabled() and route.blocks:
            return _LowRank.apply(x.contiguous(), self.stack.anchor, self, route)
        return self.apply_members(x.contiguous(), route)[0]

    def apply_members(self, x: Tensor, route: Route) -> tuple[Tensor, list[Tensor]]:
        """The output and, for each block, u = A x' [members, rank, rows]: thin factors first suits BLAS.

        Everything is computed in the precision of x (see `exact`). In 16 bits the base's product is added to the
        members', and rounded with them: added to what is rounded, the small terms of young members would be lost.
        """
        bare = route.mixed is None and not route.blocks
        base_first = bare or x.dtype == torch.float32 or self.stack.base_first
        packed = self._packed_for(x)
        if base_first:
            y = packed(x) if packed is not None else self._of_base(x)
        else:
            y = x.new_zeros(*x.shape[:-1], self.slot.out_features)
        scale = self.stack.layout.scale
        activations = []
        for block in route.blocks:
            u = torch.bmm(block.of(self.a).to(x.dtype), _rows(x, block).mT)
            _rows(y, block).baddbmm_(u.mT, block.of(self.b).mT.to(x.dtype), alpha=scale)
            activations.append(u)
        if route.mixed is not None:
            assert not torch.is_grad_enabled()  # `route_for` gives it only where no gradients are taken
            route.mixed.add_to(y, x, self, scale)
        if not base_first:
            y = packed(x, y) if packed is not None else self._of_base(x, y)
        return y, activations

    def _packed_for(self, x: Tensor) -> PackedLinear | None:
        return None if x.dtype != torch.bfloat16 or torch.is_grad_enabled() else self._packed

    def _of_base(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """The base's product, in the precision of x; with `plus` [N, T, out], which is taken for it, added."""
        weight = self.base.weight.to(x.dtype)
        bias = None if self.base.bias is None else self.base.bias.to(x.dtype)
        if plus is None:
            return F.linear(x, weight, bias)
        plus.flatten(0, 1).addmm_(x.flatten(0, 1), weight.mT)
        return plus if bias is None else plus.add_(bias)


class _LowRank(torch.autograd.Function):
    """A product that adds member gradients straight into the population's gradient matrix, one block at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, layer: StackedLinear, route: Route) -> Tensor:
        y, activations = layer.apply_members(x, route)
        ctx.save_for_backward(x, *activations)
        ctx.layer, ctx.route = layer, route
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, *activations = ctx.saved_tensors
        layer: StackedLinear = ctx.layer
        stack, grad_y = layer.stack, grad_y.contiguous()
        scale = stack.layout.scale
        grad = stack.zero_grad() if stack.grad is None else stack.grad
        grad_a, grad_b = stack.layout.factors(grad, layer.slot)
        grad_x = torch.matmul(grad_y, layer.base.weight) if ctx.needs_input_grad[0] else None
        for block, u in zip(ctx.route.blocks, activations, strict=True):
            rows = _rows(grad_y, block)
            v = torch.bmm(block.of(layer.b).mT, rows.mT)
            block.add_to(grad_a, torch.bmm(v, _rows(x, block)), scale)
            block.add_to(grad_b, torch.bmm(u, rows).mT, scale)
            if grad_x is not None:
                _rows(grad_x, block).baddbmm_(v.mT, block.of(layer.a), alpha=scale)
        return grad_x, None, None, None


def _rows(x: Tensor, block: RowBlock) -> Tensor:
    """The block's rows of x [N, T, d] as a view [count, rows * T, d]."""
    return x[block.start : block.stop].view(block.count, -1, x.shape[-1])


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, module)
