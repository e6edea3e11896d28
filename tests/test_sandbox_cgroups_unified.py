"""The tests of cgroups under a kernel that has them in one hierarchy: user-mode Linux, which runs as a process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ran

ROOT = Path(__file__).resolve().parents[1]
LINUX = shutil.which("linux.uml")
INIT = f"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/var/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={ROOT}
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /var/tmp
mount -t cgroup2 none /sys/fs/cgroup
echo "+memory +pids" > /sys/fs/cgroup/cgroup.subtree_control
cd {ROOT}
{sys.executable} -m pytest -q -rs --color=no -p no:cacheprovider tests/test_sandbox_cgroups.py
echo left: /sys/fs/cgroup/populora*
echo o > /proc/sysrq-trigger
sleep 60
"""
"""The machine's own files are there, and cannot be written to."""
BOOT = "root=/dev/root rootfstype=hostfs rootflags=/ ro mem=2G con=null con0=null,fd:1 quiet"
NO_ROOM = "ptrace set fp regs failed"
"""The panic of a kernel that has no room for a processor's registers (AMX has 8 KiB of them): nothing has run in it."""


@pytest.mark.foreign
@pytest.mark.thorough
@pytest.mark.sandbox
@pytest.mark.skipif(LINUX is None, reason="no user-mode Linux: apt-get install user-mode-linux")
@pytest.mark.skipif(os.geteuid() != 0, reason="the tests in it need the files of root")
def test_groups_hold_in_a_real_unified_hierarchy(tmp_path: Path) -> None:
    init = tmp_path / "init"
    init.write_text(INIT)
    init.chmod(0o755)
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # where its memory lies
    booted = ran([str(LINUX), *BOOT.split(), f"init={init}"], env=environment, stdin=subprocess.DEVNULL)
    if NO_ROOM in booted.stdout:
        pytest.skip("this user-mode Linux cannot hold the registers of this processor")
    assert re.search(r"^\d+ passed in", booted.stdout, re.MULTILINE), booted.stdout
    assert "left: /sys/fs/cgroup/populora*" in booted.stdout, "nothing has that name"
