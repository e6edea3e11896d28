"""Opening a sandbox: which backends there are, which work here, and what to do where none does."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from populora_core.sandbox import bubblewrap, cgroups, launcher
from populora_core.sandbox.connection import Backend, CommandBackend
from populora_core.sandbox.host import can_spare_uids
from populora_core.sandbox.jobs import Job, Limits, Sandbox, python_of
from populora_core.sandbox.pool import SandboxPool
from populora_core.sandbox.status import Status
from populora_core.support.errors import SandboxUnavailable

SandboxKind = Literal["auto", "docker", "bubblewrap", "launcher", "gvisor"]


def _docker(gvisor: bool = False) -> Backend:
    from populora_core.sandbox.containers import DockerBackend  # the docker client is slow to import

    return DockerBackend(gvisor)


BACKENDS: dict[str, Callable[[], Backend]] = {
    "docker": _docker,
    "bubblewrap": lambda: CommandBackend("bubblewrap", bubblewrap.command),
    "launcher": lambda: CommandBackend("launcher", launcher.command),
    "gvisor": partial(_docker, gvisor=True),
}
"""Backends in the order in which `auto` tries them: from the strongest walls to those that need least. `gvisor` has
more walls than `docker` but takes several times as long, so it runs only by name: wherever it works, `docker` does
too.
"""

_USER_NAMESPACE_SETTINGS = {
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user/max_user_namespaces": ("0", "15000"),
}
"""Settings in /proc/sys that can forbid users to make namespaces: the value that does, one that does not."""


TABLES_FACTOR = 2.3
"""The worst case: one page in every 256 MiB, each of which needs a 4 KiB table and a quarter of one above."""


@dataclass(frozen=True, slots=True)
class BackendReport:
    """One backend's line in `populora doctor`.

    Attributes:
        reason: why it does not work; empty if it does.
        command: the one command to run to change that; empty if there is none or nothing to change.
        gives: where it works, how far it goes beyond what every backend gives.
    """

    name: str
    works: bool
    reason: str
    command: str
    gives: str = ""


def open_sandbox(
    kind: SandboxKind, limits: Limits, workers: int, hash_seed: int = 0, python: str | None = None
) -> Sandbox:
    """Start a sandbox; close it, or use it as a context manager.

    Args:
        kind: a backend, or `auto` for the first that works.
        workers: how many sandbox processes work at a time; at least two are started.
        hash_seed: names the pair of hash seeds that programs run under.
        python: with `auto`, the version that it must have inside, such as 3.13; None for any.

    Raises:
        SandboxUnavailable: nothing works; names the one command to run. There is no unprotected fallback.
    """
    if kind != "auto":
        return _open(kind, limits, workers, hash_seed)
    failures: list[str] = []
    for name in BACKENDS:
        try:
            sandbox = _open(name, limits, workers, hash_seed)
        except SandboxUnavailable as error:
            failures.append(f"{name}: {_summary(error)}")
            continue
        found = python_of(sandbox.identity)
        if python is None or found.startswith(f"{python}."):
            return sandbox
        sandbox.close()
        failures.append(f"{name}: Python {found}")
    if python is not None:
        raise SandboxUnavailable(
            f"no sandbox of this machine has Python {python}, and outputs can differ between versions",
            expected=f"a sandbox with Python {python} inside",
            got="; ".join(failures),
            fix="start Docker, whose image brings the project's own Python; or let a run of this machine verify the "
            "problems again, as anchors",
        )
    raise SandboxUnavailable(
        "no sandbox can be started on this machine, and model-written code is never run without one",
        expected="docker, bubblewrap, or the right to make namespaces",
        got="; ".join(failures),
        fix=fix(),
    )


def require_backend(kind: SandboxKind) -> None:
    """Raise SandboxUnavailable where a sandbox of this kind cannot even be begun: its daemon is down, say."""
    if kind != "auto":
        _backend(kind)


def describe_backends() -> list[BackendReport]:
    """Report on every backend, after running a program in each on this machine."""
    return [_try_backend(name) for name in BACKENDS]


def fix(name: str = "auto") -> str:
    """The one command to run where this sandbox does not work, or none does."""
    if name in ("docker", "gvisor"):
        return "see what the daemon says of it: journalctl -u docker"
    for setting, (bad, good) in _USER_NAMESPACE_SETTINGS.items():
        path = Path("/proc/sys", setting)
        if os.geteuid() != 0 and path.exists() and path.read_text().strip() == bad:
            return f"sudo sysctl -w {setting.replace('/', '.')}={good}"
    if bubblewrap.executable() is None:
        return bubblewrap.INSTALL
    return "in a container: start it with --security-opt seccomp=unconfined --cap-add SYS_ADMIN"


def _open(name: str, limits: Limits, workers: int, hash_seed: int) -> SandboxPool:
    backend = _backend(name)
    try:
        return SandboxPool(backend, limits, workers, hash_seed)
    except SandboxUnavailable as error:
        error.fix = error.fix or fix(name)
        raise


def _backend(name: str) -> Backend:
    try:
        return BACKENDS[name]()
    except SandboxUnavailable as error:
        error.fix = error.fix or fix(name)
        raise


def _try_backend(name: str) -> BackendReport:
    job = Job("try", "def f(x):\n    return x + 1", ("(1,)",))
    try:
        with _open(name, Limits(), workers=1, hash_seed=0) as sandbox:
            (result,) = sandbox.run([job])
    except SandboxUnavailable as error:
        return BackendReport(name, False, _summary(error), error.fix)
    if result.status is not Status.OK:
        return BackendReport(name, False, f"{result.status}: {result.error}", fix(name))
    return BackendReport(name, True, "", "", bounds(name))


def bounds(name: str) -> str:
    """The walls of a working backend beyond those that every backend has."""
    if name in ("docker", "gvisor"):
        second = "; a second kernel" if name == "gvisor" else ""
        return f"a user id for each program; cgroup limits on memory, processes and CPU{second}"
    ids = "a user id for each program" if can_spare_uids() else "one user id for all programs"
    if cgroups.usable():
        return f"{ids}; cgroup limits on memory and processes"
    return f"{ids}; no cgroup limits: a program can take {TABLES_FACTOR} times its memory, in page tables"


def _summary(error: SandboxUnavailable) -> str:
    return f"{error.problem} ({error.got})" if error.got else error.problem
