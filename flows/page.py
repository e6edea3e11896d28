"""A run's page in Prefect: a line per generation in its log, one summary, and how far the run is."""

from __future__ import annotations

from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from flows.server import answers
from populora_core.report.figures import Figures, read_figures
from populora_core.report.notes import headline, notes
from populora_core.report.summary import (
    MOST_LINES,
    generation_line,
    generation_lines,
    generation_summaries,
)
from populora_core.report.write import report_address
from populora_core.runs.observer import Observer
from populora_core.runs.run import Run
from populora_core.support.visible import visible
from tasks.show import artifact_key, attempted


class RunPage(Observer):
    """An observer that brings the surrounding flow run's page up to date after every generation.

    Args:
        generations: that the run goes on to.
    """

    def __init__(self, run: Run, generations: int) -> None:
        self._run, self._generations = run, generations
        self._summary: UUID | None = None
        self._progress: UUID | None = None
        attempted(
            lambda: self._show(read_figures(run.directory, samples=False) if run.generations() else None)
        )

    def show(self, figures: Figures) -> None:
        """Bring both artifacts up to date."""
        if answers():
            attempted(lambda: self._show(figures))

    def generation_ended(self, generation: int) -> None:
        if not answers():
            return
        for line in generation_lines(self._run.directory, generation, self._generations):
            get_run_logger().info(line)

    def _show(self, figures: Figures | None) -> None:
        """Write both artifacts, over those of the generation before: a page has one of each."""
        directory, done = self._run.directory, 0.0
        text = f"# {self._run.name}\n\nThe population is being founded.\n"
        if figures is not None:
            # A run may be further than it is to go now, and Prefect refuses more than 100.
            text, done = _overview(figures), min(100.0, 100.0 * figures.done / self._generations)
        text += f"\n[Report of {self._run.name}]({report_address(directory)})\n"
        if self._summary is None or self._progress is None:
            self._progress = _made(
                create_progress_artifact(
                    progress=done,
                    key=artifact_key(self._run.name, "generations"),
                    description=f"of {self._generations} generations",
                )
            )
            self._summary = _made(
                create_markdown_artifact(
                    markdown=text, key=artifact_key(self._run.name, "run"), description=str(directory)
                )
            )
            return
        update_progress_artifact(self._progress, progress=done)
        with get_client(sync_client=True) as client:
            client.update_artifact(self._summary, ArtifactUpdate(data=text))


def _overview(figures: Figures) -> str:
    """The run on one screen of Markdown: headline, what to look at, its newest generations."""
    parts = [f"# {visible(figures.run.name)}", *headline(figures)]
    if found := notes(figures):
        items = (f"- {note.text}" + (f" `{note.command}`" if note.command else "") for note in found)
        parts += ["## What to look at", "\n".join(items)]
    newest = generation_summaries(figures.run.directory, figures.last - MOST_LINES + 1, figures.last)
    lines = [generation_line(summary, figures.target) for summary in reversed(newest)]
    return "\n\n".join([*parts, *(["\n".join(["```", *lines, "```"])] if lines else [])]) + "\n"


def _made(artifact: object) -> UUID:
    assert isinstance(artifact, UUID)  # outside of event loops it is no coroutine
    return artifact
