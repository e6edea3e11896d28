"""The user's cache, kept between runs and made again if lost: bases that were read from GGUF files."""

from __future__ import annotations

import os
from pathlib import Path

GGUF = "gguf:"
"""Prefix of a base model's path `gguf:NAME@SHA256`, the sha256 that of the GGUF file."""
FOLDER_VARIABLE = "POPULORA_CACHE"


def user_cache() -> Path:
    """$POPULORA_CACHE, or populora among the user's caches."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "populora"


def dequantised_folder(path: str) -> Path:
    """The folder of the checkpoint made from a GGUF file; it need not exist."""
    name, _, sha256 = path.removeprefix(GGUF).rpartition("@")
    return user_cache() / "bases" / f"{name}-{sha256[:16]}"
