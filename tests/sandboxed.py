"""Small programs and the sandboxes of tests that run them: every backend, with tight limits."""

from __future__ import annotations

import os
import shlex
import subprocess
from functools import cache

import pytest

from populora_core.sandbox.backends import SandboxKind, open_sandbox
from populora_core.sandbox.jobs import MIB, Job, JobResult, Limits
from populora_core.sandbox.pool import SandboxPool
from populora_core.support.errors import SandboxUnavailable

BACKEND_NAMES = [pytest.param("docker", marks=pytest.mark.docker), "bubblewrap", "launcher"]
LIMITS = Limits(cpu_seconds=0.3, wall_seconds=30, memory_bytes=64 * MIB, output_bytes=4096)
SQUARE = "def f(x):\n    return x * x"
LOOP = "def f(x):\n    while True:\n        pass"


@cache
def possible(kind: str) -> bool:
    """True where this machine has what such a sandbox needs, as a program that is not ours finds."""
    user = "" if os.geteuid() == 0 else "--map-root-user"
    if kind == "bubblewrap":
        probe = "bwrap --unshare-all --ro-bind / / true"
    elif kind == "launcher":
        probe = f"unshare {user} --mount --pid --net --ipc --uts --fork true"
    elif kind == "docker":
        from populora_core.sandbox.containers import image_tag  # the docker client is slow to import

        probe = f"docker image inspect {image_tag()}"
    else:
        return False
    try:
        return subprocess.run(shlex.split(probe), capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def opened(kind: SandboxKind, limits: Limits = LIMITS, **more: int) -> SandboxPool:
    """A sandbox with two workers; the test is skipped where this machine cannot have it, but not where ours fails."""
    try:
        pool = open_sandbox(kind, limits, workers=2, **more)
    except SandboxUnavailable as error:
        if possible(kind):
            raise
        pytest.skip(str(error))
    assert isinstance(pool, SandboxPool)
    return pool


def run(sandbox: SandboxPool, program: str, *inputs: str) -> JobResult:
    (result,) = sandbox.run([Job("job", program, inputs or ("(3,)",))])
    return result


def attempt(sandbox: SandboxPool, body: str) -> JobResult:
    """The result of a program of which only the body of `f` is given, with everything imported that helps."""
    lines = "".join(f"\n    {line}" for line in body.splitlines())
    return run(sandbox, f"import os, sys, gc, ctypes, signal, time, resource\ndef f(x):{lines}")
