"""The precision that `auto` means for a base on this machine, and what to say where a run was begun in another."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal

from populora_core.config.sections import BUNDLED, BaseSection
from populora_core.planning.memory import read_shape
from populora_core.support.devices import CUDA, cpu_has_bfloat16

SMALL = 1e8
"""Bytes of weights below which a CPU gains nothing by bfloat16: its products are too small for it."""

Precision = Literal["float32", "bfloat16"]


class SlowPrecision(UserWarning):
    """A base in bfloat16 on a CPU that has no such products."""


def choose_dtype(wanted: Literal["auto", "float32", "bfloat16"], path: str, device: str) -> Precision:
    """The precision that `base.dtype` means for a base here; a bundled one on a CPU is in float32 for equal results.

    Raises:
        BaseModelError: its size is needed, and neither weights nor config.json give it.
    """
    if wanted != "auto":
        return wanted
    if device == CUDA:
        import torch

        there = torch.cuda.is_available()  # else it is another machine's GPU, of a plan or of a cluster
        emulated = there and not torch.cuda.is_bf16_supported(including_emulation=False)
        return "float32" if emulated else "bfloat16"
    small = path.startswith(BUNDLED) or weights_size(BaseSection(path=path).folder()) < SMALL
    return "float32" if small or not cpu_has_bfloat16() else "bfloat16"


def number_bytes(base: BaseSection) -> int:
    """Bytes of one number of the base, as it would be here."""
    return 4 if choose_dtype(base.dtype, base.path, base.device) == "float32" else 2


def tell_of_precision(base: BaseSection) -> None:
    """Warn where a base in bfloat16 is to compute on a CPU that has to convert every number."""
    if base.device == CUDA or base.dtype != "bfloat16" or cpu_has_bfloat16():
        return
    warnings.warn(
        'base.dtype is "bfloat16", and this CPU does not multiply in it (AVX512-BF16, AMX): every step takes '
        "several times as long, and what is made from here on differs in its last bits from what the other CPU made. "
        'Go on where the run began, or start a new one with base.dtype = "auto"',
        SlowPrecision,
        stacklevel=2,
    )


def weights_size(folder: Path) -> int:
    """Bytes of a base's weights; in half precision by its config.json where they are not there.

    Raises:
        BaseModelError: neither gives it.
    """
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return size or 2 * read_shape(folder, rank=1).parameters
