"""What the learner's and the sampler's benchmarks share: members over the tiny base, by us and by PEFT."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from torch import Tensor

from populora_core.config.sections import REPOSITORY
from populora_core.model.base import BaseModel, load_base
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters

RANK, ALPHA = 8, 16.0
BASE = REPOSITORY / "base_model" / "tiny"


def trained(layout: AdapterLayout, member: int) -> Tensor:
    """A row [D] that differs from the base, so that no product is with zeros."""
    rng = np.random.default_rng(member)
    row = layout.init_row(rng)
    for _, b in layout.views(row).values():
        b.copy_(torch.from_numpy(rng.normal(0.0, 0.01, tuple(b.shape))))
    return row


def ours() -> tuple[BaseModel, StackedAdapters]:
    """The tiny base with stacked adapters, none resident yet."""
    base = load_base(BASE)
    return base, StackedAdapters(base.model, AdapterLayout.of(base.model, RANK, ALPHA))


def by_peft(members: int) -> Any:
    """The tiny base as a PeftModel with the same members, named as numbers."""
    model = load_base(BASE).model
    layout = AdapterLayout.of(model, RANK, ALPHA)
    config = LoraConfig(
        r=RANK, lora_alpha=int(ALPHA), target_modules=[slot.name for slot in layout.modules], lora_dropout=0.0
    )
    wrapped = get_peft_model(model, config, adapter_name="0")
    for member in range(members):
        if member:
            wrapped.add_adapter(str(member), config)
        set_peft_model_state_dict(wrapped, layout.to_peft(trained(layout, member)), adapter_name=str(member))
    wrapped.set_adapter("0")
    return wrapped
