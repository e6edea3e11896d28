"""Checkpoint folders of randomly initialised Qwen2 models with the bundled tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from populora_core.support.shipped import REPOSITORY

TINY = REPOSITORY / "base_model" / "tiny"


def write_random_base(folder: Path, dtype: torch.dtype = torch.float32, **shape: int) -> None:
    """A base with tied embeddings and a context of 32,768 tokens.

    Args:
        shape: the rest of its config.json; with a larger vocabulary than the tokenizer's most tokens have no text.
    """
    config = AutoConfig.for_model(
        "qwen2",
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        **shape,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config, dtype=dtype).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, folder)
