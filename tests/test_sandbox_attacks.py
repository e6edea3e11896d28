"""Hostile programs against every sandbox: what each comes to, and that no one else feels it.

The programs are in attacks.py, attack_calls.py and attack_traces.py. They run without the static
policy, so that the sandbox itself is attacked.
"""

from __future__ import annotations

import platform
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import attack_calls
import attack_traces
import pytest
from attack_calls import MACHINE_CODE
from attacks import ATTACKS, Attack
from sandboxed import opened, run

from populora_core.problems.dialects import dialect
from populora_core.problems.dialects.instruct import fence
from populora_core.problems.grading import judge_attempts
from populora_core.problems.model import Problem
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.jobs import MIB, Job, JobResult, Limits, Sandbox
from populora_core.sandbox.status import Status
from populora_core.sandbox.verify import verify
from populora_core.sandbox.worker import request_body
from populora_core.support.processes import descendants

pytestmark = pytest.mark.sandbox

LIMITS = Limits(cpu_seconds=0.3, wall_seconds=2, memory_bytes=64 * MIB, output_bytes=4096)
ROOMY = replace(LIMITS, cpu_seconds=10, wall_seconds=30, memory_bytes=256 * MIB)
KINDS = [  # bubblewrap's walls are the strongest that `make test` brings along by itself
    pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.thorough]),
    "bubblewrap",
    pytest.param("launcher", marks=pytest.mark.thorough),
    pytest.param("gvisor", marks=[pytest.mark.docker, pytest.mark.foreign, pytest.mark.thorough]),
]
MAX_ERROR_CHARS = 1000

x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls are named by number")


def start(kind: str, limits: Limits) -> Sandbox:
    if (
        kind == "gvisor"
    ):  # a page costs several times as much there, and time is counted in hundredths of a second
        limits = replace(limits, cpu_seconds=4 * limits.cpu_seconds, wall_seconds=2 * limits.wall_seconds)
    return opened(kind, limits, hash_seed=7)


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with start(request.param, LIMITS) as pool:
        yield pool


@pytest.fixture(scope="module", params=KINDS)
def roomy(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with start(request.param, ROOMY) as pool:
        yield pool


@pytest.fixture(scope="module")
def unprivileged() -> Iterator[Sandbox]:
    """A sandbox without user ids to spare: everything inside is one ordinary user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("populora_core.sandbox.host.can_spare_uids", lambda: False)
        with start("bubblewrap", LIMITS) as pool:
            yield pool


def neighbour(number: int) -> tuple[Job, JobResult]:
    """A harmless job and what it must come to, whoever ran before and beside it."""
    name = f"neighbour-{number}"
    program = "def f(x):\n    return sorted({x, 1, -x}), len(repr(x))"
    return Job(name, program, (f"({number},)",)), JobResult(
        name, Status.OK, (f"([{-number}, 1, {number}], {len(str(number))})",)
    )


def processes(sandbox: Sandbox) -> set[int]:
    """The workers and every process below them, which are all processes of the sandbox.

    Of gVisor the workers alone: below them are its own helpers, while programs are processes of its kernel.
    """
    pids = getattr(sandbox, "pids", [])
    if sandbox.name == "gvisor":
        return set(pids)
    return {*pids, *(below for pid in pids for below in descendants(pid))}


# Every attack


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.test_id for attack in ATTACKS])
def test_an_attack_ends_with_its_status_and_reaches_nobody(sandbox: Sandbox, attack: Attack) -> None:
    check(sandbox, attack)


@x86_64
@pytest.mark.parametrize("attack", MACHINE_CODE, ids=[attack.test_id for attack in MACHINE_CODE])
def test_machine_code_ends_no_better(sandbox: Sandbox, attack: Attack) -> None:
    check(sandbox, attack)


def test_the_threat_model_names_a_test_for_every_attack() -> None:
    page = (Path(__file__).parents[1] / "docs" / "verifier.md").read_text()
    named = [f"`{attack.test_id}`" in page for attack in (*ATTACKS, *MACHINE_CODE)]
    assert all(named)
    assert f"any of {len(attack_calls.SYSTEM_CALLS)} dangerous calls" in page
    assert f"{len(attack_calls.COMPUTING)} calls that computing needs" in page


def check(sandbox: Sandbox, attack: Attack) -> None:
    idle = processes(sandbox)
    others = [neighbour(number) for number in (20, 300, 4000)]
    hostile = [Job(f"attack-{n}", f"{attack.program}\n# {n}", ("(3,)",)) for n in range(2)]
    jobs = [others[0][0], hostile[0], others[1][0], hostile[1], others[2][0]]

    results = sandbox.run(jobs)

    assert results[::2] == [expected for _, expected in others]
    slow = {Status.TIMEOUT} if sandbox.name == "gvisor" and Status.OOM in attack.statuses else set()
    for result in results[1::2]:
        assert result.status in attack.statuses | slow, result
        assert result.error.isprintable() and 0 < len(result.error) <= MAX_ERROR_CHARS
        assert re.search(attack.says, result.error), result
        assert result.outputs == ()
        assert result.cpu_seconds < 2 * sandbox.limits.cpu_seconds, result
    assert len(processes(sandbox)) == len(idle), "a process survived"
    job, expected = neighbour(50)
    assert sandbox.run([job]) == [expected]


@x86_64
def test_every_dangerous_system_call_is_refused(sandbox: Sandbox) -> None:
    expected = f"({len(attack_calls.SYSTEM_CALLS)}, {{}})"
    assert run(sandbox, attack_calls.TRY_CALLS) == JobResult("job", Status.OK, (expected,))


@x86_64
def test_every_dangerous_system_call_is_refused_where_all_share_one_user(unprivileged: Sandbox) -> None:
    expected = f"({len(attack_calls.SYSTEM_CALLS)}, {{}})"
    assert run(unprivileged, attack_calls.TRY_CALLS) == JobResult("job", Status.OK, (expected,))


@x86_64
def test_no_other_system_call_than_those_of_computing_reaches_the_kernel(sandbox: Sandbox) -> None:
    conditional = {
        attack_calls.COMPUTING[name] for name in attack_calls.CONDITIONAL
    }  # refused with the sweep's arguments
    expected = sorted(set(attack_calls.COMPUTING.values()) - conditional - set(attack_calls.UNSWEPT))
    assert run(sandbox, attack_calls.TRY_NUMBERS, "(0,)").outputs == (str(expected),)


@x86_64
def test_no_system_call_passes_under_the_numbers_of_x32(sandbox: Sandbox) -> None:
    assert run(sandbox, attack_calls.TRY_NUMBERS, "(0x40000000,)").outputs == ("[]",)


@pytest.mark.thorough
def test_a_program_that_works_just_enough_to_look_busy_ends_all_the_same() -> None:
    program = """
import _thread, time
def f(x):
    lock = _thread.allocate_lock()
    lock.acquire()
    while True:
        used = time.process_time()
        while time.process_time() < used + 0.04:
            pass
        lock.acquire(timeout=0.3)
"""
    with start("auto", replace(LIMITS, wall_seconds=0.4)) as sandbox:
        assert run(sandbox, program).status is Status.TIMEOUT


@pytest.mark.parametrize("kind", KINDS)
def test_the_alarm_ends_programs_where_the_host_ignores_and_blocks_signals(kind: str) -> None:
    alarms = {signal.SIGALRM, signal.SIGXCPU, signal.SIGUSR1}
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in alarms}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, alarms)
    try:
        with start(kind, LIMITS) as sandbox:
            result = run(sandbox, "def f(x):\n    while True:\n        pass")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert result.status is Status.TIMEOUT
    assert result.cpu_seconds < 2 * sandbox.limits.cpu_seconds


# What one program leaves for the next


def test_nothing_that_a_program_leaves_is_found_by_the_next(sandbox: Sandbox) -> None:
    jobs = []
    for number in range(6):  # enough that each worker runs some of both
        jobs.append(Job("leaver", f"{attack_traces.LEAVE_TRACES}\n# {number}", ("(1,)",)))
        jobs.append(Job("finder", f"{attack_traces.FIND_TRACES}\n# {number}", ("(3,)",)))
    untouched = "([], ([1, 3], 2, 0, 4300), 28, True, 5)"
    for repeat in (False, True):
        found = sandbox.run(jobs, repeat=repeat)[1::2]
        assert found == [JobResult("finder", Status.OK, (untouched,))] * 6


def test_no_secret_of_a_job_is_in_the_memory_of_another(roomy: Sandbox) -> None:
    own = run(roomy, attack_traces.FIND_SECRETS, f"({attack_traces.SECRET!r},)")
    found, mebibytes = map(int, own.outputs[0].strip("()").split(","))
    if found == 0:
        pytest.skip("this kernel has no MADV_POPULATE_READ, with which the search finds what is mapped")
    assert mebibytes > 4

    jobs = []
    for number in range(6):
        text = f"{number}-{attack_traces.SECRET}"
        jobs.append(Job("told", "def f(x):\n    return x", (f"({text!r},)",)))
        jobs.append(Job("tells", f"def f(x):\n    return {text!r}", ("(1,)",)))
        jobs.append(Job("fails", f"def f(x):\n    raise ValueError({text!r})", ("(1,)",)))
        jobs.append(Job("seeks", f"{attack_traces.FIND_SECRETS}\n# {number}", ("(1,)",)))
    for repeat in (False, True):
        for result in roomy.run(jobs, repeat=repeat)[3::4]:
            assert result.status is Status.OK, result
            assert result.outputs[0].startswith("(0, "), result


# Grading


class Recorder:
    """A sandbox's runner of jobs as the stages use it, which keeps what went in."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.bodies: list[bytes] = []

    def __call__(self, jobs: Sequence[Job]) -> list[JobResult]:
        self.bodies += map(request_body, jobs)
        return verify(self.sandbox, jobs, determinism=False)


TRIPLE = "def f(x):\n return [x]*3"
FORMS = {"code_o": "output", "code_i": "input", "code_f": "python"}


def attempt(name: str, kind: str, answer: str) -> dict[str, Any]:
    completion = answer
    if name == "instruct":
        completion = f"</think><answer>\n{fence(FORMS[kind], answer)}\n</answer>"
    elif kind == "code_o":
        completion = f"\n={answer}"
    return {"completion": completion, "finish_reason": "stop"}


def judge(sandbox: Recorder, name: str, problem: Problem, *answers: str) -> list[AttemptVerdict]:
    attempts = [(problem, attempt(name, problem.problem_type, answer)) for answer in answers]
    return [judged.verdict for judged in judge_attempts(dialect(name), sandbox, attempts)]


@pytest.mark.parametrize("name", ["compact", "instruct"])
def test_an_answer_that_closes_the_call_and_adds_or_true_is_wrong(sandbox: Sandbox, name: str) -> None:
    problem = Problem("p", "code_i", TRIPLE, ("(1,)",), ("[1, 1, 1]",), "")
    verdicts = judge(Recorder(sandbox), name, problem, "1", "2", "2) or True or f(1", "2) == [1, 1, 1] or (1")
    assert verdicts == [
        AttemptVerdict.CORRECT,
        AttemptVerdict.WRONG,
        AttemptVerdict.FORMAT_ERROR,
        AttemptVerdict.FORMAT_ERROR,
    ]


@pytest.mark.parametrize("name", ["compact", "instruct"])
@pytest.mark.parametrize("base", ["object", "list", "int", "str"])
def test_an_answer_that_is_equal_to_everything_is_wrong(sandbox: Sandbox, name: str, base: str) -> None:
    problem = Problem("p", "code_f", TRIPLE, ("(1,)", "(2,)"), ("[1, 1, 1]", "[2, 2, 2]"), "")
    hack = f"class Yes({base}):\n def __eq__(self, other):\n  return True\ndef f(x):\n return Yes()"
    verdicts = judge(Recorder(sandbox), name, problem, TRIPLE, hack)
    assert verdicts == [AttemptVerdict.CORRECT, AttemptVerdict.NOT_PLAIN_DATA]


def test_no_expected_output_enters_the_sandbox(sandbox: Sandbox) -> None:
    program = "def f(x):\n return x*7919+104729"
    inputs = tuple(f"({x},)" for x in range(1, 6))
    outputs = tuple(str(x * 7919 + 104729) for x in range(1, 6))
    recorder = Recorder(sandbox)
    correct, wrong = AttemptVerdict.CORRECT, AttemptVerdict.WRONG
    one = Problem("p", "code_i", program, inputs[4:], outputs[4:], "")
    assert judge(recorder, "compact", one, "5", "4") == [correct, wrong]
    one = replace(one, problem_type="code_o")
    assert judge(recorder, "compact", one, outputs[4], "3") == [correct, wrong]
    several = Problem("p", "code_f", program, inputs, outputs, "")
    assert judge(recorder, "compact", several, program, "def f(x):\n return x") == [correct, wrong]
    assert len(recorder.bodies) == 4
    assert not [output for output in outputs for body in recorder.bodies if output.encode() in body]


# What does not repeat


@pytest.mark.parametrize(
    "value",
    [
        "hash('a text')",
        "list({'a', 'b', 'c', 'd', 'e', 'f'})",
        "id([x])",
        "str(object())",
        "sys.modules['random'].random()",
        "time.time()",
        "time.perf_counter()",
        "time.clock_gettime((~1 << 3) | 2)",
    ],
)
def test_what_differs_between_two_runs_is_nondeterministic(sandbox: Sandbox, value: str) -> None:
    job = Job("job", f"import sys, time\ndef f(x):\n    return {value}", ("(3,)",))
    (result,) = verify(sandbox, [job], policy=False)
    assert (result.status, result.outputs) == (Status.NONDETERMINISTIC, ())


COARSE = {
    "seconds": "import time\ndef f(x):\n    return int(time.time()) // 10 ** 6",
    "uptime": "from time import monotonic\ndef f(x):\n    return monotonic() // 10 ** 7",
    "date": "def f(x):\n    return __import__('time').gmtime().tm_year > 2000",
    "random state": "import random\ndef f(x):\n    return int(random.random())",
    "identity": "def f(x):\n    return id(x) % 16",
    "time through another module": "import dataclasses\ndef f(x):\n"
    "    return int(dataclasses.sys.modules['time'].time()) // 10 ** 6",
    "random state through another module": "from statistics import random\ndef f(x):\n"
    "    return int(random.random())",
}


@pytest.mark.parametrize("program", COARSE.values(), ids=COARSE)
def test_coarse_values_that_agree_in_both_runs_are_left_to_the_policy(sandbox: Sandbox, program: str) -> None:
    job = Job("job", program, ("(3,)",))
    (refused,) = verify(sandbox, [job])
    assert refused.status is Status.FORBIDDEN
    (unseen,) = verify(sandbox, [job], policy=False)
    assert unseen.status is Status.OK
