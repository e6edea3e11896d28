"""One LoRA adapter as one flat row of numbers.

Module-major order: all layers' A factors of one kind of module (every layer's q_proj, say) lie side by side,
then all their B factors. One batched call can then serve all layers, in variation as in statistics.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from populora_core.support.errors import AdapterError, BaseModelError

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedModel

PEFT_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class ModuleSlot:
    """The place of one linear module's factors in an adapter's row: A [rank, in], B [out, rank]."""

    name: str
    in_features: int
    out_features: int
    a_offset: int
    b_offset: int


@dataclass(frozen=True)
class AdapterLayout:
    """The flat layout of an adapter: delta W = alpha / rank * B A for each module."""

    rank: int
    alpha: float
    modules: tuple[ModuleSlot, ...]

    @classmethod
    def of(cls, model: PreTrainedModel, rank: int, alpha: float) -> AdapterLayout:
        """Every nn.Linear of the model but its output layer (PEFT's "all-linear").

        Raises:
            BaseModelError: the model has no such layer.
        """
        head = model.get_output_embeddings()
        kinds: dict[tuple[str, int, int], list[tuple[str, nn.Linear]]] = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and module is not head:
                kind = (re.sub(r"\.\d+\.", ".*.", name), module.in_features, module.out_features)
                kinds.setdefault(kind, []).append((name, module))
        if not kinds:
            raise BaseModelError(
                f"{type(model).__name__} has no linear layers to adapt",
                expected="nn.Linear modules in its decoder layers",
                fix="choose another base, for instance a Qwen2.5 or Llama",
            )
        modules, offset = [], 0
        for (_, fan_in, fan_out), members in kinds.items():
            b_start = offset + len(members) * rank * fan_in
            for layer, (name, _) in enumerate(members):
                a_offset, b_offset = offset + layer * rank * fan_in, b_start + layer * rank * fan_out
                modules.append(ModuleSlot(name, fan_in, fan_out, a_offset, b_offset))
            offset = b_start + len(members) * rank * fan_out
        return cls(rank, float(alpha), tuple(modules))

    @property
    def scale(self) -> float:
        """The factor alpha / rank by which B A is multiplied."""
        return self.alpha / self.rank

    @cached_property
    def dimension(self) -> int:
        """Numbers in one row."""
        return sum(self.rank * (slot.in_features + slot.out_features) for slot in self.modules)

    def factors(self, matrix: Tensor, slot: ModuleSlot) -> tuple[Tensor, Tensor]:
        """View rows [..., D] as A [..., rank, in] and B [..., out, rank]."""
        a, b = (self.rank, slot.in_features), (slot.out_features, self.rank)
        return (
            matrix[..., slot.a_offset : slot.a_offset + math.prod(a)].unflatten(-1, a),
            matrix[..., slot.b_offset : slot.b_offset + math.prod(b)].unflatten(-1, b),
        )

    def views(self, row: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """The factors (A [rank, in], B [out, rank]) of each module, sharing memory with row [D]."""
        return {slot.name: self.factors(row, slot) for slot in self.modules}

    def row(self, factors: Mapping[str, tuple[Tensor, Tensor]]) -> Tensor:
        """The row [D] in float32 that holds these factors, the inverse of `views`."""
        row = torch.zeros(self.dimension)
        for name, views in self.views(row).items():
            for view, factor in zip(views, factors[name], strict=True):
                view.copy_(factor)
        return row

    def init_row(self, rng: np.random.Generator) -> Tensor:
        """A newborn [D] in float32 that equals the base: A uniform in +-1/sqrt(in), PEFT's choice, B zero."""
        row = torch.zeros(self.dimension)
        for a, _ in self.views(row).values():
            bound = 1.0 / math.sqrt(a.shape[1])
            a.copy_(torch.from_numpy(rng.uniform(-bound, bound, size=tuple(a.shape))))
        return row

    def to_peft(self, row: Tensor) -> dict[str, Tensor]:
        """A state dict under PEFT's names, sharing memory with row [D]."""
        state = {}
        for name, (a, b) in self.views(row).items():
            state[f"{PEFT_PREFIX}{name}.lora_A.weight"] = a
            state[f"{PEFT_PREFIX}{name}.lora_B.weight"] = b
        return state

    def from_peft(self, state: Mapping[str, Tensor]) -> Tensor:
        """The row [D] in float32 of a PEFT state dict.

        Raises:
            AdapterError: modules are missing or unknown, shapes differ, or a number is not finite.
        """
        row = torch.zeros(self.dimension)
        slots = self.to_peft(row)
        if state.keys() != slots.keys():
            odd = sorted(state.keys() ^ slots.keys())
            raise AdapterError(
                "the adapter does not cover the linear layers of this base model",
                expected=f"{len(slots)} factors, two for each linear layer",
                got=f"{len(state)} factors; first difference {odd[0]}",
                fix="use the base model and the layers that the adapter was trained with",
            )
        for key, target in slots.items():
            if state[key].shape != target.shape:
                raise AdapterError(
                    f"{key} has the wrong shape",
                    expected=f"{list(target.shape)} (rank {self.rank})",
                    got=str(list(state[key].shape)),
                    fix="use the base model and the rank that the adapter was trained with",
                )
            target.copy_(state[key])
        require_finite(row, "the adapter")
        return row

    def to_json(self) -> str:
        """One line that `from_json` reads back; equal layouts give equal text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> AdapterLayout:
        data = json.loads(text)
        return cls(data["rank"], data["alpha"], tuple(ModuleSlot(**slot) for slot in data["modules"]))


def require_finite(values: Tensor, what: str) -> None:
    """Raise AdapterError where a number is NaN or infinite."""
    if not bool(torch.isfinite(values).all()):
        raise AdapterError(
            f"{what} holds numbers that are not finite",
            got=f"{int((~torch.isfinite(values)).sum())} of {values.numel()}",
            fix="take the adapter of an earlier generation; lower the learning rate if training made it",
        )
