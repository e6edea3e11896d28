"""Opening a sampler: which engine `auto` means here, and what to do where the chosen one is missing."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from populora_core.support.errors import ConfigError
from populora_core.support.registry import Registry

if TYPE_CHECKING:
    from populora_core.model.base import Vocabulary
    from populora_core.model.stacked import StackedAdapters
    from populora_core.sampler.requests import Sampler
    from populora_core.sampler.spec import ModelSpec

Engine = Literal["torch", "vllm"]
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM's max_lora_rank may be

ENGINES = Registry({}, group="populora.engines", what="engine", setting="sampler.engine", error=ConfigError)
"""Name -> a function of a `ModelSpec` and a `Vocabulary` that opens a sampler with a base of its own."""


def choose_engine(wanted: Literal["auto", "torch", "vllm"], device: str, bits: int = 16) -> Engine:
    """The engine that `sampler.engine` means on this machine. Imports nothing heavy.

    Raises:
        ConfigError: vllm is chosen and not installed, or the learner's base is rounded (`base.bits`).
    """
    if wanted == "vllm" and bits != 16:
        raise ConfigError(
            f"vLLM would serve the base as it is, and members learn over one in {bits} bits",
            expected="one base for sampler and learner",
            got='sampler.engine = "vllm"',
            fix='set sampler.engine = "torch", or base.bits = 16',
        )
    # By module: the CPU build has another distribution name.
    installed = find_spec("vllm") is not None and "vllm" in ENGINES.names()
    if wanted == "vllm" and not installed:
        raise ConfigError(
            'sampler.engine is "vllm", which is not installed here',
            expected="the Python package vllm beside this project",
            fix='pip install -e ".[vllm]" on a GPU machine, make vllm on a CPU, or sampler.engine = "torch"',
        )
    if wanted == "auto":
        return "vllm" if installed and device == "cuda" and bits == 16 else "torch"
    return wanted


def scored_in(engine: str, dtype: str) -> str:
    """The precision of the numbers that an engine gives texts over a base in `dtype`.

    The torch sampler serves the learner's own tensors, and scores in float32 whatever they are kept in: its proof is
    whole at every load. vLLM computes as it is set up.
    """
    return "float32" if engine == "torch" else dtype


def open_sampler(spec: ModelSpec, vocabulary: Vocabulary, stacked: Callable[[], StackedAdapters]) -> Sampler:
    """The sampler that `spec` asks for, with no adapter resident.

    Args:
        stacked: the learner's adapters over its base, which the torch sampler shares. Called for that engine
            alone: vllm holds a base of its own.

    Raises:
        ConfigError: vllm is chosen and not installed.
    """
    if choose_engine(spec.sampler.engine, spec.base.device, spec.base.bits) == "torch":
        from populora_core.sampler.torch_sampler import TorchSampler

        return TorchSampler(stacked(), vocabulary.stop_ids, rows=spec.sampler.rows, decode=vocabulary.text)
    opened: Sampler = ENGINES.find(spec.sampler.engine)(spec, vocabulary)
    return opened
