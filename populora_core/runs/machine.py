"""The machine against a configuration, before anything starts: its device, its driver, its speed."""

from __future__ import annotations

import importlib.util
import os
import re
import time
from pathlib import Path
from typing import Any

from populora_core.config.load import Config
from populora_core.planning.duration import Rates
from populora_core.runs.precision import Precision
from populora_core.support.devices import CUDA, CUDA_13_DRIVER, gpus, major, require_gpus
from populora_core.support.errors import ConfigError
from populora_core.support.revision import version_of

SIDE = 1024  # of the matrices whose product tells a CPU's rate
PROBE_SECONDS = 0.3


def require_device(config: Config) -> None:
    """Raise ConfigError where this machine has no device that the configuration names, as it has to be used."""
    if config.base.device != CUDA or not config.compute.here:
        return
    build, found = cuda_build(), gpus()
    otherwise = 'or set base.device = "cpu"; populora doctor tells what this machine has'
    if build is None:
        raise ConfigError(
            "base.device is cuda, and the installed torch is built without CUDA",
            expected="a build of torch for CUDA",
            got=f"torch {version_of('torch') or 'is not installed'}",
            fix=f"install a CUDA build, as docs/how-to.md says, {otherwise}",
        )
    if not found and "CUDA_VISIBLE_DEVICES" not in os.environ:
        raise ConfigError(
            "base.device is cuda, and this machine has no GPU",
            expected="a GPU that nvidia-smi names",
            got="none",
            fix=f"run on a machine with one, {otherwise}",
        )
    old = [gpu for gpu in found if major(gpu.driver) < CUDA_13_DRIVER]
    if old and major(build) >= 13:
        raise ConfigError(
            f"the driver of {old[0].name} is too old for the installed torch, which is built for CUDA {build}",
            expected=f"driver {CUDA_13_DRIVER} or newer",
            got=f"driver {old[0].driver}",
            fix="update the driver, or install the cu129 build of torch as docs/how-to.md says",
        )
    require_gpus(gpus_of(config))


def gpus_of(config: Config) -> int:
    """Number of GPUs that a run takes on this machine: those of every shard, or of one where they take turns."""
    shards = 1 if config.compute.backend == "inline" else config.compute.shards
    return shards * config.sampler.tensor_parallel


def cuda_build() -> str | None:
    """The version of CUDA that torch is built for, read without importing it; None for none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    told = Path(spec.origin).with_name("version.py").read_text()
    found = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", told, re.MULTILINE)
    return found[1] if found else None


def cpu_rates(precision: Precision = "float32") -> Rates:
    """The rates of this machine's cores together, tried for half a second: products in the precision, and copies."""
    import numpy as np

    factor: Any = np.random.default_rng(0).standard_normal((SIDE, SIDE), dtype=np.float32)
    if precision == "bfloat16":  # NumPy has none; torch takes seconds to import
        import torch

        factor = torch.from_numpy(factor).bfloat16()
    store, times = np.ones(1 << 25, dtype=np.uint8), {"products": 0, "copies": 0}
    for what in times:
        ends = time.perf_counter() + PROBE_SECONDS
        while time.perf_counter() < ends:
            factor @ factor if what == "products" else store.copy()
            times[what] += 1
    return Rates(
        times["products"] * 2.0 * SIDE**3 / PROBE_SECONDS, times["copies"] * 2.0 * len(store) / PROBE_SECONDS
    )
