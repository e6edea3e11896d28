"""Any base in one word: a folder, a GGUF file, a short name, a name of the hub; and the settings that fit it."""

from __future__ import annotations

from pathlib import Path

from populora_core.config.sections import BUNDLED, BaseSection
from populora_core.model.gguf import dequantised, is_gguf
from populora_core.planning.memory import read_shape
from populora_core.runs.named_bases import NAMED, named_base
from populora_core.runs.precision import choose_dtype
from populora_core.support.hub import pinned
from populora_core.support.shipped import shipped

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
    place = Path(name).expanduser()
    if place.is_dir():
        return str(place.resolve())
    if name in NAMED:
        return named_base(name)
    return dequantised(place) if is_gguf(place) else pinned(name, weights)


def _spoken(folder: Path) -> str:
    """The dialect for a base that was not trained for compact: instruct asks for much."""
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    size = size or 2 * read_shape(folder, rank=1).parameters
    return "assert" if size < SMALL else "instruct"
