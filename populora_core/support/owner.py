"""What this user keeps on this machine: a key, and the code that runs may name.

A run directory that somebody sent is data. Its catalogue is opened only where the user's key marked it, and a place
"package.module:name" in its record is imported only where the user named it first.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
import os
import secrets
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from populora_core.support.durable import write_atomically
from populora_core.support.errors import ConfigError

FOLDER = "POPULORA_CONFIG"  # the environment variable that names another folder
_TRUSTED = "trusted.json"  # {"package.module:name": file of the top package}

_received: set[str] = set()
_opened = False  # whether this process has read data of a run: from then on, rows may name code too


def folder() -> Path:
    """Where the user's key and answers lie."""
    above = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(os.environ.get(FOLDER) or Path(above) / "populora")


def mark(path: Path) -> str:
    """A text that only this user can make of the file's content."""
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").digest()
    return hmac.new(_key(folder()), content, hashlib.sha256).hexdigest()


@cache
def _key(place: Path) -> bytes:
    path = place / "key"
    try:
        if path.is_file():
            return path.read_bytes()
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = place / f"key.{secrets.token_hex(8)}"
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
        try:
            os.link(made, path)  # whoever is first wins, and the file is whole when it appears
        except FileExistsError:
            pass
        finally:
            made.unlink()
        return path.read_bytes()
    except OSError:  # no home to write to: what this process marks, only this process believes
        return secrets.token_bytes(32)


def receive(places: Iterable[str]) -> None:
    """Note that a run was opened, whose record names these places: none is imported that the user did not name."""
    global _opened
    _opened = True
    _received.update(places)


def forget() -> None:
    """Forget which runs this process opened."""
    global _opened
    _opened = False
    _received.clear()


def remember(places: Iterable[str]) -> None:
    """Note that the user's own configuration names these places, save those that only a record named."""
    new = {place: _origin(place) for place in places if place not in _received}
    _write(new)


def require_trusted(place: str) -> None:
    """Raise ConfigError where only a run names the place, or its code lies elsewhere than it did."""
    if not _opened or _trusted().get(place, "") == _origin(place) != "":
        return
    raise ConfigError(
        f"a run names code that you have not named yourself: {place}",
        expected="a place that a configuration of yours named on this machine",
        got=f"a name in the run's record; {_origin(place) or 'no module'} would be imported",
        fix=f"read that code; if you trust it, run the same command with POPULORA_TRUST={place}",
    )


def _trusted() -> dict[str, str]:
    named = [place for place in os.environ.get("POPULORA_TRUST", "").split(",") if place]
    try:
        kept = json.loads((folder() / _TRUSTED).read_text())
    except (OSError, ValueError):
        kept = {}
    known = {str(key): str(value) for key, value in kept.items()} if isinstance(kept, dict) else {}
    new = {place: _origin(place) for place in named}  # named again after its code moved: that code is meant
    _write(new)
    return known | new


def _write(new: dict[str, str]) -> None:
    if not new:
        return
    path = folder() / _TRUSTED
    try:
        kept = json.loads(path.read_text()) if path.is_file() else {}
        if kept | new == kept:
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, json.dumps(kept | new, indent=1, sort_keys=True) + "\n")
    except (OSError, ValueError, TypeError):  # no home to write to: the question comes again
        return


def _origin(place: str) -> str:
    """The file of the place's top package, found without importing anything."""
    top = place.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return ""
    if spec is None:
        return ""
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "")
