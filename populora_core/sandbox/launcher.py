"""The launcher backend: namespaces and a read-only root made by ourselves, for machines without bubblewrap.

This file is also the script that does it: started by path, it needs the standard library alone. It becomes
nothing of the sandbox itself; it waits outside for the runner, which is PID 1 within, and both end with the
process that started them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from populora_core.sandbox.host import Contents

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
NAMESPACES = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MS_NOATIME, MS_NODIRATIME, MS_PRIVATE, MS_RELATIME = 1 << 10, 1 << 11, 1 << 18, 1 << 21
ST_RELATIME = 1 << 12  # the only one of these flags that statvfs reports under another number
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 23, 24, 38
CAP_KILL, CAP_SETGID, CAP_SETUID = 5, 6, 7

STAGING = b"/tmp"  # exists everywhere; covered by the new root in this mount namespace only
NOBODY = 65534

libc = ctypes.CDLL(None, use_errno=True)


def command(contents: Contents) -> list[str]:
    """The command line of one worker."""
    order = {
        "parent": os.getpid(),
        "binds": [[str(source), str(target)] for source, target in contents.binds],
        "argv": contents.argv,
        "environment": dict(contents.environment),
        "spare_uids": contents.spare_uids,
    }
    return [sys.executable, "-I", "-S", "-B", __file__, json.dumps(order)]


def main(order: dict[str, Any]) -> NoReturn:
    """Enter new namespaces, start the runner as PID 1 in a root of its own, and wait for it."""
    enter_namespaces(order["spare_uids"])
    die_with_parent()
    if os.getppid() != order["parent"]:
        sys.exit("the process that started the launcher has ended")
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        change_root(order["binds"])
        drop_capabilities({CAP_KILL, CAP_SETGID, CAP_SETUID} if order["spare_uids"] else set())
        os.execve(order["argv"][0], order["argv"], order["environment"])
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # the runner's alone, so that their end means its end
    _, ended = os.waitpid(pid, 0)
    os._exit(os.waitstatus_to_exitcode(ended) & 0xFF)


def enter_namespaces(privileged: bool) -> None:
    """Enter new namespaces: as root with all users, otherwise alone as NOBODY in a user namespace."""
    user, group = os.geteuid(), os.getegid()
    call("unshare", NAMESPACES if privileged else NAMESPACES | CLONE_NEWUSER)
    if privileged:
        os.setgroups([])
        return
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{NOBODY} {group} 1")


def die_with_parent() -> None:
    """Have the kernel kill this process with its parent; repeat after every change of credentials, which undoes it."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def change_root(binds: list[list[str]]) -> None:
    """Make a read-only root of nothing but the binds, and let go of the old one."""
    mount(None, b"/", None, MS_REC | MS_PRIVATE)
    sources = [os.open(source, os.O_PATH) for source, _ in binds]  # one may lie where the new root is staged
    mount(b"tmpfs", STAGING, b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755")
    for descriptor, (_, target) in zip(sources, binds, strict=True):
        point = Path(os.fsdecode(STAGING) + target)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            point.mkdir(parents=True, exist_ok=True)
        else:
            point.parent.mkdir(parents=True, exist_ok=True)
            point.touch()
        place = os.fsencode(point)
        mount(f"/proc/self/fd/{descriptor}".encode(), place, None, MS_BIND | MS_REC)
        read_only = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV
        mount(None, place, None, read_only | inherited_flags(point))
        os.close(descriptor)
    mount(None, STAGING, None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(STAGING)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")


def inherited_flags(point: Path) -> int:
    """The flags that a mount has from its source: in a user namespace a remount may not clear them."""
    flags = os.statvfs(point).f_flag
    kept = flags & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME)
    return kept | (MS_RELATIME if flags & ST_RELATIME else 0)


def drop_capabilities(kept: set[int]) -> None:
    """Bound what the coming exec can give: as root the kept capabilities, as anybody else none."""
    capability = 0
    while libc.prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0:  # until the kernel knows no more of them
        if capability not in kept:
            call("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
        capability += 1
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def mount(
    source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None
) -> None:
    call("mount", source, target, kind, ctypes.c_ulong(flags), data)


def call(function: str, *arguments: object) -> None:
    """A call of the C library that gives -1 on failure.

    Raises:
        OSError: with the name of the call.
    """
    if getattr(libc, function)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except OSError as error:
        sys.exit(str(error))
