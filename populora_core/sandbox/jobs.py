"""The interface of a sandbox: jobs in, results out, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol, Self

from populora_core.sandbox.literals import MAX_LITERAL_CHARS
from populora_core.sandbox.status import Status
from populora_core.support.errors import ConfigError, SandboxUnavailable

MIB = 1 << 20
MOST_SECONDS = 1_000_000  # timers and polls take no more
MOST_BYTES = 1 << 46  # half of the address space


@dataclass(frozen=True, slots=True)
class Job:
    """One program to run on its inputs, all in one process.

    Args:
        job_id: the caller's name for it; comes back in the result and is never sent into the sandbox.
        program: Python source that defines the entry function `f`.
        inputs: the literal of each argument tuple, such as `(3, [1, 2])`; the program gets it as it stands.
    """

    job_id: str
    program: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job.

    Attributes:
        outputs: the literal of each output, a dict in its own order and a set in the order of its items' text; one an
            input when the status is ok, otherwise empty.
        error: why the status is not ok; text for people, written in part by the program.
        cpu_seconds: what the program used; a measurement, so no part of equality.
    """

    job_id: str
    status: Status
    outputs: tuple[str, ...] = ()
    error: str = ""
    cpu_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one program, with all its inputs together.

    Attributes:
        cpu_seconds: time-outs are judged on CPU time, so that a busy machine seldom changes verdicts.
        wall_seconds: ends programs that sleep in this time rather than compute; longer than `cpu_seconds`.
        memory_bytes: address space beyond what the interpreter itself takes.
        output_bytes: all literals of the outputs, and the text that the program prints.
        request_bytes: the program and its inputs on their way in; a larger job is refused as an error.
        literal_chars: the literal of one output.
        modules: modules of the standard library that a program can import beyond those that the static policy
            allows; each program then needs more memory, and every wall stays.

    Raises:
        ConfigError: a limit that is not positive, or beyond what the kernel can hold a program to.
    """

    cpu_seconds: float = 2.0
    wall_seconds: float = 8.0
    memory_bytes: int = 256 * MIB
    output_bytes: int = 64 * 1024
    request_bytes: int = MIB
    literal_chars: int = MAX_LITERAL_CHARS
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            most = MOST_SECONDS if name.endswith("seconds") else MOST_BYTES
            if name != "modules" and not 0 < value <= most:
                raise ConfigError(
                    f"the sandbox limit {name} is out of range",
                    expected=f"a number above 0, at most {most}",
                    got=str(value),
                    fix=f"set {name} to what one program may take",
                )


class Sandbox(Protocol):
    """Runs untrusted programs, each in a process of its own that can only compute.

    Attributes:
        name: the backend.
        identity: backend, digest of what it is made of and Python version inside; results may differ between
            identities, so it belongs into stage keys.
        outage: why the last batch was given up, its unanswered jobs being `infrastructure`; None if it was not.
    """

    name: str
    identity: str
    limits: Limits
    outage: SandboxUnavailable | None

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int], None] | None = None, *, repeat: bool = False
    ) -> list[JobResult]:
        """Run every job; the results are in the order of the jobs. See `outage` for what could not be run.

        Which of the two hash seeds a job runs under depends on its program and inputs alone.

        Args:
            progress: called with the number of jobs done so far.
            repeat: run each job under the other hash seed, in another process, the program again for each input,
                the first of them last: whatever remembers or counts earlier calls answers otherwise. It has a
                little more memory and depth, and its objects lie elsewhere. Outputs are in the order of the inputs.

        Raises:
            SandboxUnavailable: the sandbox is closed, by another thread in the middle perhaps, or another process
                opened it.
        """
        ...

    def close(self) -> None:
        """End every process of the sandbox; returns when they are gone."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def python_of(identity: str) -> str:
    """The version of Python inside a sandbox of this identity, such as 3.13.5; empty for none."""
    return identity.rpartition("-python")[2] if "-python" in identity else ""
