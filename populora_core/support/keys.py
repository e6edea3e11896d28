"""Keys that what we serve asks for: drawn at random, readable by their owner alone."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path


def new_key() -> str:
    return secrets.token_urlsafe(24)


def kept_key(path: Path) -> str:
    """The key in this file, made when there is none; only its owner can read it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=path.parent)  # whole before it has its name
        with open(handle, "w") as file:
            file.write(new_key())
        with suppress(FileExistsError):
            os.link(made, path)
        os.unlink(made)
    path.chmod(0o600)
    return path.read_text().strip()
