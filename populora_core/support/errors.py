"""The error tree: every error says what was expected, what it got and how to fix it."""

from __future__ import annotations

import traceback

EXIT_ERROR, EXIT_INTERRUPTED = 2, 130
"""Exit codes of a command that failed with an error of this tree, or was interrupted."""
NO_MEMORY = "OutOfMemoryError"  # torch's; it is not imported here


class PopuloraError(Exception):
    """Root of every error that the project raises on purpose.

    Args:
        problem: one sentence, what is wrong.
        expected: what would have been right.
        got: the actual value or state.
        fix: what the person can do now.
    """

    def __init__(self, problem: str, *, expected: str = "", got: str = "", fix: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.expected = expected
        self.got = got
        self.fix = fix

    def __str__(self) -> str:
        parts = [self.problem]
        if self.expected:
            parts.append(f"Expected: {self.expected}")
        if self.got:
            parts.append(f"Got: {self.got}")
        if self.fix:
            parts.append(f"Fix: {self.fix}")
        return "\n".join(parts)

    def __reduce__(self):  # keyword-only arguments do not survive the default pickling
        return _rebuild, (type(self), self.problem, self.expected, self.got, self.fix)


def _rebuild(kind: type[PopuloraError], problem: str, expected: str, got: str, fix: str) -> PopuloraError:
    return kind(problem, expected=expected, got=got, fix=fix)


def first_line(error: BaseException) -> str:
    """The error of a library, as the cause named in one of ours."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def defect(name: str, error: BaseException, trace: str = "") -> PopuloraError:
    """The error that a process reports for one that no code of ours raised on purpose.

    Args:
        name: of the work that it did.
        trace: how `error` came about; its own traceback if empty.
    """
    trace = trace or "".join(traceback.format_exception(error))
    last = trace.strip().splitlines()[-1]
    if NO_MEMORY in last:
        return PopuloraError(
            f"{name} ran out of the GPU's memory",
            got=last,
            fix="populora fork RUN --generation LAST --to NEW --set update.token_budget=N (or sampler.rows, or "
            "sampler.gpu_memory_utilization, lower than now), then resume NEW; populora run --dry-run says what fits",
        )
    return PopuloraError(
        f"a defect in {name}, please report it:\n{trace}", fix="nothing committed was lost; resume goes on"
    )


class ConfigError(PopuloraError, ValueError):
    """A configuration that cannot be run: unknown key, impossible combination, missing file."""


class RunDirectoryError(PopuloraError):
    """A run directory that is missing, foreign or locked, or lacks what a command needs."""


class RunInUse(RunDirectoryError):
    """A run directory that another process writes to."""


class ArtifactError(PopuloraError):
    """An artifact that is missing or damaged, or could not be committed."""


class DamagedObject(ArtifactError):
    """An object of a store that is not there, or whose bytes are not those that its name says."""


class DamagedText(ArtifactError, ValueError):
    """A document that is no JSON or TOML, or not what populora writes in its place."""


class StoreUnavailable(PopuloraError):
    """A shared store that does not answer, refuses, or cannot keep what it promises; nothing was lost."""


class SchemaError(ArtifactError, ValueError):
    """Rows that do not fit the declared columns of their table."""


class AdapterError(PopuloraError):
    """An adapter file that is corrupt or does not fit the base model."""


class AdapterNotServed(AdapterError):
    """A sampler that answers for a member with something else than the adapter that the learner made."""


class BaseModelError(PopuloraError):
    """A base model that cannot be used: no tokenizer, no weights, no linear layers."""


class SandboxUnavailable(PopuloraError):
    """No sandbox can be started on this machine; model-written code is never run without one."""


class ProblemError(PopuloraError, ValueError):
    """A problem type, dialect or template that is unknown or malformed."""


class PopulationError(PopuloraError, ValueError):
    """A population operation with impossible arguments."""


class WorkerLost(PopuloraError):
    """A worker process ended before it answered."""


class ClusterUnavailable(PopuloraError):
    """A Ray cluster that cannot be joined or started, or whose machines cannot do the work."""


class BenchmarkError(PopuloraError, ValueError):
    """A suite or benchmark that is unknown, missing, or not in its published schema."""


class HubError(PopuloraError):
    """A hub of models and data sets that does not answer, or refuses."""


class BelowBase(PopuloraError):
    """A population that has fallen below its base, in a run that is to stop there."""


class StudyError(PopuloraError):
    """A study whose runs could not all be made, or whose summaries do not belong together."""


class ServerUnreachable(PopuloraError):
    """A Prefect server that does not answer; the stages themselves need none."""
