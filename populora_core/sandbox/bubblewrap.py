"""The bubblewrap backend: `bwrap` makes the namespaces and the read-only file system."""

from __future__ import annotations

import shutil

from populora_core.sandbox.host import Contents
from populora_core.support.errors import SandboxUnavailable

INSTALL = "apt-get install bubblewrap"


def executable() -> str | None:
    return shutil.which("bwrap")


def command(contents: Contents) -> list[str]:
    """The command line of one worker.

    As root there is no user namespace, in which only one user id would exist: the runner keeps the three
    capabilities with which it gives each child an id of its own. As an ordinary user everything inside is one
    unprivileged user; that the runner is PID 1 and not dumpable keeps its children off it.

    Raises:
        SandboxUnavailable: bwrap is not installed.
    """
    program = executable()
    if program is None:
        raise SandboxUnavailable("bubblewrap is not installed", fix=INSTALL)
    if contents.spare_uids:
        users = "--unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try --cap-drop ALL "
        users += "--cap-add CAP_SETUID --cap-add CAP_SETGID --cap-add CAP_KILL"
    else:
        users = "--unshare-user --unshare-all --uid 65534 --gid 65534"
    arguments = [program, *users.split(), "--as-pid-1", "--die-with-parent", "--new-session"]
    for name, value in contents.environment.items():
        arguments += ["--setenv", name, value]
    for source, target in contents.binds:
        arguments += ["--ro-bind", str(source), str(target)]
    return [*arguments, "--remount-ro", "/", "--chdir", "/", "--", *contents.argv]
