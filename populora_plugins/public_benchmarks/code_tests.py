"""Runs of a candidate's program on a benchmark's tests in the sandbox, and the reading of their results.

A program that is sent holds the candidate's source as a text, which it executes, and never an expected answer:
answers come back encoded and are compared on the host. The static policy is off, since solutions import what they
like; the sandbox is what makes them safe.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from populora_core.benchmarks.benchmark import Item, ItemScore, Response
from populora_core.problems.verdicts import AttemptVerdict, attempt_verdict
from populora_core.sandbox.jobs import MIB, Job, JobResult, Limits, Sandbox, python_of
from populora_core.sandbox.literals import parse_literal
from populora_core.sandbox.status import Status
from populora_core.sandbox.worker import request_body
from populora_plugins.public_benchmarks.codec import decode, encode

MODULES = (
    "_strptime", "argparse", "base64", "builtins", "calendar", "codecs", "contextlib", "datetime", "difflib",
    "hashlib", "html", "inspect", "io", "json", "keyword", "locale", "logging", "marshal", "operator", "os",
    "pathlib", "platform", "pprint", "queue", "random", "secrets", "string", "struct", "sys", "threading", "time",
    "timeit", "traceback", "types", "unittest", "warnings", "zlib",
)  # fmt: skip
"""Modules that solutions may import beyond those of the static policy, or that these import on first use."""

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_TOO_DEEP = "RecursionError"
"""Told with the Python: how deep programs can go through C code is fixed from 3.12 on, whatever they set."""

Key = tuple[str, str]
"""Item id and program."""

SLACK = 2.0
"""A program that ended within this factor of its limit is tried once more alone."""

_FUNCTION = """
import sys, types
_codec = types.ModuleType("_codec")
exec({codec!r}, _codec.__dict__)
_module = types.ModuleType("solution")  # never __main__: what a file does when it is run is not the function
sys.modules["solution"] = _module
_encode, _decode = _codec.encode, _codec.decode
exec({prelude!r}, _module.__dict__)
exec(compile({source!r}, "<solution>", "exec", dont_inherit=True), _module.__dict__)
_function = {target}


def f(arguments):
    return _encode(_function(*_decode(arguments)))
"""

_STDIN = """
import builtins, io, sys, threading, types
sys.setrecursionlimit(50000)
_code = compile({source!r}, "<solution>", "exec", dont_inherit=True)
_prelude = compile({prelude!r}, "<prelude>", "exec", dont_inherit=True)
_open = builtins.open
builtins.exit = builtins.quit = sys.exit
# Programs start their one thread only to have a deeper stack, and no thread can be had in here.
threading.Thread.start, threading.Thread.join = threading.Thread.run, lambda *_: None
threading.stack_size = lambda *_: 0


def f(text):
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    output = io.BytesIO()
    outside = sys.stdin, sys.stdout
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
    sys.stdout = written = io.TextIOWrapper(output, encoding="utf-8", errors="replace", write_through=True)
    builtins.open = lambda file, *a, **k: sys.stdin if file in (0, "/dev/stdin") else _open(file, *a, **k)
    try:
        exec(_prelude, module.__dict__)
        exec(_code, module.__dict__)
    except SystemExit:
        pass
    finally:
        sys.stdin, sys.stdout = outside
        builtins.open = _open
    written.flush()
    return output.getvalue().decode("utf-8", "replace")
"""


def code_limits(cpu_seconds: float, memory_mib: int = 1024) -> Limits:
    """The limits of a benchmark's programs; `cpu_seconds` is the most that any calibrated limit can reach."""
    return Limits(
        cpu_seconds=cpu_seconds,
        wall_seconds=4 * cpu_seconds,
        memory_bytes=memory_mib * MIB,
        output_bytes=16 * MIB,
        request_bytes=64 * MIB,
        literal_chars=8 * MIB,
        modules=MODULES,
    )


def function_program(source: str, target: str, prelude: str = "") -> str:
    """A program whose `f` calls a function of the source on encoded arguments and encodes what it returns.

    Args:
        target: an expression over `_module`, our own text, that gives the function.
        prelude: what the benchmark imports for its solutions.
    """
    return _FUNCTION.format(codec=_codec_source(), source=source, target=target, prelude=prelude)


def stdin_program(source: str, prelude: str = "") -> str:
    """A program whose `f` runs the source afresh on a standard input and gives its standard output."""
    return _STDIN.format(source=source, prelude=prelude)


def call_input(arguments: Sequence[Any]) -> str:
    """The input of a `function_program`'s `f` for one call."""
    return repr((encode(list(arguments)),))


def stdin_input(text: str) -> str:
    """The input of a `stdin_program`'s `f` for one run."""
    return repr((text,))


@cache
def _codec_source() -> str:
    return Path(__file__).with_name("codec.py").read_text(encoding="utf-8")


def score_programs(
    items: Sequence[Item],
    responses: Sequence[Response],
    program_of: Callable[[Item, str], str | None],
    judge: Callable[[Mapping[Key, Item]], Mapping[Key, ItemScore]],
) -> list[ItemScore]:
    """One score a response, in order; equal programs for one problem are judged once.

    Args:
        program_of: what is judged of a completion's text; None where it holds no program.
    """
    programs = [program_of(item, response.text) for item, response in zip(items, responses, strict=True)]
    pairs = list(zip(items, programs, strict=True))
    scores = judge({(item.item_id, program): item for item, program in pairs if program is not None})
    nothing = ItemScore(AttemptVerdict.FORMAT_ERROR, None, "there is no program in the completion")
    return [nothing if program is None else scores[item.item_id, program] for item, program in pairs]


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of one program under its own time limit.

    Attributes:
        verdict: None where every input was answered; it is for the caller to say whether rightly.
        values: the answers, one an input; decoded, or texts for a `stdin_program`.
        detail: why not every input was answered.
    """

    verdict: AttemptVerdict | None
    values: tuple[Any, ...] = ()
    detail: str = ""
    cpu_seconds: float = 0.0

    def fault(self, program: str, place: str) -> ItemScore | None:
        """The score of a program that did not answer every input; None if it did."""
        if self.verdict is None:
            return None
        lost = self.verdict is AttemptVerdict.INFRASTRUCTURE
        why = str(self.verdict)
        if missing := _MISSING.match(self.detail):
            why += f": the sandbox has no module {missing[1]}"
        elif self.detail.startswith(_TOO_DEEP):
            why += f": {self.detail}"
        return ItemScore(self.verdict, program, f"{place}: {self.detail if lost else why}")


def run_batch(sandbox: Sandbox, jobs: Sequence[Job]) -> list[JobResult]:
    """Run jobs together; a job that the host would refuse to send is `infrastructure`, not an error of its program.

    Raises:
        SandboxUnavailable: the sandbox went down for good and left jobs unanswered.
    """
    fits = [len(request_body(job)) <= sandbox.limits.request_bytes for job in jobs]
    results = iter(_run(sandbox, [job for job, sent in zip(jobs, fits, strict=True) if sent]))
    refused = "the test is larger than a request may be"
    return [
        next(results) if sent else JobResult(job.job_id, Status.INFRASTRUCTURE, error=refused)
        for job, sent in zip(jobs, fits, strict=True)
    ]


def _run(sandbox: Sandbox, jobs: Sequence[Job]) -> list[JobResult]:
    results = sandbox.run(jobs)
    if sandbox.outage is not None:  # the next batch would forget it
        raise sandbox.outage
    too_deep = f"{_TOO_DEEP}, Python {python_of(sandbox.identity).rpartition('.')[0]}"
    return [replace(each, error=too_deep) if each.error.startswith(_TOO_DEEP) else each for each in results]


def judge_time(sandbox: Sandbox, job: Job, result: JobResult, seconds: float) -> JobResult:
    """The result under a limit of the job's own: what took longer is a time-out.

    A job that ended within a factor of two of its limit, on either side, is tried once more alone, since even CPU
    time grows on a busy machine. One that the sandbox ended before that was possible is tried again too.

    Args:
        seconds: of CPU time; at most the sandbox's own limit.

    Raises:
        SandboxUnavailable: the sandbox went down for good.
    """
    if result.status is Status.INFRASTRUCTURE:
        return result
    ended_early = result.status is Status.TIMEOUT and sandbox.limits.cpu_seconds < SLACK * seconds
    if ended_early or seconds / SLACK < result.cpu_seconds < seconds * SLACK:
        (result,) = _run(sandbox, [job])
    if result.status is not Status.TIMEOUT and result.cpu_seconds > seconds:
        return JobResult(job.job_id, Status.TIMEOUT, (), "", result.cpu_seconds)
    return result


def read_result(result: JobResult, decoded: bool) -> Ran:
    """A result in the words of a grader.

    Args:
        decoded: whether the answers are encoded values, rather than texts.
    """
    if result.status is not Status.OK:
        verdict = attempt_verdict(result.status)
        if verdict is AttemptVerdict.RUNTIME_ERROR and result.error.startswith(
            ("SyntaxError", "IndentationError")
        ):
            verdict = AttemptVerdict.SYNTAX_ERROR
        return Ran(verdict, (), result.error, result.cpu_seconds)
    try:
        values = tuple(_text(literal) for literal in result.outputs)
        if decoded:
            values = tuple(map(decode, values))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        return Ran(
            AttemptVerdict.NOT_PLAIN_DATA, (), f"an answer cannot be read: {error}", result.cpu_seconds
        )
    return Ran(None, values, "", result.cpu_seconds)


def _text(literal: str) -> str:
    value = parse_literal(literal, max_chars=len(literal) + 1)
    if not isinstance(value, str):
        raise ValueError(f"expected a text, came {type(value).__name__}")
    return value
