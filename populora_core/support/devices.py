"""One GPU is never given to two runs: whoever puts a model on it holds its lock until its workers end.

The lock is a file lock of the machine, so that it goes when its holder goes, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CUDA = "cuda"
POLL_SECONDS = 1.0


class DeviceBusy(UserWarning):
    """A run waits for a GPU that another run holds."""


@contextmanager
def hold_device(device: str) -> Iterator[None]:
    """Hold the first visible GPU against other runs on this machine, waiting until it is free.

    Args:
        device: as base.device says; what is no GPU needs no lock.
    """
    if device != CUDA:
        yield
        return
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # CUDA's own order is not nvidia-smi's
    name = gpu_name()
    path = Path(tempfile.gettempdir()) / f"populora-{name}.lock"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    except PermissionError:  # another user's file in a shared folder may be locked, but not made
        descriptor = os.open(path, os.O_RDONLY)
    try:
        if not _taken(descriptor):
            warnings.warn(f"waiting for the GPU {name}: another run holds {path}", DeviceBusy, stacklevel=2)
            while not _taken(descriptor):
                time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def gpu_name() -> str:
    """The id of the first GPU that this process sees, the same however CUDA_VISIBLE_DEVICES names it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip() or "0"
    try:
        return subprocess.run(
            ["nvidia-smi", f"--id={visible}", "--query-gpu=uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return visible  # without the driver's tool, its name is all there is


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
