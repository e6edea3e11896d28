"""Published PEFT folders: whole or not."""

from __future__ import annotations

from pathlib import Path

from populora_core.store.manifest import file_sha256

ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")


def adapter_intact(folder: Path, sha256: str) -> bool:
    """Whether the folder holds an adapter whose weights file has the recorded sha256."""
    weights, config = (folder / name for name in ADAPTER_FILES)
    return config.is_file() and weights.is_file() and file_sha256(weights) == sha256
