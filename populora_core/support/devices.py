"""One GPU is never given to two runs: whoever puts a model on it holds its lock until its workers end.

The lock is a file lock of the machine, so that it goes when its holder goes, however that ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import os
import platform
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from populora_core.support.errors import ConfigError

if TYPE_CHECKING:
    import torch

CUDA = "cuda"
CUDA_13_DRIVER = 580  # the first branch of drivers for CUDA 13
POLL_SECONDS = 1.0
LOCKS = "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()
"""The folder of the GPUs' locks: one for all runs of the machine, whatever TMPDIR they have."""
MEMINFO = Path("/proc/meminfo")


class DeviceBusy(UserWarning):
    """A run waits for a GPU that another run holds."""


@contextmanager
def hold_device(device: str, count: int = 1) -> Iterator[None]:
    """Hold the first visible GPUs against other runs on this machine, waiting until they are free.

    Args:
        device: as base.device says; what is no GPU needs no lock.
        count: of the GPUs.

    Raises:
        ConfigError: fewer are visible.
    """
    if device != CUDA:
        yield
        return
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # CUDA's own order is not nvidia-smi's
    require_gpus(count)
    with ExitStack() as held:
        # In the order of their names, so that two runs never wait for each other.
        for name in sorted(gpu_name(visible) for visible in visible_gpus()[:count]):
            held.enter_context(_held(name))
        yield


def visible_gpus() -> list[str]:
    """The GPUs that this process sees, by the names that CUDA_VISIBLE_DEVICES takes; one where nothing tells."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:  # CUDA ignores every name from the first invalid one on, such as -1
        names = (name.strip() for name in listed.split(","))
        return list(takewhile(lambda name: name and not name.startswith("-"), names))
    return _asked("--query-gpu=index").split() or ["0"]


def require_gpus(count: int) -> None:
    """Raise ConfigError unless so many GPUs are visible."""
    visible = visible_gpus()
    if not visible:
        raise ConfigError(
            "base.device is cuda, and CUDA_VISIBLE_DEVICES hides every GPU",
            got=f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r}",
            fix='name the GPUs to use in it, or set base.device = "cpu"',
        )
    if count > len(visible):
        raise ConfigError(
            "there are more shards than GPUs, and two bases on one GPU would share its memory",
            expected=f"compute.shards of at most {len(visible)}, the GPUs that are visible, with "
            "sampler.tensor_parallel GPUs each",
            got=str(count),
            fix="lower compute.shards; for a run: populora fork RUN --generation LAST --to NEW --set compute.shards=N. "
            "Where nvidia-smi is missing, name the GPUs in CUDA_VISIBLE_DEVICES",
        )


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, as the driver's tool describes it; memory in GiB, and not a number where it does not say."""

    name: str
    driver: str
    capability: float
    free: float
    total: float


def gpus(first: int = 0) -> list[Gpu]:
    """List this machine's GPUs, or the first visible ones; empty if the driver's tool does not answer."""
    found = []
    chosen = [f"--id={','.join(visible_gpus()[:first])}"] if first else []
    told = _asked("--query-gpu=name,driver_version,compute_cap,memory.free,memory.total", *chosen)
    for line in told.splitlines():
        name, driver, *figures = (part.strip() for part in line.split(","))
        capability, free, total = (_number(figure.removesuffix(" MiB")) for figure in figures)
        found.append(Gpu(name, driver, capability, free / 1024, total / 1024))
    return found


def _number(text: str) -> float:
    """A figure, or NaN where the tool says [N/A]: a GPU has no memory of its own, or is cut into parts."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def take_gpus(shard: int, each: int = 1) -> None:
    """Let this process see its own GPUs alone, so many for each shard of those that it sees. Before CUDA starts."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible_gpus()[shard * each : (shard + 1) * each])


@contextmanager
def watched(device: str, count: int = 1) -> Iterator[list[float]]:
    """Inside, a list grows by the share of time in which the first GPUs computed lately; nothing on a CPU."""
    shares: list[float] = []
    if device != CUDA:
        yield shares
        return
    names, over = ",".join(visible_gpus()[:count]), threading.Event()

    def watch() -> None:
        while not over.wait(POLL_SECONDS):
            told = _asked("--query-gpu=utilization.gpu", f"--id={names}")
            shares.extend(float(line.split()[0]) / 100 for line in told.splitlines() if line[:1].isdigit())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield shares
    finally:
        over.set()
        watcher.join()


def available_memory() -> int:
    """Bytes of this machine's memory that programs can have: what is free, and what the kernel keeps of files."""
    with suppress(OSError):  # elsewhere than on Linux there is no such file
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def free_memory() -> float:
    """Bytes of this process's GPU that tensors can have: what is free, and what PyTorch keeps and does not use."""
    import torch

    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return float(torch.cuda.mem_get_info()[0] + unused)


def give_back() -> None:
    """Give back the pages of this process that nothing uses; C's allocator keeps what lies between blocks in use.

    It has no effect where C's library is not glibc.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def cpu_has_bfloat16() -> bool:
    """True if this CPU multiplies in bfloat16 itself. Where it does not, it is slower than in float32."""
    import torch

    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():  # oneDNN can be kept from what the processor has
        return False
    x86 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return platform.machine() == "aarch64" or bool(x86)


def product_rate(device: torch.device, dtype: torch.dtype, side: int = 8192, times: int = 20) -> float:
    """Operations per second that a device reaches in a product [side, side] x [side, side]: its peak, in practice."""
    import torch

    drawn = torch.Generator(device).manual_seed(0)  # a GPU is faster on zeros, so it must be numbers
    a, b = (torch.randn(side, side, generator=drawn, device=device, dtype=dtype) for _ in range(2))

    def seconds(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            product = torch.mm(a, b)
        product[0, 0].item()  # waits for all of them
        return time.perf_counter() - started

    seconds(1)
    return times * 2.0 * side**3 / seconds(times)


def gpu_name(visible: str | None = None) -> str:
    """The id of a GPU, the first one that is visible unless said, the same however CUDA_VISIBLE_DEVICES names it."""
    visible = visible or (visible_gpus() or ["0"])[0]
    return (
        _asked("--query-gpu=uuid", f"--id={visible}") or visible
    )  # without the driver's tool, its name is all


def _asked(query: str, *options: str) -> str:
    """The output of nvidia-smi; empty if it cannot answer."""
    try:
        return subprocess.run(
            ["nvidia-smi", query, *options, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@contextmanager
def _held(name: str) -> Iterator[None]:
    path = Path(LOCKS, f"populora-{name}.lock")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.fchmod(descriptor, 0o644)  # whatever the umask: other users lock it, too
    except FileExistsError:
        descriptor = os.open(path, os.O_RDONLY)
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, 0o644)
    try:
        if not _taken(descriptor):
            warnings.warn(f"waiting for the GPU {name}: another run holds {path}", DeviceBusy, stacklevel=4)
            while not _taken(descriptor):
                time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def major(version: str) -> int:
    """The first number of a version; 0 where it has none."""
    number = version.partition(".")[0]
    return int(number) if number.isdigit() else 0
