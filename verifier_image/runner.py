"""The runner: PID 1 of a sandbox, runs each untrusted program in a forked child that can only compute.

One file, standard library only, Python 3.9 or later. It is started as `python3 runner.py SETTINGS`, where
SETTINGS is a JSON object (see `Settings`), and speaks frames on standard input and output, or on a socket:

    request   id (8 bytes), body length (4), body: 1 for a repeat or 0 (1), the program, then every input, each
              after its length (4)
    reply     id (8), status (1, an index into STATUSES), CPU seconds (double), payload length (4), payload

The first reply, id 0, says that the runner is ready; a last one, id LAST_WORDS, why it ends before its time.
Replies come in the order of the requests. The end of standard input ends the runner and with it, as it is
PID 1, everything in the sandbox.

What keeps programs apart:

- The runner never parses a request or an answer. Their bytes live only in mappings that a fork does not copy
  (MADV_DONTFORK), so no child finds another job's program, inputs or answer in its own memory.
- A child reads its request from a pipe, then gives up everything but one pipe for its answer: descriptors,
  privileges, resources and, by a seccomp allow-list, every system call that computing does not need. It
  cannot open, connect, fork, execute, signal or trace. The runner tries this out before it says ready.
- The id and the status of a reply are the runner's. The payload is the child's and not to be trusted: a
  program can forge its own answer, as it can compute any answer, and nothing else.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import gc
import importlib
import io
import json
import math
import mmap
import os
import resource
import select
import signal
import struct
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

REQUEST = struct.Struct(">QI")
LENGTH = struct.Struct(">I")
REPLY = struct.Struct(">QBdI")
LAST_WORDS = 2**64 - 1
STATUSES = ("ok", "syntax_error", "error", "oom", "output_limit", "not_plain_data", "timeout", "killed")
OK, SYNTAX_ERROR, ERROR, OOM, OUTPUT_LIMIT, NOT_PLAIN_DATA, TIMEOUT, KILLED = range(len(STATUSES))
CHILD_STATUSES = (OK, SYNTAX_ERROR, ERROR, OOM, OUTPUT_LIMIT, NOT_PLAIN_DATA)

MAX_DESCRIPTORS = 64  # bounds what a child has to close
MAX_INT_BITS = 14_000  # about 4200 digits: beyond 4300 Python itself refuses to turn text into an integer
MAX_ERROR_BYTES = 500
REPEAT = b"\x01"
REPEAT_DEPTH, REPEAT_MEMORY = 200, 5 << 20
"""What a repeat may take beyond the first run: a program that says how deep or how much it got says something else."""
ADDRESS_SPACE_END = 1 << 47
NOT_LOCKED = signal.SIGUSR1
"""Ends a child that could not lock itself down; a locked one can send no signal, so no program feigns it."""


@dataclass(frozen=True)
class Settings:
    """The limits of one program with all its inputs, and what its child may use.

    Attributes:
        wall_seconds: a program that uses less than `progress_seconds` of CPU time in this time sleeps, and
            ends; one that does more waits for its turn on a busy machine, and goes on.
        memory_bytes: address space that a program may take beyond what the interpreter itself takes.
        output_bytes: cap on all the answers of one program together, and on what it prints.
        literal_chars: cap on one answer.
        literal_depth: cap on the nesting of one answer.
        modules: imported before the first fork, since a child can open no file to import from.
        uids: first and number of the user ids that children take in turn; None keeps the runner's own.
        socket: path of the socket to connect to; None keeps standard input and output.
    """

    cpu_seconds: float
    wall_seconds: float
    progress_seconds: float
    memory_bytes: int
    output_bytes: int
    literal_chars: int
    literal_depth: int
    request_bytes: int
    modules: list[str]
    uids: tuple[int, int] | None
    socket: str | None


# The machine: system calls and the filter that takes them away


class SockFilter(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jump_true", ctypes.c_ubyte),
        ("jump_false", ctypes.c_ubyte),
        ("operand", ctypes.c_uint32),
    )


class SockProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(SockFilter)))


@dataclass(frozen=True)
class Machine:
    """What the filter needs to know of a machine type.

    Attributes:
        audit: the kernel's name of the architecture.
        allowed: write, brk, munmap, madvise, clock_gettime, restart_syscall, exit, exit_group. Neither read
            nor close: the request has been read, and as a child cannot close its answer's pipe, the end of
            that pipe is the end of the child. Nor sleep: nothing else happens that could be waited for.
        mmap, mprotect, mremap, futex: calls that `tests_of` lets through with some arguments only.
        timer_create, timer_settime: what the confinement itself calls, by number as older C libraries lack them.
    """

    audit: int
    allowed: tuple[int, ...]
    mmap: int
    mprotect: int
    mremap: int
    futex: int
    timer_create: int
    timer_settime: int


MACHINES = {
    "x86_64": Machine(
        audit=0xC000003E,
        allowed=(1, 12, 11, 28, 228, 219, 60, 231),
        mmap=9,
        mprotect=10,
        mremap=25,
        futex=202,
        timer_create=222,
        timer_settime=223,
    ),
    "aarch64": Machine(
        audit=0xC00000B7,
        allowed=(64, 214, 215, 233, 113, 128, 93, 94),
        mmap=222,
        mprotect=226,
        mremap=216,
        futex=98,
        timer_create=107,
        timer_settime=110,
    ),
}

BPF_LOAD, BPF_JUMP_IF_EQUAL, BPF_JUMP_IF_SET, BPF_RETURN = 0x20, 0x15, 0x45, 0x06
CALL_NUMBER, CALL_AUDIT, CALL_ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data, little endian
KILL_PROCESS, REFUSE, ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
ALL_BITS = 0xFFFFFFFF
PROT_EXEC = 4
MAP_FIXED, MAP_FIXED_NOREPLACE = 0x10, 0x100000
MREMAP_FIXED, MREMAP_DONTUNMAP = 2, 4
FUTEX_WAIT, FUTEX_WAKE, FUTEX_WAIT_BITSET, FUTEX_PRIVATE, FUTEX_REALTIME = 0, 1, 9, 128, 256

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38
SECCOMP_MODE_FILTER = 2
CLOCK_PROCESS_CPUTIME_ID = 2

libc = ctypes.CDLL(None, use_errno=True)
system_call = libc.syscall  # found once, here: the search for a name touches more pages than the call


def no_bits(argument: int, bits: int, high: bool = False) -> list[tuple[int, int, int, int]]:
    """Lines that refuse a call whose argument has one of the bits, in its lower or its higher half."""
    return [
        (BPF_LOAD, 0, 0, CALL_ARGUMENTS + 8 * argument + 4 * high),
        (BPF_JUMP_IF_SET, 0, 1, bits),
        (BPF_RETURN, 0, 0, REFUSE),
    ]


def one_of(argument: int, values: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Lines that refuse a call unless the lower half of its argument is one of the values."""
    found = [(BPF_JUMP_IF_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    load = (BPF_LOAD, 0, 0, CALL_ARGUMENTS + 8 * argument)
    return [load, *found, (BPF_RETURN, 0, 0, REFUSE)]


def tests_of(machine: Machine) -> dict[int, list[tuple[int, int, int, int]]]:
    """What the arguments of some calls must pass.

    Memory is never executable, and lies where the kernel puts it, side by side: pages strewn over the address space
    would take a table each, which no limit of the process counts. A futex is this process's own: what is shared with
    another, such as a library's page, is no place to meet.
    """
    anywhere = no_bits(0, ALL_BITS) + no_bits(0, ALL_BITS, high=True)
    waits = (FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAIT_BITSET | FUTEX_REALTIME, FUTEX_WAKE)
    return {
        machine.mmap: anywhere + no_bits(2, PROT_EXEC) + no_bits(3, MAP_FIXED | MAP_FIXED_NOREPLACE),
        machine.mprotect: no_bits(2, PROT_EXEC),
        machine.mremap: no_bits(3, MREMAP_FIXED | MREMAP_DONTUNMAP),
        machine.futex: one_of(1, tuple(FUTEX_PRIVATE | wait for wait in waits)),
    }


def build_filter(machine: Machine) -> SockProgram:
    """An allow-list in BPF: any other call fails with EPERM, a foreign architecture's call kills."""
    lines = [
        (BPF_LOAD, 0, 0, CALL_AUDIT),
        (BPF_JUMP_IF_EQUAL, 1, 0, machine.audit),
        (BPF_RETURN, 0, 0, KILL_PROCESS),
        (BPF_LOAD, 0, 0, CALL_NUMBER),
    ]
    for number in machine.allowed:
        lines += [(BPF_JUMP_IF_EQUAL, 0, 1, number), (BPF_RETURN, 0, 0, ALLOW)]
    for number, tests in tests_of(machine).items():
        lines += [
            (BPF_JUMP_IF_EQUAL, 0, len(tests) + 1, number),
            *tests,
            (BPF_RETURN, 0, 0, ALLOW),
        ]
    lines.append((BPF_RETURN, 0, 0, REFUSE))
    return SockProgram(len(lines), (SockFilter * len(lines))(*[SockFilter(*line) for line in lines]))


def prctl(option: int, first: object, second: object = 0) -> None:
    if libc.prctl(option, first, second, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


class Timer:
    """SIGALRM after so much CPU time of the calling process, which ends C code and catch-all loops too.

    Not setitimer: its CPU time is counted in ticks, and on a busy machine it can fire a fifth too early.
    """

    def __init__(self, cpu_seconds: float, machine: Machine) -> None:
        nanoseconds = int(cpu_seconds * 1e9)
        first_and_only = (ctypes.c_long * 4)(0, 0, nanoseconds // 10**9, nanoseconds % 10**9)
        number = ctypes.c_int()  # stays 0: a process has no other timer
        self._create = (machine.timer_create, CLOCK_PROCESS_CPUTIME_ID, None, ctypes.byref(number))
        self._settime = (machine.timer_settime, 0, 0, ctypes.byref(first_and_only), None)

    def start(self) -> None:
        if system_call(*self._create) != 0 or system_call(*self._settime) != 0:
            raise OSError(ctypes.get_errno(), "timer")


# The child


class Refused(BaseException):
    """Ends a program with a status; a BaseException, so that `except Exception` does not swallow it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Printed(io.TextIOBase):
    """Standard output and error of a program: counted against the cap, kept nowhere."""

    def __init__(self, cap: int) -> None:
        self._room = cap

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._room -= len(text)
        self.check()
        return len(text)

    def check(self) -> None:
        """Raises `Refused` once too much was printed, again for a program that caught it the first time."""
        if self._room < 0:
            raise Refused(OUTPUT_LIMIT, "the program printed more than the output limit")


class Confinement:
    """Gives up, for good, everything that computing does not need.

    All that can be made ready is made ready before the fork: in a child each first touch of a page costs.
    """

    def __init__(self, settings: Settings, machine: Machine) -> None:
        self._timer = Timer(settings.cpu_seconds, machine)
        self._system_calls = build_filter(machine)
        self._filter = ctypes.byref(self._system_calls)
        cpu = math.ceil(1.5 * settings.cpu_seconds) + 1  # in whole seconds, and ticks: backs the timer
        self._limits = [
            (limit, _bounded(limit, value))
            for limit, value in (
                (resource.RLIMIT_CPU, cpu),
                (resource.RLIMIT_NOFILE, 0),
                (resource.RLIMIT_NPROC, 0),
            )
        ]
        self.limit_memory(ADDRESS_SPACE_END)

    def limit_memory(self, address_space: int) -> None:
        """From now on, confine with this limit."""
        self._memory = tuple(
            _bounded(resource.RLIMIT_AS, address_space + more) for more in (0, REPEAT_MEMORY)
        )

    def confine(self, uid: int | None, repeat: bool = False) -> None:
        """Confine the calling process, under another user id if one is given; a repeat has a little more memory."""
        os.setsid()
        if uid is not None:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        for limit, pair in self._limits:
            resource.setrlimit(limit, pair)
        resource.setrlimit(resource.RLIMIT_AS, self._memory[repeat])
        prctl(PR_SET_DUMPABLE, 0)
        self._timer.start()
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, self._filter)


def _bounded(limit: int, value: int) -> tuple[int, int]:
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return value, value


def literal(value: object, max_chars: int, max_depth: int) -> str:
    """The literal of plain data: None, bool, int, finite float, str, list, tuple, dict, set of exact types.

    Raises:
        Refused: NOT_PLAIN_DATA for anything else, OUTPUT_LIMIT when the text would be too long.
    """
    parts: list[str] = []
    room = max_chars

    def write(text: str) -> None:
        nonlocal room
        room -= len(text)
        if room < 0:
            raise Refused(OUTPUT_LIMIT, f"the literal of an answer has more than {max_chars} characters")
        parts.append(text)

    def write_items(items: list[Any], left: str, right: str, depth: int) -> None:
        write(left)
        for index, item in enumerate(items):
            if index:
                write(", ")
            visit(item, depth - 1)
        write(right)

    def visit(item: Any, depth: int) -> None:
        if depth < 0:
            raise Refused(NOT_PLAIN_DATA, f"an answer is nested deeper than {max_depth}")
        kind = type(item)
        if item is None or kind is bool:
            write(repr(item))
        elif kind is int:
            if item.bit_length() > MAX_INT_BITS:
                raise Refused(OUTPUT_LIMIT, f"an integer of an answer has more than {MAX_INT_BITS} bits")
            write(repr(item))
        elif kind is float and math.isfinite(item):
            write(repr(item))
        elif kind is str:
            write(repr(item) if len(item) <= room else item)  # a huge text is refused before it is copied
        elif kind is list:
            write_items(item, "[", "]", depth)
        elif kind is tuple:
            write_items(list(item), "(", ",)" if len(item) == 1 else ")", depth)
        elif kind is set:
            write_items(list(item), *(("{", "}") if item else ("set(", ")")), depth)
        elif kind is dict:
            write("{")
            for index, (key, entry) in enumerate(item.items()):
                if index:
                    write(", ")
                visit(key, depth - 1)
                write(": ")
                visit(entry, depth - 1)
            write("}")
        else:
            raise Refused(NOT_PLAIN_DATA, f"an answer holds a {kind.__name__}, which is not plain data")

    visit(value, max_depth)
    return "".join(parts)


def arguments(text: str) -> tuple[object, ...]:
    """The arguments that a literal denotes. The host has parsed it as one; in here `eval` costs least."""
    value = eval(text, {"__builtins__": {}, "set": set})
    if type(value) is tuple:
        return value
    raise Refused(ERROR, "an input is not the literal of an argument tuple")


def describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return type(error).__name__


def evaluate(
    program: str, inputs: list[str], repeat: bool, settings: Settings, printed: Printed
) -> tuple[int, str]:
    """Run the program once, then its `f` on fresh arguments from each input; status and payload.

    A repeat runs the program again before each input, so that nothing is left of earlier calls.
    """
    try:
        code = compile(program, "<program>", "exec", dont_inherit=True)
    except MemoryError:
        return OOM, "the compiler ran out of memory"
    except (SyntaxError, ValueError, RecursionError) as error:
        return SYNTAX_ERROR, describe(error)
    try:
        function = entry(code)
        answers: list[str] = []
        room = settings.output_bytes
        for index, text in enumerate(inputs):
            if repeat and index:
                function = entry(code)
            value = function(*arguments(text))
            answer = literal(value, settings.literal_chars, settings.literal_depth)
            room -= len(answer.encode()) + 1
            if room < 0:
                return OUTPUT_LIMIT, f"the answers have more than {settings.output_bytes} bytes"
            answers.append(answer)
        printed.check()
        return OK, "\n".join(answers)  # a literal holds no line end
    except Refused as refused:
        return refused.status, refused.reason
    except MemoryError:
        return OOM, "MemoryError"
    except BaseException as error:
        return ERROR, describe(error)


def entry(code: types.CodeType) -> Callable[..., object]:
    """The `f` of a module in which the program has just run.

    Raises:
        Refused: it defines none.
    """
    module = types.ModuleType("program")
    sys.modules["program"] = module  # where dataclasses and enum look for the module of a class
    exec(code, module.__dict__)
    function = module.__dict__.get("f")
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise Refused(ERROR, "the program defines no function f")


def unsettle() -> list[object]:
    """What must be kept, so that a program finds what it could only find by chance changed: places in memory, depth.

    One block more is taken of each size, and of some two or three; the next object of that size lies elsewhere.
    """
    sys.setrecursionlimit(sys.getrecursionlimit() + REPEAT_DEPTH)
    return [bytes(size) for size in range(0, 1024, 8) for _ in range(1 + size // 16 % 3)]


def texts(body: bytes) -> Iterator[str]:
    """The program and its inputs."""
    start = 1
    while start < len(body):
        (length,) = LENGTH.unpack_from(body, start)
        start += LENGTH.size + length
        yield body[start - length : start].decode("utf-8", "surrogatepass")


def child(
    request: int,
    length: int,
    answer: int,
    settings: Settings,
    printed: Printed,
    confine: Callable[[bool], None],
) -> NoReturn:
    """The whole life of one program. Nothing of it runs before it is confined."""
    try:
        body = os.read(request, length)
        while len(body) < length:
            body += os.read(request, length - len(body))
        os.closerange(0, answer)
        os.closerange(answer + 1, MAX_DESCRIPTORS)
        gc.enable()
        repeat = body[:1] == REPEAT
        kept = unsettle() if repeat else []
        confine(repeat)
    except BaseException:
        os.kill(os.getpid(), NOT_LOCKED)
        os._exit(1)
    try:
        program, *inputs = texts(body)
        status, text = evaluate(program, inputs, repeat, settings, printed)
        del kept
        payload = text.encode("utf-8", "backslashreplace")
        payload = bytes([status]) + (payload if status == OK else payload[:MAX_ERROR_BYTES])
        while payload:
            payload = payload[os.write(answer, payload) :]
    finally:
        os._exit(0)


# The runner


class Region:
    """Anonymous memory that forked children do not have."""

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._map.madvise(mmap.MADV_DONTFORK)
        self.view = memoryview(self._map)


@dataclass(frozen=True)
class Reply:
    status: int
    cpu_seconds: float
    payload: memoryview | bytes = b""


class Runner:
    """Answers requests one at a time; `run` is the life of one child seen from outside."""

    def __init__(self, settings: Settings, machine: Machine) -> None:
        self._settings = settings
        self._confinement = Confinement(settings, machine)
        self._printed = Printed(settings.output_bytes)
        sys.stdin, sys.stdout, sys.stderr = io.StringIO(), self._printed, self._printed  # the children's
        self._request = Region(settings.request_bytes)
        self._answer = Region(1 + max(settings.output_bytes, MAX_ERROR_BYTES) + 1)  # status, text, too much
        self._uids = self._turns(settings.uids)
        self._confinement.limit_memory(self._try_out() + settings.memory_bytes)

    @staticmethod
    def _turns(uids: tuple[int, int] | None) -> Iterator[int | None]:
        while True:
            if uids is None:
                yield None
            else:
                first, count = uids
                yield from range(first, first + count)

    def serve(self) -> None:
        """Answer requests until standard input ends."""
        header = bytearray(REQUEST.size)  # holds nothing of a job but its number and length
        while read_fully(memoryview(header)):
            number, length = REQUEST.unpack(header)
            if length > len(self._request.view):
                sys.exit(f"a request of {length} bytes is larger than request_bytes")
            body = self._request.view[:length]
            if not read_fully(body):
                return
            write_reply(number, self.run(body))

    def run(self, body: memoryview) -> Reply:
        """Run one request in a child of its own and leave no process behind."""
        request_read, request_write = os.pipe()
        answer_read, answer_write = os.pipe()
        os.set_blocking(request_write, False)
        rest = body[os.write(request_write, body) :]
        confine = partial(self._confinement.confine, next(self._uids))
        pid = os.fork()
        if pid == 0:
            os.close(request_write)
            child(request_read, len(body), answer_write, self._settings, self._printed, confine)
        os.close(request_read)
        os.close(answer_write)
        stopped, received = self._exchange(pid, rest, request_write, answer_read)
        os.close(request_write)
        os.close(answer_read)
        os.kill(pid, signal.SIGKILL)  # changes nothing for a child that is already exiting
        _, ended, usage = os.wait4(pid, 0)
        self._end_survivors()
        cpu = usage.ru_utime + usage.ru_stime
        if stopped is not None:
            return Reply(stopped, cpu)
        if os.WIFSIGNALED(ended):
            number = os.WTERMSIG(ended)
            if number == NOT_LOCKED:
                sys.exit("a child could not lock itself down")
            if number in (signal.SIGALRM, signal.SIGXCPU) or cpu >= self._settings.cpu_seconds:
                return Reply(TIMEOUT, cpu)
            return Reply(KILLED, cpu, f"ended by signal {number}".encode())
        answer = self._answer.view[:received]
        if received == 0 or answer[0] not in CHILD_STATUSES:
            return Reply(ERROR, cpu, b"the program ended its process before it answered")
        return Reply(answer[0], cpu, answer[1:])

    def _exchange(self, pid: int, rest: memoryview, request: int, answer: int) -> tuple[int | None, int]:
        """Hand over the rest of the request and collect the answer until the child closes its pipe or must be stopped.

        Returns:
            The status, if the child must be stopped, and the number of bytes of the answer.
        """
        cpu = (~pid << 3) | CLOCK_PROCESS_CPUTIME_ID  # the clock of the child, by the kernel's numbering
        deadline = expected = 0.0
        poll = select.poll()
        poll.register(0, 0)  # reports only that the other side hung up
        poll.register(answer, select.POLLIN)
        if rest:
            poll.register(request, select.POLLOUT)
        room = self._answer.view
        received = 0
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                used = time.clock_gettime(cpu)
                if used < expected:
                    return TIMEOUT, 0
                expected = used + self._settings.progress_seconds
                left = self._settings.wall_seconds
                deadline = time.monotonic() + left
            for ready, _ in poll.poll(left * 1000):
                if ready == 0:
                    os._exit(0)
                elif ready == answer:
                    count = os.readv(answer, [room[received:]])
                    if count == 0:
                        return None, received
                    received += count
                    if received == len(room):
                        return OUTPUT_LIMIT, 0
                else:
                    try:
                        rest = rest[os.write(request, rest) :]
                    except BrokenPipeError:
                        rest = rest[:0]
                    if not rest:
                        poll.unregister(request)

    @staticmethod
    def _end_survivors() -> None:
        """A locked child cannot fork; should one ever have, its processes end here, before the next job."""
        while True:
            try:
                os.waitpid(-1, os.WNOHANG)
                os.kill(-1, signal.SIGKILL)  # as PID 1: everything else in the sandbox
            except (ChildProcessError, ProcessLookupError):
                return

    def _try_out(self) -> int:
        """Lock a child down and let it try what it must not be able to do.

        Returns:
            The address space in bytes that a child has from the start.

        Raises:
            SystemExit: the confinement does not hold on this machine.
        """
        read, write = os.pipe()
        uid = next(self._uids)
        pid = os.fork()
        if pid == 0:
            try:
                base = address_space()
                self._confinement.confine(uid)
                if all(attempt() == -1 and ctypes.get_errno() == errno.EPERM for attempt in FORBIDDEN):
                    os.write(write, base.to_bytes(8, "big"))
            finally:
                os._exit(0)
        os.close(write)
        answer = os.read(read, 8)
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._end_survivors()
        if len(answer) < 8:
            sys.exit(
                "the confinement does not hold: a child could open, connect, fork, signal or share memory"
            )
        return int.from_bytes(answer, "big")


FORBIDDEN: tuple[Callable[[], int], ...] = (
    lambda: libc.open(b"/", os.O_RDONLY),
    lambda: libc.socket(2, 1, 0),
    lambda: libc.fork(),
    lambda: libc.kill(1, 0),
    lambda: libc.shmget(0, 4096, 0o600),
    lambda: libc.getppid(),
)
"""What the filter refuses with EPERM. Without it, other layers would refuse some with other errors."""


def address_space() -> int:
    """Bytes of address space that this process has mapped, found without /proc: by bisecting RLIMIT_AS."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    low, high = 0, ADDRESS_SPACE_END if hard == resource.RLIM_INFINITY else hard
    while high - low > mmap.PAGESIZE:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
        try:
            mmap.mmap(-1, mmap.PAGESIZE).close()
            high = middle
        except (OSError, MemoryError):
            low = middle
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    return high


def read_fully(room: memoryview) -> bool:
    """Fill the room from standard input, without a copy elsewhere; False if it ended first."""
    while room:
        count = os.readv(0, [room])
        if count == 0:
            return False
        room = room[count:]
    return True


def write_reply(number: int, reply: Reply) -> None:
    parts = [REPLY.pack(number, reply.status, reply.cpu_seconds, len(reply.payload)), reply.payload]
    while parts:
        count = os.writev(1, parts)
        while parts and count >= len(parts[0]):
            count -= len(parts.pop(0))
        if parts:
            parts[0] = memoryview(parts[0])[count:]


def connect(path: str) -> None:
    """Make the socket standard input and output. Not by `socket`, which every child would then have loaded."""
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    link.connect(path)
    os.dup2(link.fileno(), 0)
    os.dup2(link.fileno(), 1)
    link.close()


def main() -> None:
    settings = Settings(**json.loads(sys.argv[1]))
    if settings.socket is not None:
        connect(settings.socket)
    try:
        serve(settings)
    except BaseException as error:
        write_reply(LAST_WORDS, Reply(KILLED, 0.0, describe(error).encode()))
        sys.exit(1)


def serve(settings: Settings) -> None:
    if os.getpid() != 1:
        sys.exit("the runner must be PID 1 of a sandbox: it ends every other process that it can see")
    machine = MACHINES.get(os.uname().machine)
    if machine is None:
        sys.exit(f"no system-call filter for {os.uname().machine}, only for {', '.join(MACHINES)}")
    for name in settings.modules:
        importlib.import_module(name)
    if sys.version_info >= (3, 12):
        importlib.import_module("_pylong")  # which big integers load on first use
    sys.argv[1:] = []
    sys.path.clear()
    os.environ.clear()
    for limit, value in (
        (resource.RLIMIT_NOFILE, MAX_DESCRIPTORS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, _bounded(limit, value))
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if settings.uids is not None:
        os.setgroups([])
    eval("(1,)")  # the first call loads what later ones share
    for number in (signal.SIGALRM, signal.SIGXCPU, NOT_LOCKED):
        signal.signal(number, signal.SIG_DFL)  # what the host ignores or blocks outlives exec and fork
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    gc.disable()
    gc.freeze()  # a collection in a child would copy every page that holds an object
    runner = Runner(settings, machine)
    hello = {"python": ".".join(map(str, sys.version_info[:3])), "statuses": STATUSES}
    write_reply(0, Reply(OK, 0.0, json.dumps(hello).encode()))
    runner.serve()


if __name__ == "__main__":
    main()
