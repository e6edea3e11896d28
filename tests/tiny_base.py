"""A tiny random Qwen2 in memory, and adapters for it that change what it says."""

from __future__ import annotations

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from populora_core.learner.layout import AdapterLayout

VOCABULARY = 23
torch.set_num_threads(1)  # matrices this small lose time to threads, and their bits depend on the count


def tiny_model(dtype: torch.dtype = torch.float32, vocabulary: int = VOCABULARY) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.25,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = Qwen2ForCausalLM(config)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.2)
    return model.to(dtype).requires_grad_(False).eval()


def layout_of(model: Qwen2ForCausalLM, rank: int = 4) -> AdapterLayout:
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
