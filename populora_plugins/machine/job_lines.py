"""`populora verify`: JSON lines in, JSON lines out, in the same order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from populora_core.sandbox.jobs import Job, Sandbox
from populora_core.sandbox.verify import verify
from populora_core.support.errors import PopuloraError

EXPECTED = '{"id": "a", "program": "def f(x): ...", "inputs": ["(1,)"]}'


def verify_lines(
    lines: Iterable[str], sandbox: Sandbox, *, policy: bool = True, determinism: bool = True
) -> Iterator[str]:
    """The result line of every job line: `{"id", "status", "outputs", "error"}`. Blank lines are skipped.

    Raises:
        PopuloraError: a line is not a job; names the line, and is raised before anything runs.
    """
    jobs = [_job(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    results = verify(sandbox, jobs, policy=policy, determinism=determinism)
    return (
        json.dumps(
            {
                "id": result.job_id,
                "status": result.status,
                "outputs": list(result.outputs),
                "error": result.error,
            }
        )
        for result in results
    )


def _job(number: int, line: str) -> Job:
    try:
        record: Any = json.loads(line)
        job_id, program, inputs = record["id"], record["program"], record["inputs"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise _bad(number, f"{type(error).__name__}: {error}") from None
    if not isinstance(job_id, str) or not isinstance(program, str):
        raise _bad(number, "id and program must be text")
    if not isinstance(inputs, list) or not all(isinstance(text, str) for text in inputs):
        raise _bad(number, "inputs must be a list of texts, each the literal of an argument tuple")
    return Job(job_id, program, tuple(inputs))


def _bad(number: int, got: str) -> PopuloraError:
    return PopuloraError(
        f"line {number} is not a job",
        expected=EXPECTED,
        got=got,
        fix=f"correct line {number}; nothing has been run",
    )
