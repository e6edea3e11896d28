"""One GPU, one run: the lock is exclusive, waits, says so, and goes with its holder."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, wait_for

from populora_core.support import devices
from populora_core.support.devices import DeviceBusy, hold_device
from populora_core.support.errors import ConfigError
from populora_plugins.machine import doctor
from populora_plugins.machine.doctor import gpu_rows

LOCKS = devices.LOCKS
HOLD = """
import sys, time
from populora_core.support.devices import hold_device
with hold_device("cuda"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "LOCKS", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    monkeypatch.setattr(devices, "POLL_SECONDS", 0.02)


def drivers_tool(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """An `nvidia-smi` in a folder that comes first: what it says is written by a script."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return tool


def test_a_cpu_needs_no_lock(tmp_path: Path) -> None:
    with hold_device("cpu"), hold_device("cpu"):
        assert list(tmp_path.iterdir()) == []


def test_a_second_run_waits_and_gets_the_gpu_when_the_first_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it has a folder of temporary files of its own, and a umask."""
    monkeypatch.setattr(devices, "LOCKS", LOCKS)
    gpu = f"test-{os.getpid()}"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu)
    other = os.environ | {"TMPDIR": str(tmp_path)}
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=other, umask=0o077
    )
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    warn = warnings.warn

    def warn_and_kill(*given: Any, **named: Any) -> None:
        warn(*given, **named)
        first.kill()

    monkeypatch.setattr(warnings, "warn", warn_and_kill)
    with pytest.warns(DeviceBusy, match=f"waiting for the GPU {gpu}: another run holds"), hold_device("cuda"):
        assert first.wait(PATIENCE) == -9
    lock = Path(LOCKS, f"populora-{gpu}.lock")
    assert lock.stat().st_mode & 0o777 == 0o644, "another user could not lock it"
    lock.unlink()


def test_other_gpus_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with hold_device("cuda"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
        with hold_device("cuda"):
            pass


def test_several_gpus_are_held_and_too_few_are_refused(tmp_path: Path) -> None:
    with hold_device("cuda", 2):
        assert {path.name for path in tmp_path.iterdir()} == {"populora-3.lock", "populora-4.lock"}
    with pytest.raises(ConfigError, match="of at most 2"), hold_device("cuda", 3):
        pass


@pytest.mark.parametrize("hidden", ["", "-1", " "])
def test_gpus_that_are_hidden_are_not_used(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert devices.visible_gpus() == []
    with pytest.raises(ConfigError, match="hides every GPU"), hold_device("cuda"):
        pass


def test_without_a_list_the_drivers_tool_tells_the_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = "case $1 in --query-gpu=index) printf '0\\n1\\n' ;; *) echo GPU-abc ;; esac"
    drivers_tool(tmp_path, monkeypatch, says)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert devices.visible_gpus() == ["0", "1"]
    assert devices.gpu_name() == "GPU-abc"
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    devices.take_gpus(1)
    assert devices.visible_gpus() == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    devices.take_gpus(1, each=2)
    assert devices.visible_gpus() == ["6", "7"]


def test_the_drivers_tool_describes_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "echo 'NVIDIA H100 80GB HBM3, 535.183.01, 9.0, 40960 MiB, 81920 MiB'"
    tool = drivers_tool(tmp_path, monkeypatch, says)
    assert devices.gpus() == [devices.Gpu("NVIDIA H100 80GB HBM3", "535.183.01", 9.0, 40.0, 80.0)]
    told = {part: (works, detail) for part, works, detail in gpu_rows()}
    works, detail = told["GPU 0"]
    assert works is False
    assert "40 of 80 GiB free, capability 9, driver 535.183.01; the pinned torch and vLLM" in detail
    tool.write_text("#!/bin/sh\necho 'NVIDIA GB10, 580.95.05, 12.1, [N/A], [N/A]'\n")
    told = {part: (works, detail) for part, works, detail in gpu_rows()}
    assert told["GPU 0"] == (True, "NVIDIA GB10, memory untold, capability 12.1, driver 580.95.05")
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert list(gpu_rows()) == [("GPU", None, "none: nvidia-smi names no device")]


def test_while_a_stage_runs_the_drivers_tool_tells_how_busy_its_gpus_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    drivers_tool(tmp_path, monkeypatch, f"echo \"$*\" > {asked}\nprintf '90 %%\\n30 %%\\n[N/A]\\n'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,7")
    monkeypatch.setattr(devices, "POLL_SECONDS", 0.0)
    with devices.watched("cuda", 2) as busy:
        wait_for(lambda: len(busy) >= 4, every=0.01)
    assert set(busy) == {0.9, 0.3}
    assert "--id=2,5" in asked.read_text()
    with devices.watched("cpu") as idle:
        pass
    assert idle == []


def test_memory_that_the_kernel_keeps_of_files_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "meminfo"
    monkeypatch.setattr(devices, "MEMINFO", file)
    assert devices.available_memory() > 0, "elsewhere than on Linux"
    file.write_text("MemTotal: 8388608 kB\nMemFree: 524288 kB\nMemAvailable: 6291456 kB\n")
    assert devices.available_memory() == 6 << 30
    monkeypatch.setattr(doctor, "describe_backends", lambda: [])
    doctor.examine("nothing")
    assert " GiB, 6 free" in capsys.readouterr().out
