"""Folders of the user's, kept between runs; and the cache among them, whose bases are made again if lost."""

from __future__ import annotations

import os
from pathlib import Path

from populora_core.support.errors import ConfigError

GGUF = "gguf:"
"""Prefix of a base model's path `gguf:NAME@SHA256`, the sha256 that of the GGUF file."""
FOLDER_VARIABLE = "POPULORA_CACHE"


def user_folder(variable: str, standard: str, default: str, name: str) -> Path:
    """The folder that a variable names, or `name` where the user keeps such things.

    Args:
        standard: the variable of the XDG specification that names that place.
        default: that place below the user's home, where no variable names it.

    Raises:
        ConfigError: neither variable is set, and the user has no home.
    """
    if named := os.environ.get(variable):
        return Path(named)
    try:
        return Path(os.environ.get(standard) or Path.home() / default) / name
    except RuntimeError as error:
        raise ConfigError(
            f"this user has no home folder, and {variable} names no other place",
            expected=f"HOME, {standard} or {variable} in the environment",
            fix=f"set {variable} to a folder that you may write to",
        ) from error


def user_cache() -> Path:
    """$POPULORA_CACHE, or populora among the user's caches; ConfigError as of `user_folder`."""
    return user_folder(FOLDER_VARIABLE, "XDG_CACHE_HOME", ".cache", "populora")


def dequantised_folder(path: str) -> Path:
    """The folder of the checkpoint made from a GGUF file; it need not exist."""
    name, _, sha256 = path.removeprefix(GGUF).rpartition("@")
    return user_cache() / "bases" / f"{name}-{sha256[:16]}"
