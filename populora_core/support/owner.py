"""This user's own folder on this machine, and in it a key that marks what this user made.

A run directory that somebody sent is data: its catalogue is opened only where the user's key marked it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from functools import cache
from pathlib import Path

from populora_core.support.errors import ConfigError
from populora_core.support.keys import made_once
from populora_core.support.user_cache import user_folder

FOLDER = "POPULORA_CONFIG"  # the environment variable that names another folder


def folder() -> Path:
    """The folder of the user's key and answers."""
    try:
        return user_folder(FOLDER, "XDG_CONFIG_HOME", ".config", "populora")
    except ConfigError:  # the user has no home: as in one that is missing, nothing is found and nothing kept
        return Path(os.devnull) / "populora"


def mark(path: Path) -> str:
    """A text that only this user can make of the file's content."""
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").digest()
    return hmac.new(_key(folder()), content, hashlib.sha256).hexdigest()


def mark_of(text: str) -> str:
    """A text that only this user can make of a text."""
    return hmac.new(_key(folder()), b"text " + text.encode(), hashlib.sha256).hexdigest()


@cache
def _key(place: Path) -> bytes:
    path = place / "key"
    try:
        if not path.is_file():
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            made_once(path, secrets.token_bytes(32))
        return path.read_bytes()
    except OSError:  # no home to write to: what this process marks, only this process believes
        return secrets.token_bytes(32)
