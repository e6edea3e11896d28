"""Attention where heads share keys: of one token a row, without copies of them; of many in float32, without all scores.

Where heads share keys (grouped-query attention) a kernel that takes a mask wants them repeated: at every step seven
times the cache of a 7B on a GPU, and on a CPU nine tenths of the time. All heads of a group see the same columns, so
they can stand as the queries of one head.

A GPU's kernels for 16 bits take shared keys where there is no mask. Those for float32 do not: left to itself, torch
would keep all scores [N, H, T, L] of every layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

NAME = "populora_grouped"


def group_queries(model: PreTrainedModel) -> None:
    """Have the model's attention take this way, where it is transformers' `sdpa`; another is left alone."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if model.config._attn_implementation == "sdpa":
        AttentionInterface.register(NAME, grouped_attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        model.set_attn_implementation(NAME)


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Attention of queries [N, H, T, w] to keys and values [N, K, L, w], as transformers asks for it: [N, T, H, w]."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    rows, heads, tokens, width = query.shape
    shared = heads // key.shape[1]
    bare = query.is_cuda and attention_mask is None
    whole = query.dtype == torch.float32
    if bare and whole and shared > 1 and tokens > 1:
        return _causal(module, query, key, value, dropout, scaling), None
    if tokens != 1 or shared == 1 or (bare and not whole) or _of_heads(attention_mask):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **rest
        )
    found = F.scaled_dot_product_attention(
        query.view(rows, -1, shared, width),  # [N, K, heads of a group, w]: the group's heads as tokens
        key,
        value,
        attn_mask=None if attention_mask is None else attention_mask.expand(-1, -1, shared, -1),
        dropout_p=dropout,
        scale=scaling,
    )
    return found.reshape(rows, 1, heads, width), None


def _of_heads(attention_mask: Tensor | None) -> bool:
    """True for a mask that differs by head."""
    return attention_mask is not None and attention_mask.shape[1] != 1


def _causal(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, dropout: float, scaling: float | None
) -> Tensor:
    """Attention of every token to those before it, with keys and values repeated for every head."""
    shared = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(shared, dim=1) for each in (key, value))
    causal = getattr(module, "is_causal", True)
    found = F.scaled_dot_product_attention(
        query, key, value, dropout_p=dropout, is_causal=causal, scale=scaling
    )
    return found.transpose(1, 2).contiguous()


def attention_window(config: PretrainedConfig) -> int | None:
    """Tokens that the narrowest layer looks back over, its own included; None where every layer sees all."""
    text = config.get_text_config()
    if "local" in (getattr(text, "attention_layers", None) or ()):  # GPT-Neo's own words for it
        return getattr(text, "window_size", None)
    kinds = getattr(text, "layer_types", None)
    slides = kinds is None or "sliding_attention" in kinds
    return getattr(text, "sliding_window", None) if slides else None
