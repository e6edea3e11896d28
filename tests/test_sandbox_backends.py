"""The sandbox against programs that mean well and programs that do not, in every backend that works here."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sandboxed import BACKEND_NAMES, LIMITS, LOOP, SQUARE, attempt, opened, run

from populora_core.sandbox.backends import BACKENDS, BackendReport, describe_backends, open_sandbox
from populora_core.sandbox.connection import CommandBackend
from populora_core.sandbox.host import CODECS
from populora_core.sandbox.jobs import Job, JobResult, Limits, python_of
from populora_core.sandbox.pool import SandboxPool
from populora_core.sandbox.status import Status
from populora_core.sandbox.verify import verify, verify_or_raise
from populora_core.support.errors import ConfigError, PopuloraError, SandboxUnavailable
from populora_plugins.machine.job_lines import verify_lines

pytestmark = pytest.mark.sandbox

DIED = {Status.ERROR, Status.KILLED}


@pytest.fixture(scope="module", params=BACKEND_NAMES)
def sandbox(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    with opened(request.param, hash_seed=7) as pool:
        yield pool


# Programs that mean well


def test_several_inputs_of_one_program_run_in_one_child_on_fresh_arguments(sandbox: SandboxPool) -> None:
    program = "seen = []\ndef f(items):\n    items.append(len(seen))\n    seen.append(1)\n    return items"
    assert run(sandbox, program, "([],)", "([],)", "([5],)").outputs == ("[0]", "[1]", "[5, 2]")


def test_every_allowed_module_can_be_imported_inside(sandbox: SandboxPool) -> None:
    program = """
from __future__ import annotations
import abc, array, bisect, cmath, collections.abc, copy, dataclasses, decimal, enum, fractions, functools
import heapq, itertools, math, numbers, operator, re, statistics, string, textwrap, typing, unicodedata
@dataclasses.dataclass
class Point:
    x: int
class Colour(enum.Enum):
    RED = 1
def f(x):
    return Point(x).x + Colour.RED.value + statistics.mean([x, x]) + int(fractions.Fraction(x))
"""
    assert verify(sandbox, [Job("job", program, ("(3,)",))]) == [JobResult("job", Status.OK, ("10",))]


SCRIPTS = ("日本", "한국", "мир", "λόγος", "český", "İş", "café", "plain")


def encoded(name: str) -> tuple[str, bytes]:
    """The first of the texts that the codec can write, and what it writes."""
    for text in SCRIPTS:
        with suppress(UnicodeError):
            there = codecs.encode(text, name)
            if there != text:  # as rot13 leaves what is no letter of its own
                return text, there if isinstance(there, bytes) else there.encode()
    raise AssertionError(name)


def test_every_codec_goes_both_ways_inside_as_it_does_outside(sandbox: SandboxPool) -> None:
    program = """
import codecs
def f(name, text):
    there = codecs.encode(text, name)
    return codecs.decode(there, name), list(there if type(there) is bytes else there.encode())
"""
    names = (*CODECS, "utf-8", "latin1", "windows-1252", "UTF-16LE", "sjis", "rot13")
    known = {name: encoded(name) for name in names}
    result = run(sandbox, program, *(repr((name, text)) for name, (text, _) in known.items()))
    assert result.status is Status.OK, result.error
    assert dict(zip(names, result.outputs, strict=True)) == {
        name: repr((text, list(there))) for name, (text, there) in known.items()
    }


def test_the_identity_names_backend_runner_and_python_inside(sandbox: SandboxPool) -> None:
    name, digest, python = sandbox.identity.rsplit("-", 2)
    inside = attempt(sandbox, "return '.'.join(map(str, sys.version_info[:3]))").outputs[0]
    assert (name, len(digest), python) == (sandbox.name, 16, f"python{inside.strip(chr(39))}")


# Programs that do not: tests/test_sandbox_attacks.py has many more


@pytest.mark.parametrize(
    ("forged", "status"),
    [
        (b"\x00(9, 9)", Status.OK),  # its own answer, which it might as well have returned
        (b"\x00exit()", Status.NOT_PLAIN_DATA),
        (b"\x00" + b"[" * 500, Status.NOT_PLAIN_DATA),
        (b"\x00\xff\xfe", Status.NOT_PLAIN_DATA),
        (b"\x001\n2\n3", Status.ERROR),
        (b"\x00", Status.ERROR),
        (b"\x06", Status.ERROR),
        (b"\xff" * 50, Status.ERROR),
        (b"\x00" + b"1" * 10**5, Status.OUTPUT_LIMIT),
    ],
)
def test_a_forged_reply_changes_nothing_but_its_own_payload(
    sandbox: SandboxPool, forged: bytes, status: Status
) -> None:
    program = f"""
import os
def f(x):
    for descriptor in range(100):
        try:
            os.write(descriptor, {forged!r})
        except OSError:
            pass
    os._exit(0)
"""
    jobs = [
        Job("before", SQUARE, ("(2,)",)),
        Job("forger", program, ("(1,)",)),
        Job("after", SQUARE, ("(3,)",)),
    ]
    before, forger, after = sandbox.run(jobs)
    assert (before.outputs, after.outputs) == (("4",), ("9",))
    assert (forger.job_id, forger.status) == ("forger", status)


@pytest.mark.parametrize(
    "value",
    [
        "object()",
        "lambda: 1",
        "1j",
        "b'x'",
        "float('nan')",
        "[float('inf')]",
        "frozenset()",
        "range(3)",
        "deep()",
    ],
)
def test_what_is_not_plain_data_is_refused(sandbox: SandboxPool, value: str) -> None:
    program = f"def deep():\n    x = []\n    x.append(x)\n    return x\ndef f(x):\n    return {value}"
    assert run(sandbox, program).status is Status.NOT_PLAIN_DATA


@pytest.mark.parametrize(
    "text", ["1) or (True,", "(1+1,)", "[1]", "(print(1),)", "(", "", "(1e999,)", "(x,)"]
)
def test_inputs_that_are_not_literals_of_arguments_are_errors(sandbox: SandboxPool, text: str) -> None:
    result = run(sandbox, SQUARE, text)
    assert result.status is Status.ERROR
    assert "literal" in result.error


@pytest.mark.parametrize("program", ["x = 1", "f = 3", "def g(x): return x"])
def test_a_program_without_a_callable_f_is_an_error(sandbox: SandboxPool, program: str) -> None:
    assert run(sandbox, program).status is Status.ERROR


def test_programs_see_nothing_of_the_host_environment(sandbox: SandboxPool) -> None:
    assert attempt(sandbox, "return dict(os.environ), sys.argv[1:], sys.path").outputs == ("({}, [], [])",)


SCAN_HEAP = """
import ctypes
def f(pattern):
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    return ctypes.string_at(libc.sbrk(0) - 2**20, 2**20).count(pattern[::-1].encode())
"""

SCAN_RUNNER = """
import sys
def f(pattern):
    frame = sys._getframe()
    while not hasattr(frame.f_locals.get("self"), "_request"):
        frame = frame.f_back
    runner = frame.f_locals["self"]
    regions = (runner._request, runner._answer)
    return sum(bytes(region.view).count(pattern[::-1].encode()) for region in regions)
"""


@pytest.mark.parametrize("scan", [SCAN_HEAP, SCAN_RUNNER])
def test_no_job_is_found_in_the_memory_of_a_later_one(sandbox: SandboxPool, scan: str) -> None:
    secret = Job("secret", f"def f(x):\n    return {'open sesame ' * 300!r}", ("(1,)",))
    scanner = Job("scanner", scan, ("('emases nepo',)",))
    results = sandbox.run([secret, scanner] * 4) + sandbox.run([secret, scanner] * 4, repeat=True)
    for result in results[1::2]:
        assert result.status is Status.KILLED or int(result.outputs[0]) < 5


def test_error_text_names_the_error_and_is_printable(sandbox: SandboxPool) -> None:
    result = attempt(sandbox, "raise ValueError('a\\x1b[31m\\nb')")
    assert (result.status, result.error) == (Status.ERROR, "ValueError: a [31m b")


def test_an_unprivileged_sandbox_holds_as_well(sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("populora_core.sandbox.host.can_spare_uids", lambda: False)
    with SandboxPool(BACKENDS[sandbox.name](), LIMITS, workers=2, hash_seed=0) as pool:
        assert attempt(pool, "return os.getuid(), x").outputs == ("(-1, 3)",)
        assert attempt(pool, "os.kill(1, signal.SIGKILL)").status is Status.ERROR
        assert attempt(pool, "return open('/proc/1/mem').read()").status is Status.ERROR
        assert run(pool, LOOP).status is Status.TIMEOUT
        assert run(pool, SCAN_RUNNER, "('emases nepo',)").status is Status.KILLED
        assert run(pool, SQUARE).outputs == ("9",)


def test_a_limit_that_limits_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="cpu_seconds"):
        Limits(cpu_seconds=0)


# Verification


def test_a_run_of_the_same_job_repeats_its_result_even_under_hash_order(sandbox: SandboxPool) -> None:
    jobs = [Job(str(n), f"def f(x):\n    return hash('{n}')", ("(1,)",)) for n in range(12)]
    assert sandbox.run(jobs) == sandbox.run(jobs)
    assert sandbox.run(jobs) != sandbox.run(jobs, repeat=True)


def test_verify_gives_every_job_its_own_status_in_order(sandbox: SandboxPool) -> None:
    programs = {
        SQUARE: Status.OK,
        "def f(x:": Status.SYNTAX_ERROR,
        "import os": Status.FORBIDDEN,
        LOOP: Status.TIMEOUT,
        "def f(x):\n    return 1 // 0": Status.ERROR,
        "def f(x):\n    return f": Status.NOT_PLAIN_DATA,
        "def f(x):\n    return {1, 'a'}": Status.OK,
    }
    heard: list[int] = []
    jobs = [Job(str(n), program, ("(3,)",)) for n, program in enumerate(programs)]
    results = verify(sandbox, jobs, progress=heard.append)
    assert [result.job_id for result in results] == [job.job_id for job in jobs]
    assert [result.status for result in results] == list(programs.values())
    assert heard == sorted(heard)
    assert heard[-1] == len(jobs)


class BackSoon:
    """A sandbox that goes down before the last job of its first batch, and works again when it is next asked."""

    def __init__(self, inner: SandboxPool) -> None:
        self.inner, self.limits, self.batches = inner, inner.limits, 0
        self.outage: SandboxUnavailable | None = None

    def run(self, jobs: Sequence[Job], *rest: Any, **named: Any) -> list[JobResult]:
        results = self.inner.run(jobs, *rest, **named)
        self.outage = None
        self.batches += 1
        if self.batches == 1:
            self.outage = SandboxUnavailable("the daemon is gone", fix="start it")
            results[-1] = replace(results[-1], status=Status.INFRASTRUCTURE)
        return results


@pytest.mark.parametrize("first", [SQUARE, LOOP], ids=["ran", "timed out"])
def test_an_outage_is_told_though_the_sandbox_is_back_before_programs_run_again(
    sandbox: SandboxPool, first: str
) -> None:
    jobs = [Job("first", first, ("(3,)",)), Job("lost", SQUARE, ("(3,)",))]
    back: Any = BackSoon(sandbox)
    with pytest.raises(SandboxUnavailable, match="daemon is gone"):
        verify_or_raise(back, jobs, determinism=True)
    results = verify(BackSoon(sandbox), jobs)  # type: ignore[arg-type]
    assert Status.OK not in [result.status for result in results], "nothing is valid that ran once"


def test_json_lines_come_back_in_order(sandbox: SandboxPool) -> None:
    lines = [json.dumps({"id": name, "program": SQUARE, "inputs": ["(2,)", "(3,)"]}) for name in ("b", "a")]
    answers = [json.loads(line) for line in verify_lines([lines[0], "\n", lines[1]], sandbox)]
    assert answers == [
        {"id": name, "status": "ok", "outputs": ["4", "9"], "error": ""} for name in ("b", "a")
    ]


@pytest.mark.parametrize("line", ["{", "3", '{"id": "a"}', '{"id": 1, "program": "", "inputs": []}'])
def test_a_bad_json_line_is_named_before_anything_runs(sandbox: SandboxPool, line: str) -> None:
    good = json.dumps({"id": "a", "program": SQUARE, "inputs": []})
    with pytest.raises(PopuloraError, match="line 2"):
        verify_lines([good, line], sandbox)


# Which of them work


@pytest.fixture(scope="module")
def reports() -> dict[str, BackendReport]:
    """The report on every backend, where programs have one user id and no cgroup can be made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("populora_core.sandbox.backends.can_spare_uids", lambda: False)
        patch.setattr("populora_core.sandbox.cgroups.usable", lambda: False)
        return {report.name: report for report in describe_backends()}


def test_backends_report_what_works_here(sandbox: SandboxPool, reports: dict[str, BackendReport]) -> None:
    assert reports[sandbox.name].works
    assert all(report.works or (report.reason and report.command) for report in reports.values())


def test_what_a_backend_does_not_give_is_said(
    sandbox: SandboxPool, reports: dict[str, BackendReport]
) -> None:
    gives = reports[sandbox.name].gives
    if sandbox.name == "docker":
        assert "a user id for each program" in gives and "cgroup limits on memory" in gives
    else:
        assert "one user id for all programs" in gives and "no cgroup limits" in gives


def test_nothing_runs_where_no_backend_works(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = CommandBackend("broken", lambda contents: ["/bin/sh", "-c", "echo broken >&2; exit 1"])
    for name in BACKENDS:
        monkeypatch.setitem(BACKENDS, name, lambda: broken)
    with pytest.raises(SandboxUnavailable) as caught:
        open_sandbox("auto", LIMITS, workers=2)
    assert "broken" in caught.value.got
    assert caught.value.fix


def test_auto_finds_a_sandbox_with_the_python_that_is_asked_for_or_none(sandbox: SandboxPool) -> None:
    own = python_of(sandbox.identity).rpartition(".")[0]
    with open_sandbox("auto", LIMITS, workers=2, python=own) as found:
        assert python_of(found.identity).startswith(f"{own}.")
    with pytest.raises(
        SandboxUnavailable, match=rf"no sandbox of this machine has Python 3\.9, [^!]*Python {own}\."
    ):
        open_sandbox("auto", LIMITS, workers=2, python="3.9")
