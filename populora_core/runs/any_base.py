"""Any base in one word: a folder, a bundled name or a name of the hub, and the settings that fit it and the machine."""

from __future__ import annotations

from pathlib import Path

from populora_core.config.sections import BUNDLED, BaseSection
from populora_core.support.hub import pinned
from populora_core.support.shipped import shipped


def base_settings(name: str) -> dict[str, str]:
    """The keys of [base] for a base: a hub's name at its commit, the dialect by the tokenizer, the rest by the machine.

    The end tokens need no setting: they are read from the base wherever it is loaded. A tokenizer that has the
    compact dialect's tokens speaks compact, any other instruct.

    Raises:
        BaseModelError: it is no folder, cannot be fetched, or lacks a part of a checkpoint.
    """
    import torch

    from populora_core.model.base import load_vocabulary
    from populora_core.problems.dialects.compact import SPECIAL_TOKENS

    path = _path(name)
    known = load_vocabulary(BaseSection(path=path).folder()).tokenizer.get_vocab()
    cuda = torch.cuda.is_available()
    return {
        "path": path,
        "dialect": "compact" if all(token in known for token in SPECIAL_TOKENS) else "instruct",
        "device": "cuda" if cuda else "cpu",
        "dtype": "bfloat16" if cuda and torch.cuda.is_bf16_supported() else "float32",
    }


def _path(name: str) -> str:
    bundled = name.removeprefix(BUNDLED)
    if name.startswith(BUNDLED) or (
        "/" not in bundled and shipped("base_model", bundled, "config.json").is_file()
    ):
        return BUNDLED + bundled
    folder = Path(name).expanduser()
    return str(folder.resolve()) if folder.is_dir() else pinned(name)
