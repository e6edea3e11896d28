"""Output of a stage task in the Prefect UI: its progress while it runs, its summary at the end.

All of it is for people to look at. If it cannot be shown, the log has a warning, and the stage goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact

from populora_core.report.stage_summary import stage_summary
from populora_core.report.text import markdown_table, markdown_text
from populora_core.report.write import report_address
from populora_core.runs.observer import Observer
from populora_core.runs.session import Session
from populora_core.stages.engine import StageResult
from populora_core.stages.table import typed_name
from tasks.interruption import interruption

FIRST_SECONDS = 3.0
"""A stage that is over sooner shows no progress."""
EVERY_SECONDS = 2.0

_BESIDE: ContextVar[Executor | None] = ContextVar("_BESIDE", default=None)


def artifact_key(*names: str) -> str:
    """A key that Prefect takes: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(names).lower()).strip("-")


@contextmanager
def progress_shown(session: Session, generation: int, stage: str) -> Iterator[None]:
    """Show the session's progress also as an artifact of the running task, while the block lasts."""
    before = session.observer
    session.observer = _Progress(before, artifact_key(session.run.name, stage, "progress"), generation)
    try:
        yield
    finally:
        session.observer = before


@contextmanager
def shown_beside() -> Iterator[None]:
    """Let stages be shown while the next ones run; the block ends when all of them are."""
    with ThreadPoolExecutor(1, "shown") as pool:
        token = _BESIDE.set(pool)
        try:
            yield
        finally:
            _BESIDE.reset(token)


def show(session: Session, result: StageResult) -> None:
    """Make the markdown artifact of a stage that has just ended: at once, or beside the next ones."""
    run = session.run

    def create() -> None:
        summary = stage_summary(run.directory, result.generation, result.stage)
        get_run_logger().info("%s: %s", "found done" if result.reused else "made", summary.headline)
        create_markdown_artifact(
            key=artifact_key(run.name, result.stage),
            markdown=markdown(run.name, result, summary.headline, summary.tables)
            + f"\n[Report of {run.name}]({report_address(run.directory)})\n",
            description=f"{result.stage} of generation {result.generation}: {summary.headline}",
        )

    if (pool := _BESIDE.get()) is None:
        attempted(create)
    else:
        pool.submit(copy_context().run, attempted, create)


def markdown(
    name: str, result: StageResult, headline: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> str:
    """A stage's summary as Markdown."""
    how = "found done" if result.reused else f"{result.seconds:.1f} s"
    if ":" in typed_name(result.stage):  # a plug-in's word on its stage may be a stranger's
        headline = markdown_text(headline)
    lines = [f"# {name}, generation {result.generation}: {result.stage}", "", f"{headline} ({how}).", ""]
    for title, rows in tables.items():
        lines += [f"## {title}", "", markdown_table(list(rows[0]), (row.values() for row in rows)), ""]
    return "\n".join(lines)


def attempted(show: Callable[[], object]) -> bool:
    """Show something; return False, with a warning in the log, if it cannot be shown."""
    try:
        show()
    except Exception as error:
        if (ended_by := interruption(error)) is not None:
            raise ended_by from None
        get_run_logger().warning("not shown: %s: %s", type(error).__name__, error)
        return False
    return True


class _Progress(Observer):
    """A progress artifact, made once a stage has taken a while, brought up to date now and then.

    Args:
        also: hears of the stage as well.
    """

    def __init__(self, also: Observer, key: str, generation: int) -> None:
        self._also, self._key, self._generation = also, key, generation
        self._artifact: UUID | None = None
        self._works = True
        self._due = time.monotonic() + FIRST_SECONDS

    def stage_started(self, generation: int, stage: str) -> None:
        self._also.stage_started(generation, stage)

    def stage_again(self, generation: int, stage: str, moved: Sequence[str]) -> None:
        self._also.stage_again(generation, stage, moved)
        get_run_logger().info("%s is made again: %s", stage, "; ".join(moved))

    def stage_progress(self, done: int, total: int) -> None:
        self._also.stage_progress(done, total)
        if time.monotonic() >= self._due and total:
            self._show(100.0 * done / total)

    def stage_ended(self, generation: int, stage: str, reused: bool, seconds: float) -> None:
        self._also.stage_ended(generation, stage, reused, seconds)
        if self._artifact is not None:
            self._show(100.0)

    def _show(self, percent: float) -> None:
        def write() -> None:
            if self._artifact is None:
                created = create_progress_artifact(
                    progress=percent, key=self._key, description=f"generation {self._generation}"
                )
                assert isinstance(created, UUID)  # outside of event loops it is no coroutine
                self._artifact = created
            else:
                update_progress_artifact(self._artifact, progress=percent)

        self._works = self._works and attempted(write)
        self._due = time.monotonic() + EVERY_SECONDS
