"""Programs that leave something behind, and programs that look for it."""

from __future__ import annotations

from attacks import PREAMBLE

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
