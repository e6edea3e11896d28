from __future__ import annotations

import pytest
from attack_calls import MACHINE_CODE
from attacks import ATTACKS

from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict, attempt_verdict, proposal_verdict
from populora_core.sandbox.policy import MAX_PROGRAM_CHARS, refuse_program
from populora_core.sandbox.status import Status


@pytest.mark.parametrize(
    "program",
    [
        "def f(x):\n    return x + 1",
        "import math\nfrom collections import Counter, deque\ndef f(x):\n    return math.gcd(x, 4)",
        "import collections.abc\ndef f(x):\n    return isinstance(x, collections.abc.Sized)",
        "class A:\n    def __init__(self, n):\n        self.n = n\n    def __eq__(self, other): return True\n"
        "class B(A):\n    def __init__(self): super().__init__(1)\ndef f(x):\n    return B().n",
        "def f(input, id):\n    return input + id",
        "def f(x):\n    vars = [x]\n    return vars",
        "if __name__ == '__main__':\n    pass\ndef f(x):\n    print(x)\n    return x",
        "def f(x):\n    return '__' + x + '_name_' + '_____'",
        "def f(x):\n    match x:\n        case {'id': id}:\n            return id",
        "def f(x):\n    match x:\n        case [dir, *vars]:\n            return dir, vars",
        "def f(x):\n    match x:\n        case {'a': 1, **locals}:\n            return locals",
        "def f(x):\n    match x:\n        case int() | str() as input:\n            return input",
        "def f(x):\n    try:\n        return 1 // x\n    except ZeroDivisionError as exit:\n        return str(exit)",
        "from re import compile\nimport math as help\ndef f(x):\n    return bool(compile(x)), help.pi",
        "class A:\n    __slots__ = ('x', 'y')\n    def __init__(self, x): self.x = x\ndef f(x):\n    return A(x).x",
        "class A:\n    def __str__(self): return 'a'\n    __repr__ = __str__\ndef f(x):\n    return repr(A())",
        "class A:\n    def __add__(self, n): return n\n    __radd__ = __add__\ndef f(x):\n    return x + A()",
    ],
)
def test_programs_that_only_compute_pass(program: str) -> None:
    assert refuse_program(program) is None


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("import os\ndef f(x): return 1", "os"),
        ("import os.path, math\ndef f(x): return 1", "os.path"),
        ("from time import time\ndef f(x): return time()", "time"),
        ("def f(x):\n    import random\n    return random.random()", "random"),
        ("from . import os\ndef f(x): return 1", "."),
        ("import sys\ndef f(x): return sys.flags", "sys"),
        ("def f(x): return eval(x)", "eval"),
        ("def f(x): return open(x)", "open"),
        ("def f(x): return __import__('os')", "__import__"),
        ("def f(x): return input()", "input"),
        ("def f(x): return id(x)", "id"),
        ("def f(x): return x.__class__", "__class__"),
        ("def f(x): return __builtins__", "__builtins__"),
        ("from functools import __builtins__ as b\ndef f(x): return b['open'](x)", "__builtins__"),
        ("def f(x):\n    match f:\n        case object(__globals__=g):\n            return g", "__globals__"),
        ("def f(x): return getattr(x, 'a')", "getattr"),
        ("def f(x): return (i for i in x).gi_frame", "gi_frame"),
        ("def f(x):\n    y = x.f_globals\n    return y", "f_globals"),
        ("def f(x): return '{0.__class__}'.format(x)", "__class__"),
        ("import operator\ndef f(x): return operator.methodcaller('__reduce__')(x)", "__reduce__"),
        ("def f(x): return f'{x}__dict__'", "__dict__"),
        ("def f(x):\n    match x:\n        case {'id': n}:\n            return id(n)", "id"),
        (
            "def f(x):\n    try:\n        x()\n    except Exception as error:\n        return vars(error)",
            "vars",
        ),
        ("import math as m\ndef f(x):\n    return m.pi, locals()", "locals"),
        ("class A:\n    __slots__ = ('__dict__',)\ndef f(x): return 1", "__dict__"),
        ("class A:\n    __repr__ = __import__\ndef f(x): return repr(A())", "__repr__"),
        ("class A:\n    __class__ = __str__\ndef f(x): return 1", "__class__"),
        ("class A:\n    __str__ = __repr__ = __builtins__\ndef f(x): return 1", "__str__"),
        ("class A:\n    def g(self):\n        __slots__ = 1\ndef f(x): return 1", "__slots__"),
        ("__repr__ = __str__\ndef f(x): return 1", "__repr__"),
    ],
)
def test_programs_that_reach_beyond_computing_are_forbidden_by_name(program: str, named: str) -> None:
    refusal = refuse_program(program)
    assert refusal is not None
    assert refusal.status is Status.FORBIDDEN
    assert named in refusal.reason


def test_the_attacks_are_forbidden_where_they_name_what_they_reach_for() -> None:
    """Two only take time or memory, which the sandbox ends."""
    attacks = (*ATTACKS, *MACHINE_CODE)
    assert {attack.name for attack in attacks if refuse_program(attack.program) is None} == {
        "endless loop before f is defined",
        "program that explodes in the compiler",
    }


def test_programs_beyond_the_size_limit_are_forbidden() -> None:
    refusal = refuse_program("#" * (MAX_PROGRAM_CHARS + 1))
    assert refusal is not None
    assert refusal.status is Status.FORBIDDEN


@pytest.mark.parametrize(
    "program",
    ["def f(x:", "x = \0", "\ud800", "-" * 9000 + "1", "a" + "()" * 9000, "(" * 300, "not " * 4000 + "1"],
)
def test_text_that_no_parser_takes_is_a_syntax_error(program: str) -> None:
    refusal = refuse_program(program)
    assert refusal is not None
    assert refusal.status is Status.SYNTAX_ERROR


def test_every_status_has_a_verdict_for_proposals() -> None:
    assert proposal_verdict(Status.OK) is ProposalVerdict.VALID
    assert proposal_verdict(Status.ERROR) is ProposalVerdict.RUNTIME_ERROR
    assert proposal_verdict(Status.KILLED) is ProposalVerdict.RUNTIME_ERROR
    assert proposal_verdict(Status.OOM) is ProposalVerdict.OUT_OF_MEMORY
    for status in set(Status) - {Status.OK, Status.ERROR, Status.KILLED, Status.OOM}:
        assert proposal_verdict(status) == status.value


def test_every_status_but_ok_has_a_verdict_for_attempts() -> None:
    assert attempt_verdict(Status.NONDETERMINISTIC) is AttemptVerdict.WRONG
    for status in set(Status) - {Status.OK, Status.NONDETERMINISTIC}:
        assert attempt_verdict(status).value == proposal_verdict(status).value
    with pytest.raises(ValueError, match="comparing"):
        attempt_verdict(Status.OK)
