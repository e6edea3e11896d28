"""Any base in one word: a folder, a name of the hub, or what a plug-in knows; and the settings that fit it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from populora_core.config.sections import BUNDLED, BaseSection
from populora_core.runs.precision import choose_dtype, weights_size
from populora_core.support.errors import BaseModelError
from populora_core.support.hub import HUB, how_to_get, pinned
from populora_core.support.registry import Registry
from populora_core.support.shipped import shipped
from populora_core.support.user_cache import GGUF


class BaseSource(Protocol):
    """A source of bases beside folders, the hub and the bundled ones.

    Attributes:
        names: short names that it knows.
    """

    names: Collection[str]

    def path(self, name: str, weights: bool) -> str | None:
        """Return `base.path` for what a person named, once the base is there; None for what it does not know.

        Args:
            weights: that they are needed, as by `base_settings`.
        """

    def fix(self, path: str) -> str:
        """Say how to get the base of this path again; nothing for another source's."""


SOURCES = Registry(
    {},
    group="populora.bases",
    what="source of bases",
    setting="--base",
    error=BaseModelError,
    protocol=BaseSource,
)
SMALL = 2.5e9
"""Bytes of weights below which a base follows no long instruction: a billion parameters in half precision."""


def base_settings(name: str, weights: bool = True) -> dict[str, str]:
    """The keys of [base] for a base: a hub's name at its commit, the dialect by the tokenizer, the rest by the machine.

    The end tokens need no setting: they are read from the base wherever it is loaded. A tokenizer that has the
    compact dialect's tokens speaks compact, any other small base assert, and a large one instruct.

    Args:
        weights: that they are needed; a plan takes config.json alone.

    Raises:
        BaseModelError: it is no folder, cannot be fetched, or lacks a part of a checkpoint.
    """
    import torch

    from populora_core.model.base import load_vocabulary
    from populora_core.problems.dialects.compact import SPECIAL_TOKENS

    path = _path(name, weights)
    folder = BaseSection(path=path).folder()
    told = weights or any(folder.glob("tokenizer*"))
    known = load_vocabulary(folder).tokenizer.get_vocab() if told else {}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {
        "path": path,
        "dialect": "compact" if all(token in known for token in SPECIAL_TOKENS) else _spoken(folder),
        "device": device,
        "dtype": choose_dtype("auto", path, device),
    }


def _path(name: str, weights: bool) -> str:
    bundled = name.removeprefix(BUNDLED)
    if name.startswith(BUNDLED) or (
        "/" not in bundled and shipped("base_model", bundled, "config.json").is_file()
    ):
        return BUNDLED + bundled
    place = Path(os.path.expanduser(name))
    if place.is_dir():
        return str(place.resolve())
    found = next(filter(None, (source.path(name, weights) for source in sources())), None)
    if found is None and name.startswith(GGUF):  # no name of the hub
        raise BaseModelError(f"the base {name} is not on this machine", fix=how_to_get_base(name))
    return found or pinned(name.removeprefix(HUB), weights)


def sources() -> list[BaseSource]:
    """The sources of bases that are installed."""
    return [found for name in SOURCES.names() if (found := SOURCES.known(name)) is not None]


def require_base(base: BaseSection) -> None:
    """Raise BaseModelError unless the base's folder is there."""
    folder = base.folder()
    if not folder.is_dir():
        raise BaseModelError(
            f"the base {base.path} is not on this machine",
            expected="a folder with config.json, model weights and a tokenizer; for a plan, config.json alone",
            got=f"no folder {folder}",
            fix=how_to_get_base(base.path),
        )


def how_to_get_base(path: str) -> str:
    """The fix for an error about a base whose folder is not there."""
    if path.startswith(HUB):
        return how_to_get(*path.removeprefix(HUB).split("@"))
    found = sources()
    names = [name for source in found for name in source.names]
    return next(filter(None, (source.fix(path) for source in found)), None) or (
        "give the folder of a transformers checkpoint, or bundled:tiny or bundled:frontier; --base takes names of the "
        f"hub, GGUF files, and {', '.join(names)}"
    )


def _spoken(folder: Path) -> str:
    """The dialect for a base that was not trained for compact: instruct asks for much."""
    return "assert" if weights_size(folder) < SMALL else "instruct"
