"""System calls of x86_64 by number: attacks in machine code, and the calls that no program may make."""

from __future__ import annotations

from attacks import PREAMBLE, body

from populora_core.sandbox.status import Status

FORGED_SIGNAL_FRAME = body(
    "blocks every signal through a forged signal frame",
    """
at = ctypes.cast(libc.qsort, ctypes.c_void_p).value
loop = at + ctypes.string_at(at, 1 << 18).index(b"\\xeb\\xfe")  # a jump to itself
stack = ctypes.create_string_buffer(1 << 16)
frame = {160: ctypes.addressof(stack) + (1 << 15), 168: loop, 184: 0x002B000000000033, 296: -1}
words = [frame.get(offset, 0) for offset in range(8, 328, 8)]  # what follows the return address
libc.syscall(*map(ctypes.c_long, [15, 0, 0, 0, 0, 0, *words]))
while True:
    pass
""",
    Status.TIMEOUT,
)

FOREIGN_SYSTEM_CALL = body(
    "system call of another architecture",
    """
api = ctypes.pythonapi
near = [ctypes.cast(call, ctypes.c_void_p).value for call in (api.PyObject_Call, api.Py_Main, api.PyList_New)]
text = ctypes.string_at(min(near), max(near) - min(near))
return ctypes.CFUNCTYPE(ctypes.c_int)(min(near) + text.index(b"\\xcd\\x80"))()  # the gate of 32-bit programs
""",
    Status.KILLED,
    says=r"signal (31|11)\b",
)

MACHINE_CODE = (FORGED_SIGNAL_FRAME, FOREIGN_SYSTEM_CALL)

COMPUTING = {
    "write": 1,
    "mmap": 9,
    "mprotect": 10,
    "munmap": 11,
    "brk": 12,
    "mremap": 25,
    "madvise": 28,
    "exit": 60,
    "futex": 202,
    "restart_syscall": 219,
    "clock_gettime": 228,
    "exit_group": 231,
}
CONDITIONAL = ("mmap", "mprotect", "mremap", "futex")
"""All that a program may ask of the kernel; some with few arguments only."""

PATH = b"/proc/1/mem\0"
SYSTEM_CALLS: dict[str, tuple[int | bytes, ...]] = {
    "open the runner's memory": (2, PATH, 2),
    "openat": (257, -100, PATH, 0),
    "openat2": (437, -100, PATH, bytes(24), 24),
    "open_by_handle_at": (304, -100, bytes(64), 0),
    "creat": (85, b"/tmp/left\0", 0o666),
    "mkdir": (83, b"/tmp/left\0", 0o777),
    "io_uring_setup": (425, 8, bytes(120)),
    "io_setup": (206, 8, bytes(8)),
    "process_vm_readv": (310, 1, bytes(16), 1, bytes(16), 1, 0),
    "process_vm_writev": (311, 1, bytes(16), 1, bytes(16), 1, 0),
    "process_madvise": (440, 1, bytes(16), 1, 4, 0),
    "ptrace to attach": (101, 16, 1, 0, 0),
    "ptrace of itself": (101, 0, 0, 0, 0),
    "kcmp": (312, 1, 1, 0, 0, 0),
    "pidfd_open": (434, 1, 0),
    "pidfd_getfd": (438, 0, 0, 0),
    "pidfd_send_signal": (424, 0, 9, 0, 0),
    "kill": (62, 1, 0),
    "tkill": (200, 1, 19),
    "tgkill": (234, 1, 1, 9),
    "rt_sigqueueinfo": (129, 1, 9, bytes(128)),
    "rt_sigaction": (13, 14, bytes(32), 0, 8),
    "rt_sigprocmask": (14, 0, b"\xff" * 8, 0, 8),
    "rt_sigreturn": (15,),
    "sigaltstack": (131, bytes(24), 0),
    "rt_sigtimedwait": (128, b"\xff" * 8, 0, 0, 8),
    "signalfd4": (289, -1, b"\xff" * 8, 8, 0),
    "alarm": (37, 100),
    "setitimer": (38, 0, bytes(32), 0),
    "timer_create": (222, 0, 0, bytes(8)),
    "timer_settime of the alarm": (223, 0, 0, bytes(32), 0),
    "timer_delete of the alarm": (226, 0),
    "timerfd_create": (283, 0, 0),
    "setrlimit": (160, 0, b"\xff" * 16),
    "prlimit64": (302, 0, 9, b"\xff" * 16, 0),
    "fork": (57,),
    "vfork": (58,),
    "clone of a thread": (56, 0x50F00, 0, 0, 0, 0),
    "clone out of the process tree": (56, 0x8000 | 17, 0, 0, 0, 0),
    "clone3": (435, bytes(88), 88),
    "execve": (59, b"/bin/sh\0", 0, 0),
    "execveat": (322, -100, b"/bin/sh\0", 0, 0, 0),
    "executable memory": (9, 0, 4096, 7, 0x22, -1, 0),
    "memory made executable": (10, 0, 0, 4),
    "memory at an address": (9, 1 << 40, 4096, 3, 0x32, -1, 0),
    "memory near an address": (9, 1 << 40, 4096, 3, 0x22, -1, 0),
    "memory at a free address": (9, 1 << 40, 4096, 3, 0x100022, -1, 0),
    "memory moved to an address": (25, 0, 4096, 4096, 3, 1 << 40),
    "futex of several processes": (202, bytes(8), 1, 1, 0, 0, 0),
    "futex that requeues": (202, bytes(8), 131, 1, 0, bytes(8), 0),
    "futex that lends priority": (202, bytes(8), 134, 0, 0, 0, 0),
    "nanosleep": (35, bytes(16), 0),
    "clock_nanosleep": (230, 1, 0, bytes(16), 0),
    "select": (23, 0, 0, 0, 0, bytes(16)),
    "pselect6": (270, 0, 0, 0, 0, bytes(16), 0),
    "pkey_mprotect": (329, 0, 0, 4, -1),
    "setuid": (105, 0),
    "setresuid": (117, 0, 0, 0),
    "setresgid": (119, 0, 0, 0),
    "setgroups": (116, 0, 0),
    "capset": (126, bytes(8), b"\xff" * 24),
    "prctl to be dumpable": (157, 4, 1, 0, 0, 0),
    "prctl to outlive its parent": (157, 1, 0, 0, 0, 0),
    "prctl to adopt orphans": (157, 36, 1, 0, 0, 0),
    "seccomp": (317, 1, 0, bytes(16)),
    "personality": (135, 0x0400000),
    "modify_ldt": (154, 1, bytes(16), 16),
    "unshare users": (272, 0x10000000),
    "unshare mounts": (272, 0x00020000),
    "setns": (308, 0, 0),
    "mount": (165, b"none\0", b"/\0", b"tmpfs\0", 0, 0),
    "fsopen": (430, b"tmpfs\0", 0),
    "open_tree": (428, -100, b"/\0", 0),
    "pivot_root": (155, b"/\0", b"/\0"),
    "chroot": (161, b"/\0"),
    "chdir": (80, b"/\0"),
    "mknod": (133, b"/tmp/left\0", 0o10666, 0),
    "socket": (41, 2, 1, 0),
    "socketpair": (53, 1, 1, 0, bytes(8)),
    "pipe2": (293, bytes(8), 0),
    "memfd_create": (319, b"left\0", 0),
    "memfd_secret": (447, 0),
    "dup": (32, 0),
    "fcntl": (72, 0, 1031, 0),
    "ioctl to type into a terminal": (16, 0, 0x5412, b"x"),
    "splice": (275, 0, 0, 0, 0, 1, 0),
    "shmget": (29, 7, 4096, 0o1666),
    "shmat": (30, 0, 0, 0),
    "semget": (64, 7, 1, 0o1666),
    "msgget": (68, 7, 0o1666),
    "mq_open": (240, b"left\0", 0o102, 0o666, 0),
    "add_key": (248, b"user\0", b"left\0", b"x", 1, -4),
    "request_key": (249, b"user\0", b"left\0", 0, -4),
    "keyctl": (250, 0, -4, 1),
    "bpf": (321, 0, bytes(72), 72),
    "perf_event_open": (298, bytes(128), 0, -1, -1, 0),
    "userfaultfd": (323, 0),
    "inotify_init1": (294, 0),
    "fanotify_init": (300, 0, 0),
    "setpriority": (141, 0, 0, -20),
    "sched_setaffinity": (203, 0, 8, b"\x01" + bytes(7)),
    "sched_setscheduler": (144, 0, 1, bytes(4)),
    "ioprio_set": (251, 1, 0, 0),
    "mlockall": (151, 3),
    "getpid": (39,),
    "getrandom": (318, bytes(8), 8, 0),
    "syslog": (103, 3, bytes(16), 16),
    "reboot": (169, 0xFEE1DEAD, 672274793, 0),
    "init_module": (175, 0, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "settimeofday": (164, bytes(16), 0),
}
"""The calls that would matter most, with arguments that ask for something."""

TRY_CALLS = f"""{PREAMBLE}
calls = {SYSTEM_CALLS!r}
def f(x):
    passed = {{}}
    for name, arguments in calls.items():
        ctypes.set_errno(0)
        given = [ctypes.c_long(a) if isinstance(a, int) else ctypes.create_string_buffer(a) for a in arguments]
        if libc.syscall(*given) != -1 or ctypes.get_errno() != 1:
            passed[name] = ctypes.get_errno()
    return len(calls), passed
"""

UNSWEPT = (60, 231, 335, 336)
"""Calls that end their program: exit, exit_group, and uretprobe and uprobe, with which the kernel
traces and which it therefore exempts from every filter; called by a program they end it with SIGILL."""

TRY_NUMBERS = f"""{PREAMBLE}
def f(base):
    passed = []
    for number in range(700):
        if base + number not in {UNSWEPT!r}:
            ctypes.set_errno(0)
            nonsense = [ctypes.c_long(-1)] * 6
            if libc.syscall(ctypes.c_long(base + number), *nonsense) != -1 or ctypes.get_errno() != 1:
                passed.append(number)
    return passed
"""
