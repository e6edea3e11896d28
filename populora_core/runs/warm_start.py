"""Warm start: founders that take their adapter from an existing PEFT folder instead of being newborn.

What a source holds is recorded as a digest when the run begins, and is an input of the stage `found`. Its place
is not: once the population is founded, the folder may go.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from populora_core.store.adapters import ADAPTER_FILES
from populora_core.support import ids
from populora_core.support.digest import file_sha256
from populora_core.support.errors import AdapterError

if TYPE_CHECKING:
    from populora_core.config.load import Config

OPERATOR = "warm_start"


def start_folders(config: Config) -> dict[str, Path]:
    """member_id -> the PEFT folder that this founder starts from; a newborn founder is not in it."""
    start, sizes = config.adapters.start_from, config.population
    given = {
        "teacher": (start.teachers, sizes.teachers),
        "student": (start.students, sizes.students),
        "solo": (start.solo, sizes.solo),
    }
    return {
        ids.member_id(role, slot, 0, ids.digits(size)): Path(os.path.expanduser(folder))
        for role, (folders, size) in given.items()
        for slot, folder in enumerate(folders)
    }


def require_files(folder: Path) -> None:
    """Raise AdapterError unless the folder has both files of a PEFT adapter; reads neither."""
    missing = [name for name in ADAPTER_FILES if not (folder / name).is_file()]
    if missing:
        raise AdapterError(
            f"{folder} holds no PEFT adapter",
            expected="a folder with " + " and ".join(ADAPTER_FILES),
            got="without " + " and ".join(missing) if folder.is_dir() else "no such folder",
            fix="give a folder that populora export or PEFT's save_pretrained wrote",
        )


def start_digests(config: Config) -> dict[str, str]:
    """member_id -> sha256 over the files of the adapter that this founder starts from.

    Raises:
        AdapterError: a folder holds no adapter.
    """
    return {member: _digest(folder) for member, folder in start_folders(config).items()}


def require_unchanged(folders: Mapping[str, Path], digests: Mapping[str, str]) -> None:
    """Raise AdapterError unless every folder holds what was recorded when the run began."""
    for member, folder in folders.items():
        came = _digest(folder)
        if came != digests.get(member):
            raise AdapterError(
                f"the adapter in {folder}, from which {member} starts, is not the one that this run began with",
                expected=f"files with digest {digests.get(member, 'none')[:12]}",
                got=came[:12],
                fix="restore the old files; for the new ones start a new run",
            )


def _digest(folder: Path) -> str:
    require_files(folder)
    total = hashlib.sha256()
    for name in ADAPTER_FILES:
        total.update(f"{name} {file_sha256(folder / name)}\n".encode())
    return total.hexdigest()
