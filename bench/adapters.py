"""Common parts of the benchmarks of learner and sampler: shapes, rows to train on, members by us and by PEFT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from populora_core.learner.rows import TrainingRow
from populora_core.model.base import BaseModel, load_base
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters

RANK, ALPHA = 8, 16.0
BASE = Path(__file__).resolve().parents[1] / "base_model" / "tiny"
QWEN_7B: dict[str, Any] = {  # widths of Qwen2.5-7B, from its published config.json
    "model_type": "qwen2",
    "vocab_size": 152_064,
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": False,
}
Between = tuple[int, int]  # tokens, shortest and longest


def drawn_ids(rng: np.random.Generator, between: Between, vocabulary: int) -> tuple[int, ...]:
    return tuple(rng.integers(2, vocabulary, rng.integers(*between)).tolist())


def training_rows(
    members: int, vocabulary: int, problems: int, attempts: int, prompt: Between, completion: Between
) -> list[TrainingRow]:
    """The same problems and attempts whatever the number of members; a problem's attempts are one member's."""
    rng = np.random.default_rng(0)
    rows = []
    for problem in range(problems):
        asked = drawn_ids(rng, prompt, vocabulary)
        for _ in range(attempts):
            answer = drawn_ids(rng, completion, vocabulary)
            logprobs = tuple(rng.normal(-3.0, 0.5, len(answer)).tolist())
            member = str(problem * members // problems)
            rows.append(TrainingRow(member, asked, answer, logprobs, float(rng.normal())))
    return rows


def trained(layout: AdapterLayout, member: int) -> Tensor:
    """A row [D] that differs from the base, so that no product is with zeros."""
    generator = torch.Generator().manual_seed(member)
    return torch.empty(layout.dimension).normal_(std=0.01, generator=generator)


def ours(folder: Path = BASE, dtype: str = "float32") -> tuple[BaseModel, StackedAdapters]:
    """A base, the tiny one unless said, with stacked adapters, none resident yet."""
    base = load_base(folder, dtype)
    return base, StackedAdapters(base.model, AdapterLayout.of(base.model, RANK, ALPHA))


def by_peft(members: int, folder: Path = BASE, dtype: str = "float32") -> Any:
    """The same base as a PeftModel with the same members, named as numbers."""
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

    model = load_base(folder, dtype).model
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
