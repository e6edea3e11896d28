"""A tiny random Qwen2 (or Qwen3, or Llama) in memory, and adapters for it that change what it says."""

from __future__ import annotations

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from populora_core.learner.rows import TrainingRow
from populora_core.model.layout import AdapterLayout

VOCABULARY = 23
torch.set_num_threads(1)  # matrices this small lose time to threads, and their bits depend on the count


def tiny_model(
    dtype: torch.dtype = torch.float32,
    vocabulary: int = VOCABULARY,
    architecture: str = "qwen2",
    tied: bool = True,
    **settings: object,
) -> PreTrainedModel:
    """A frozen model with the same weights at every call.

    Args:
        settings: what its configuration has instead, or beside.
    """
    usual: dict[str, object] = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16 if architecture == "qwen3" else 8,  # free of hidden_size / heads there
        "max_position_embeddings": 128,
        "initializer_range": 0.25,
        "tie_word_embeddings": tied,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": 1,
        "attn_implementation": "sdpa",
    }
    config = AutoConfig.for_model(architecture, **{**usual, **settings})
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = AutoModelForCausalLM.from_config(config)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.2)
    return model.to(dtype).requires_grad_(False).eval()


def layout_of(model: PreTrainedModel, rank: int = 4) -> AdapterLayout:
    return AdapterLayout.of(model, rank=rank, alpha=2.0 * rank)


def random_rows(layout: AdapterLayout, *members: str, seed: int = 5) -> dict[str, torch.Tensor]:
    """An adapter for each member, with B far from zero."""
    rows = {}
    for index, member in enumerate(members):
        rng = np.random.default_rng([seed, index])
        rows[member] = layout.init_row(rng)
        for _, b in layout.views(rows[member]).values():
            b.copy_(torch.from_numpy(rng.normal(0.0, 0.1, size=tuple(b.shape))))
    return rows


def training_rows(
    problems: dict[str, int], longest: int = 9, seed: int = 0, texts: int = 0
) -> list[TrainingRow]:
    """Each member's problems with four attempts: shared prompts, zero and null advantages, two temperatures.

    Args:
        texts: of a corpus, for each member.
    """
    rng = np.random.default_rng(seed)

    def ids() -> tuple[int, ...]:
        return tuple(int(token) for token in rng.integers(2, VOCABULARY, int(rng.integers(1, longest))))

    rows = []
    for member, count in problems.items():
        for _ in range(count):
            prompt = ids()
            for attempt in range(4):
                completion = ids()
                old = tuple(float(value) for value in rng.normal(-3.0, 0.3, len(completion)))
                advantage = [0.0, None, *rng.normal(size=2)][attempt]
                rows.append(TrainingRow(member, prompt, completion, old, advantage, [1.0, 0.7][attempt % 2]))
    for member in problems:
        rows += [TrainingRow(member, ids(), ids(), (), 1.0, supervised=True) for _ in range(texts)]
    return rows
