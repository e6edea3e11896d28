"""Settings of a GGUF file that transformers does not carry over to a checkpoint, which would be another model's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora_core.support.errors import BaseModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

UNSCALED = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0.0, 1.0),
    "rope.scale_linear": (0.0, 1.0),
}
"""Setting -> values under which positions are not scaled."""
FREQUENCIES = ("rope_freqs", "rope_factors_")
"""Beginnings of the names of tensors that scale positions."""
WINDOW, CONTEXT = "attention.sliding_window", "context_length"
BEGINS = "tokenizer.ggml.add_bos_token"
ASKED = (*UNSCALED, WINDOW, CONTEXT, BEGINS)


@dataclass(frozen=True, slots=True)
class Header:
    """The part of a GGUF file before its weights.

    Attributes:
        settings: those that are asked for here, by name; of the architecture without its name before them.
        tensors: names.
    """

    settings: Mapping[str, Any]
    tensors: tuple[str, ...]


def read_header(file: Path) -> Header:
    """The header of a GGUF file; the library raises whatever it likes for a file that is none."""
    from gguf import GGUFReader

    reader = GGUFReader(file)
    before = f"{reader.fields['general.architecture'].contents()}."
    fields = {name.removeprefix(before): field for name, field in reader.fields.items()}
    settings = {name: fields[name].contents() for name in ASKED if name in fields}
    return Header(settings, tuple(tensor.name for tensor in reader.tensors))


def require_carried(file: Path, header: Header, config: PreTrainedConfig) -> None:
    """Raise BaseModelError where the file scales positions or has a sliding window, and its checkpoint would not.

    Args:
        config: of the checkpoint, as transformers makes it of the file.
    """
    text = config.get_text_config()
    lost = [*_window(header, getattr(text, "sliding_window", None))]
    if not _scales(getattr(text, "rope_parameters", None) or {}):
        lost += _scaling(header)
    if lost:
        raise BaseModelError(
            f"{file} would become another model: transformers does not carry over all that it says of positions",
            expected="a file without scaled positions and without a sliding window shorter than its context",
            got=", ".join(lost),
            fix="give the original checkpoint by --base, as a name of the hub or as a folder",
        )


def begin_as_told(tokenizer: PreTrainedTokenizerBase, header: Header) -> None:
    """Have the tokenizer put its first token before a text, or not, as the file says; transformers passes that over."""
    begins = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    if header.settings.get(BEGINS, begins) != begins:
        tokenizer.add_bos_token = not begins


def _scaling(header: Header) -> Iterator[str]:
    """Settings and tensors by which the file scales positions."""
    for name, unscaled in UNSCALED.items():
        if (value := header.settings.get(name, unscaled[0])) not in unscaled:
            yield f"{name} = {value}"
    yield from (name for name in header.tensors if name.startswith(FREQUENCIES))


def _scales(rope: Mapping[str, Any]) -> bool:
    """True if a checkpoint's configuration scales positions, in all layers or in those of one type."""
    kinds = [rope, *(each for each in rope.values() if isinstance(each, Mapping))]
    return any(each.get("rope_type", "default") != "default" for each in kinds)


def _window(header: Header, carried: int | None) -> Iterator[str]:
    """The file's sliding window, where it hides part of the context and is not the checkpoint's."""
    window = header.settings.get(WINDOW) or None
    if window not in (None, carried) and window < header.settings.get(CONTEXT, window + 1):
        yield f"{WINDOW} = {window}"
