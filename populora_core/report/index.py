"""The runs of a folder at a glance: what each is, how far it is, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from populora_core.report.figures import read_figures
from populora_core.report.notes import one_line
from populora_core.report.scored import scored
from populora_core.report.write import REPORT
from populora_core.runs.heartbeat import Beat, Life
from populora_core.runs.run import Run
from populora_core.stages.table import stages_of
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.store.record import RECORD
from populora_core.support.errors import PopuloraError

KEPT = 500  # runs whose figures are remembered


@dataclass(frozen=True, slots=True)
class RunResults:
    """A run's results so far: one line, and its scores.

    Attributes:
        seconds: that its generations took by the clock.
        suite: the held-out suite of the scores; empty where there are none.
    """

    headline: str
    seconds: float = 0.0
    suite: str = ""
    solvers: float | None = None
    base: float | None = None


@dataclass(frozen=True, slots=True)
class RunGlance:
    """One run in a list of runs.

    Attributes:
        state: at work, killed, finished, stopped, or not readable.
        started: date and time, UTC.
        base: the name of its base model.
    """

    directory: Path
    state: str
    generation: int
    target: int
    outcome: RunResults
    started: str = ""
    base: str = ""
    seed: int | None = None

    @property
    def name(self) -> str:
        return self.directory.name


def runs_in(folder: Path) -> list[RunGlance]:
    """The runs of a folder, the one that went on last first."""
    found = [path.parent for path in folder.glob(f"*/{RECORD}")]
    return [glance(directory) for directory in sorted(found, key=_newest, reverse=True)]


def glance(directory: Path) -> RunGlance:
    """A run at a glance."""
    try:
        run = Run.open(directory)
        outcome = _outcome(run.directory, _newest(directory))
    except PopuloraError as error:
        return RunGlance(directory, "not readable", 0, 0, RunResults(error.problem))
    last = next((number for number in reversed(run.generations()) if _is_whole(run, number)), 0)
    target = max(run.config.run.generations, last)
    beat = Beat.read(run.directory)
    life = Life.ENDED if beat is None else beat.life
    ended = "finished" if last >= target else "stopped"
    state = {Life.ALIVE: "at work", Life.DEAD: "killed", Life.ENDED: ended}[life]
    return RunGlance(
        run.directory,
        state,
        last,
        target,
        outcome,
        str(run.record["created_at"])[:16].replace("T", " "),
        run.config.base.public_name(),
        run.config.run.seed,
    )


def _is_whole(run: Run, generation: int) -> bool:
    """True if the last stage of a generation was committed."""
    return read_manifest(stage_dir(run.directory, generation, stages_of(generation)[-1].name)) is not None


@lru_cache(KEPT)
def _outcome(directory: Path, newest: int) -> RunResults:
    """A run's headline, length and last scores; computed again once the run's report is written again."""
    figures = read_figures(directory, samples=False)
    took = sum(row["seconds"] + row["before"] for row in figures["stages"])
    said, found = one_line(figures), scored(directory)
    if not found:
        return RunResults(said, took)
    last = found[-1]
    return RunResults(said, took, last.suite, last.solvers.value, last.base.value)


def _newest(directory: Path) -> int:
    """Modification time, in ns, of the report, or of the record if there is none."""
    report = directory / REPORT
    return (report if report.is_file() else directory / RECORD).stat().st_mtime_ns
