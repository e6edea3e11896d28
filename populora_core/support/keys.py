"""Keys that what we serve asks for: drawn at random, readable by their owner alone."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from populora_core.support.errors import ConfigError


def new_key() -> str:
    return secrets.token_urlsafe(24)


def made_once(path: Path, content: bytes) -> None:
    """Make a file that only its owner can read, whole when it appears; of several makers the first wins."""
    handle, made = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        with suppress(FileExistsError):
            os.link(made, path)
    finally:
        os.unlink(made)


def kept_key(path: Path) -> str:
    """The key in this file, made when there is none; only its owner can read it.

    Raises:
        ConfigError: it is no plain file, or is empty.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made_once(path, new_key().encode())
    key = path.read_text().strip() if path.is_file() else ""
    if not key:
        raise ConfigError(
            f"{path} holds no key",
            expected="a plain file with a key in it, or nothing there",
            got="an empty file" if path.is_file() else "no plain file",
            fix="remove it, or name another file; a key is made there",
        )
    path.chmod(0o600)
    return key
