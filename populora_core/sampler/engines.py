"""Opening a sampler: which engine `auto` means here, and what to do where the chosen one is missing."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from populora_core.sampler.requests import Sampler
from populora_core.support.devices import CUDA
from populora_core.support.errors import ConfigError
from populora_core.support.registry import Registry

if TYPE_CHECKING:
    from populora_core.config.sections import BaseSection
    from populora_core.model.base import Vocabulary
    from populora_core.model.stacked import StackedAdapters
    from populora_core.sampler.spec import ModelSpec

TORCH, VLLM, AUTO = "torch", "vllm", "auto"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM's max_lora_rank may be

ENGINES = Registry(
    {TORCH: "populora_core.sampler.torch_sampler:open_torch"},
    group="populora.engines",
    what="engine",
    setting="sampler.engine",
    error=ConfigError,
    makes=Sampler,
)
"""Name -> a function of a `ModelSpec`, a `Vocabulary` and the learner's adapters that opens a sampler.

The learner's adapters over its base are made when they are called for. A sampler may serve them, as torch's does; one
with its own base, as vLLM's, ignores them.
"""


def choose_engine(wanted: str, base: BaseSection, dtype: str) -> str:
    """The engine that `sampler.engine` means on this machine. Imports nothing heavy.

    Args:
        dtype: the precision of the base here.

    Raises:
        ConfigError: vllm is chosen and not installed, or cannot serve this precision on a GPU; or the learner's base
            is rounded (`base.bits`) and the engine has a base of its own.
    """
    device, bits = base.device, base.bits
    if wanted not in (AUTO, TORCH) and bits != 16:
        raise ConfigError(
            f"{wanted} would serve the base as it is, and members learn over one in {bits} bits",
            expected="one base for sampler and learner",
            got=f'sampler.engine = "{wanted}"',
            fix='set sampler.engine = "torch", or base.bits = 16',
        )
    # By module: the CPU build has another distribution name.
    installed = find_spec(VLLM) is not None and VLLM in ENGINES.names()
    if wanted == VLLM and not installed:
        raise ConfigError(
            'sampler.engine is "vllm", which is not installed here',
            expected="the Python package vllm beside this project",
            fix='pip install -e ".[vllm]" on a GPU machine, make vllm on a CPU, or sampler.engine = "torch"',
        )
    half = dtype == "bfloat16"  # vLLM's kernels for adapters take no float32 on a GPU
    if wanted == VLLM and device == CUDA and not half:
        raise ConfigError(
            "vLLM does not serve adapters in float32 on a GPU",
            expected='base.dtype = "bfloat16"',
            got=dtype,
            fix='set base.dtype = "bfloat16", or sampler.engine = "torch"',
        )
    if wanted == AUTO:
        return VLLM if installed and device == CUDA and bits == 16 and half else TORCH
    return wanted


def scored_in(engine: str, dtype: str) -> str:
    """The precision of the numbers that an engine gives texts over a base in `dtype`.

    The torch sampler serves the learner's own tensors, and scores in float32 whatever they are kept in: its proof is
    whole at every load. Another engine computes as it is set up.
    """
    return "float32" if engine == TORCH else dtype


def open_sampler(spec: ModelSpec, vocabulary: Vocabulary, stacked: Callable[[], StackedAdapters]) -> Sampler:
    """The sampler that `spec` asks for, with no adapter resident.

    Args:
        stacked: the learner's adapters over its base (see `ENGINES`).

    Raises:
        ConfigError: the engine is not installed.
    """
    engine = choose_engine(spec.sampler.engine, spec.base, spec.base.dtype)
    opened: Sampler = ENGINES.make(engine, spec, vocabulary, stacked)
    return opened
