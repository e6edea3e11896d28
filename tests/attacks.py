"""Hostile programs, each in the strongest form that we know, and what may come of it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from populora_core.sandbox.status import Status

ERROR, KILLED, OK, OOM, TIMEOUT = Status.ERROR, Status.KILLED, Status.OK, Status.OOM, Status.TIMEOUT
NOT_PLAIN_DATA, OUTPUT_LIMIT, SYNTAX_ERROR = (
    Status.NOT_PLAIN_DATA,
    Status.OUTPUT_LIMIT,
    Status.SYNTAX_ERROR,
)

PREAMBLE = """
import builtins, collections, ctypes, gc, itertools, mmap, os, re, resource, select, signal, sys, time, _thread
libc = ctypes.CDLL(None, use_errno=True)
keep = []
"""
"""Whatever helps an attack: all of it is in the sandbox, so no attack may end with an ImportError."""

REFUSED = r"Errno 1\b"
"""EPERM: the attack reached its system call, and the filter refused it."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile program.

    Attributes:
        statuses: how it may end; more than one where the machine's load decides.
        says: a pattern that the error must match.
    """

    name: str
    program: str
    statuses: frozenset[Status]
    says: str = ""

    @property
    def test_id(self) -> str:
        return self.name.replace(" ", "-")


def whole(name: str, program: str, *statuses: Status, says: str = "") -> Attack:
    """An attack whose whole text is given."""
    return Attack(name, program, frozenset(statuses), says)


def body(name: str, lines: str, *statuses: Status, says: str = "") -> Attack:
    """An attack of which only the body of `f(x)` is given."""
    return whole(name, f"{PREAMBLE}def f(x):{indented(lines)}", *statuses, says=says)


def indented(lines: str) -> str:
    return "".join(f"\n    {line}" for line in lines.strip("\n").split("\n"))


def swallowing(line: str) -> str:
    """The line again and again, whatever comes of it."""
    return f"while True:\n    try:\n        {line}\n    except BaseException:\n        pass"


FORGED_FRAMES = b"".join(struct.pack(">QBdI", number, 0, 0.0, 4) + b"9999" for number in range(100))
"""Replies as the runner writes them, for every request that may be on its way."""

NESTED_FINALLY = "def f(x):" + "".join(f"\n{' ' * n}try: x\n{' ' * n}finally:" for n in range(1, 19))

TIME = (
    body("endless loop in Python", "while True:\n    pass", TIMEOUT),
    body("endless loop that swallows every exception", swallowing("while True: pass"), TIMEOUT),
    whole("endless loop before f is defined", "while True: pass", TIMEOUT),
    body("endless arithmetic in C", "return 7 ** 10 ** 9", TIMEOUT),
    body("endless digits in C", "sys.set_int_max_str_digits(0)\nwhile True:\n    str(1 << 10 ** 7)", TIMEOUT),
    body("endless regular expression", "return re.match('(a+)+$', 'a' * 50 + 'b')", TIMEOUT),
    body("endless iteration in C", "return sum(itertools.repeat(0))", TIMEOUT),
    body(
        "endless compilation in C",
        "source = map(compile, itertools.repeat('x = 1\\n' * 999), itertools.repeat('a'), itertools.repeat('exec'))"
        "\ncollections.deque(source, 0)",
        TIMEOUT,
    ),
    whole("program that explodes in the compiler", f"{NESTED_FINALLY}\n{' ' * 19}x", TIMEOUT, OOM),
    body("hash collisions", "return len({n * (2 ** 61 - 1) for n in range(10 ** 6)})", TIMEOUT),
    body(
        "exception whose text never ends",
        "class Talker(Exception):\n    def __str__(self):\n        while True: pass\nraise Talker",
        TIMEOUT,
    ),
    body(
        "answer whose type has an endless name",
        "class Meta(type):\n    __name__ = property(lambda self: sum(itertools.repeat(0)))\n"
        "class Named(metaclass=Meta): pass\nreturn Named()",
        TIMEOUT,
    ),
    body("sleep", "time.sleep(10 ** 6)", ERROR, says=REFUSED),
    body("sleep in select", "select.select([], [], [])", ERROR, says=REFUSED),
    body("deadlock", "lock = _thread.allocate_lock()\nlock.acquire()\nlock.acquire()", TIMEOUT),
)

SIGNALS = (
    body("ignores the alarm", "signal.signal(signal.SIGALRM, signal.SIG_IGN)", ERROR, says=REFUSED),
    body("catches the CPU limit", "signal.signal(signal.SIGXCPU, print)", ERROR, says=REFUSED),
    body(
        "blocks every signal",
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        ERROR,
        says=REFUSED,
    ),
    body("sets another timer", "signal.setitimer(signal.ITIMER_REAL, 100)", ERROR, says=REFUSED),
    body(
        "lifts its CPU limit", "resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))", ERROR, says="not allowed"
    ),
    body("stops itself", "signal.raise_signal(signal.SIGSTOP)", ERROR, says=REFUSED),
    body("stops its process group", "os.kill(0, signal.SIGSTOP)", ERROR, says=REFUSED),
    body("kills the runner", "os.kill(1, signal.SIGKILL)", ERROR, says=REFUSED),
    body("signals everybody", "os.kill(-1, signal.SIGTERM)", ERROR, says=REFUSED),
)

PROCESSES = (
    body("fork bomb", swallowing("os.fork()"), TIMEOUT),
    body("thread bomb", swallowing("_thread.start_new_thread(f, (x,))"), TIMEOUT),
    body("clone bomb by libc", swallowing("libc.fork(); libc.vfork(); libc.clone(f, x, 0x100)"), TIMEOUT),
    body("daemon", "if os.fork() == 0:\n    os.setsid()\n    os.fork()", ERROR, says=REFUSED),
    body("shell", "os.execv('/bin/sh', ['sh', '-c', 'id'])", ERROR, says=REFUSED),
    body("shell that is spawned", "return os.posix_spawn('/bin/sh', ['sh'], {})", ERROR, says=REFUSED),
)

MEMORY = (
    body(
        "fills page tables",
        """
libc.mmap.restype = ctypes.c_void_p
size, page = 8 << 20, 4096
while True:
    start = libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, 0)
    if start is None or start == 2 ** 64 - 1:
        raise MemoryError
    ctypes.memset(start, 1, 1)  # one page, which takes a table; the next mapping finds no room above it
    libc.munmap(ctypes.c_void_p(start + page), ctypes.c_size_t(size - page))
""",
        OOM,
        KILLED,
        TIMEOUT,
    ),
    body("one huge allocation", "return len(bytearray(10 ** 12))", OOM),
    body("many small allocations", "while True:\n    keep.append(bytes(100))", OOM),
    body(
        "many allocations of all sizes",
        "global keep\nfor n in itertools.count():\n    keep = (keep, 'a' * (n % 500))",
        OOM,
    ),
    body("text that doubles", "text = 'x'\nwhile True:\n    text += text", OOM),
    body("one huge integer", "return x << 10 ** 12", OOM),
    body(
        "mapped pages",
        "while True:\n    keep.append(mmap.mmap(-1, 1 << 22))\n    keep[-1].write(b'x' * (1 << 22))",
        ERROR,
        says="Cannot allocate memory",
    ),
    body("recursion without limit", "sys.setrecursionlimit(10 ** 9)\nreturn f(x)", OOM, KILLED, TIMEOUT),
    body(
        "recursion in C without limit",
        "sys.setrecursionlimit(10 ** 9)\nreturn sorted([x], key=f)",
        KILLED,
        ERROR,
    ),
    body("swallows the lack of memory", swallowing("keep.append(bytearray(10 ** 6))"), TIMEOUT),
)

OUTPUT = (
    body("prints for ever", "while True:\n    print('x' * 1000)", OUTPUT_LIMIT),
    body("errors for ever", "while True:\n    sys.stderr.write('x' * 1000)", OUTPUT_LIMIT),
    body("prints for ever and swallows the refusal", swallowing("print('x' * 1000)"), TIMEOUT),
    body(
        "prints too much and hides it",
        "try:\n    print('x' * 10 ** 6)\nexcept BaseException:\n    pass\nreturn x",
        OUTPUT_LIMIT,
    ),
    body("writes to the first output", "os.write(1, b'x')", ERROR, says="Errno 9"),
    body(
        "floods every descriptor",
        "descriptor = itertools.cycle(range(100))\n" + swallowing("os.write(next(descriptor), b'x' * 4096)"),
        OUTPUT_LIMIT,
    ),
    body("huge answer", "return 'x' * 10 ** 7", OUTPUT_LIMIT),
    body("huge integer", "return 1 << 10 ** 7", OUTPUT_LIMIT),
    body("answer that unfolds", "for _ in range(40):\n    x = [x, x]\nreturn x", OUTPUT_LIMIT),
    body("huge text of an exception", "raise ValueError('x' * 10 ** 7)", ERROR, says="^ValueError: xxx"),
    body(
        "huge text of an object",
        "class Text(str):\n    def __repr__(self):\n        return 'x' * 10 ** 7\nreturn Text()",
        NOT_PLAIN_DATA,
    ),
)

ANSWERS = (
    body(
        "forges the replies of others",
        f"for descriptor in range(100):\n    try:\n        os.write(descriptor, {FORGED_FRAMES!r})\n"
        "    except OSError:\n        pass\nos._exit(0)",
        ERROR,
        says="answers came for 1 inputs",
    ),
    body(
        "forges a verdict of the runner",
        "for descriptor in range(100):\n    try:\n        os.write(descriptor, b'\\x06')\n"
        "    except OSError:\n        pass\nos._exit(0)",
        ERROR,
    ),
    body("exits with success", "os._exit(0)", ERROR),
    body("exits by libc", "libc._exit(0)", ERROR),
    body("raises SystemExit", "raise SystemExit(0)", ERROR),
    body("raises KeyboardInterrupt", "raise KeyboardInterrupt", ERROR),
    body("aborts", "libc.abort()", KILLED),
    body("segmentation fault", "ctypes.string_at(0)", KILLED, says="signal 11"),
    body("corrupts the interpreter", "ctypes.memset(id(None), 255, 64)\nreturn None", KILLED, ERROR),
    body("recursion", "return f(x)", ERROR, says="RecursionError"),
    body("deep answer", "for _ in range(10 ** 5):\n    x = [x]\nreturn x", NOT_PLAIN_DATA),
    body("answer that holds itself", "x = []\nx.append(x)\nreturn x", NOT_PLAIN_DATA),
    whole("deep program", f"def f(x): return {'(' * 9999}", SYNTAX_ERROR),
    body(
        "object equal to everything",
        "class Yes(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\nreturn Yes(x)",
        NOT_PLAIN_DATA,
    ),
    body(
        "text equal to everything",
        "class Yes(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\nreturn [Yes()]",
        NOT_PLAIN_DATA,
    ),
    body(
        "object that lies about its class", "class Liar:\n    __class__ = int\nreturn Liar()", NOT_PLAIN_DATA
    ),
    body(
        "answer that is code",
        "class Code:\n    def __repr__(self): return 'exit()'\n    def bit_length(self): return 1\n"
        "builtins.type = lambda value: int\nreturn Code()",
        NOT_PLAIN_DATA,
    ),
    body(
        "patches the runner",
        "main = sys.modules['__main__']\n"
        "for name in ('evaluate', 'literal', 'write_reply', 'lock_down', 'describe'):\n"
        "    setattr(main, name, lambda *arguments: (0, '9999'))\n"
        "for name in ('len', 'repr', 'sorted', 'range', 'isinstance'):\n"
        "    setattr(builtins, name, lambda *arguments: 9999)\n"
        "os._exit = os.write = lambda *arguments: 0\nreturn x",
        ERROR,
    ),
)

FILES = (
    body("reads a file", "return open('/etc/passwd').read()", ERROR, says=REFUSED),
    body("reads the runner", "return open('/runner.py').read()", ERROR, says=REFUSED),
    body("reads the memory of the runner", "return open('/proc/1/mem', 'rb').read(8)", ERROR, says=REFUSED),
    body("lists a folder", "return os.listdir('/')", ERROR, says=REFUSED),
    body("writes a file", "open('/tmp/left', 'w').write('x')", ERROR, says=REFUSED),
    body("becomes root", "os.setuid(0)", ERROR, says=REFUSED),
    body(
        "reads the buffers of the runner",
        "frame = sys._getframe()\nwhile '_request' not in getattr(frame.f_locals.get('self'), '__dict__', {}):\n"
        "    frame = frame.f_back\nreturn bytes(frame.f_locals['self']._request.view[:9])",
        KILLED,
        says="signal 11",
    ),
)

ATTACKS = (*TIME, *SIGNALS, *PROCESSES, *MEMORY, *OUTPUT, *ANSWERS, *FILES)


# System calls of x86_64, by number

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
    TIMEOUT,
)

FOREIGN_SYSTEM_CALL = body(
    "system call of another architecture",
    """
api = ctypes.pythonapi
near = [ctypes.cast(call, ctypes.c_void_p).value for call in (api.PyObject_Call, api.Py_Main, api.PyList_New)]
text = ctypes.string_at(min(near), max(near) - min(near))
return ctypes.CFUNCTYPE(ctypes.c_int)(min(near) + text.index(b"\\xcd\\x80"))()  # the gate of 32-bit programs
""",
    KILLED,
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


# What one program may leave or find

SECRET = "sesame-" + "-".join(["kind", *map(str, range(600))])
"""Long, as a short one might be overwritten in part and so be missed."""

FIND_SECRETS = f"""{PREAMBLE}
libc.sbrk.restype = ctypes.c_void_p
MIB, PAGE, POPULATE_READ = 1 << 20, 1 << 12, 22
def readable(start, size):
    return libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), POPULATE_READ) == 0
def count(start, size):
    return sum(1 for _ in re.finditer(rb"s[e]same-[a-z]", ctypes.string_at(start, size)))
def f(own):
    block = ctypes.create_string_buffer(1 << 19)
    functions = libc.qsort, ctypes.pythonapi.Py_Main
    places = [libc.sbrk(0), id(None), id(block), ctypes.addressof(block)]
    places += [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    places += [ctypes.c_void_p.in_dll(libc, "__libc_stack_end").value]
    blocks = {{place // MIB + n for place in places for n in range(-24, 24)}}
    found = seen = 0
    for start in sorted(block * MIB for block in blocks):
        size = MIB if readable(start, MIB) else PAGE
        for part in range(start, start + MIB, size):
            if size == MIB or readable(part, size):
                found += count(part, size)
                seen += size
    return found, seen // MIB
"""
"""Counts secrets in all memory around the heap, the objects, large blocks, the libraries and the stack."""

LEAVE_TRACES = f"""{PREAMBLE}
def f(x):
    tries = [
        lambda: open('/tmp/left', 'w').write('x'),
        lambda: open('/left', 'w').write('x'),
        lambda: open('/dev/shm/left', 'w').write('x'),
        lambda: os.fork(),
        lambda: _thread.start_new_thread(time.sleep, (60,)),
        lambda: libc.shmget(7, 4096, 0o1666),
        lambda: libc.msgget(7, 0o1666),
        lambda: libc.syscall(248, b'user', b'left', b'x', 1, -4),
        lambda: os.environ.update(LEFT='x'),
        lambda: sys.path.append('/left'),
        lambda: sys.modules.update(left=sys),
        lambda: setattr(builtins, 'sorted', lambda items: ['left']),
        lambda: setattr(builtins, 'left', 1),
        lambda: setattr(sys.modules['__main__'], 'evaluate', lambda *a: (0, '"left"')),
        lambda: setattr(sys.modules['math'], 'gcd', lambda *a: 'left'),
        lambda: setattr(sys.modules['json'], 'loads', lambda body: {{'program': 'left', 'inputs': []}}),
        lambda: sys.setrecursionlimit(50),
        lambda: sys.set_int_max_str_digits(0),
        lambda: sys.modules['decimal'].getcontext().__setattr__('prec', 3),
        lambda: gc.disable(),
        lambda: ctypes.memset(id(5) + 24, 9, 1),  # 5 is 9 from now on
    ]
    for attempt in tries:
        try:
            attempt()
        except BaseException:
            pass
    return 'done'
"""

FIND_TRACES = f"""{PREAMBLE}
import decimal, math
def f(x):
    found = [name for name in ('/tmp/left', '/left', '/dev/shm/left') if libc.access(name.encode(), 0) == 0]
    found += [name for name in ('LEFT',) if name in os.environ]
    found += [name for name in sys.path]
    found += [name for name in sys.modules if name == 'left']
    found += [name for name in dir(builtins) if name == 'left']
    state = sorted([3, 1]), math.gcd(4, 6), sys.getrecursionlimit() % 200, sys.get_int_max_str_digits()
    return found, state, decimal.getcontext().prec, gc.isenabled(), x + 2
"""
