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
    body(
        "many small allocations", "while True:\n    keep.append(bytes(400))", OOM
    ),  # of pymalloc, in little time
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
