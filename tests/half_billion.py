"""A randomly initialised base of half a billion parameters with Qwen2.5-0.5B's shapes, and a run on it."""

from __future__ import annotations

from pathlib import Path

import torch
from random_base import write_random_base

CONFIG = """
[run]
generations = 2

[base]
path = "{base}"
dtype = "bfloat16"

[population]
teachers = 2
students = 2

[propose]
per_type = 2
references = [0, 0]
max_tokens = 4

[solve]
attempts = 2
max_tokens = 4

[update]
token_budget = 128

[evolve]
every = 1
last_share = 0.0
minimum_age = 1

[compute]
shards = 1
threads = 2
"""


def write_base(folder: Path) -> None:
    """A checkpoint folder in bfloat16."""
    write_random_base(
        folder,
        torch.bfloat16,
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
    )


def write_config(path: Path, base: Path) -> None:
    """A run of two generations with the smallest counts."""
    path.write_text(CONFIG.format(base=base))
