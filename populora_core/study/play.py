"""Making one run of a study: the ordinary stages, evaluations on the way, and the summary at the end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from populora_core.benchmarks.suite import Suite
from populora_core.config.load import Config, apply_overrides
from populora_core.runs.run import RECORD, Run, begin
from populora_core.runs.session import Session, Silent
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.store.catalogue import Catalogue
from populora_core.study.measures import measure
from populora_core.study.summary import Origin, write_summary
from populora_core.support.errors import PopuloraError, RunDirectoryError
from populora_core.support.orphans import end_with_parent


@dataclass(frozen=True, slots=True)
class Assignment:
    """A run to make, with all that a process of its own needs to know.

    Attributes:
        directory: of the run.
        summary: file that its summary is written to.
        keep: whether the run directory stays afterwards.
    """

    origin: Origin
    config: Config
    suite: Suite
    directory: Path
    summary: Path
    keep: bool

    @property
    def name(self) -> str:
        return self.origin.name

    @property
    def generations(self) -> int:
        return self.config.run.generations


@dataclass(frozen=True, slots=True)
class Told:
    """How far a run is.

    Attributes:
        seconds: that the newest generation took; 0 if this is about something else.
        doing: what it does now, for people.
    """

    generation: int
    seconds: float
    doing: str


Tell = Callable[[Told], object]


def play(assignment: Assignment, tell: Tell = lambda told: None) -> None:
    """Make the run, or go on with it, and write its summary.

    Raises:
        RunDirectoryError: the directory holds a run of another configuration, or somebody else writes to it.
        PopuloraError: what a stage or an evaluation raises; everything committed stays.
    """
    from populora_core.lifecycle.loop import train
    from populora_core.lifecycle.run_evaluation import RunEvaluation

    run = _open(assignment)
    observer = _Teller(tell)
    with Session(run, observer) as session:
        train(session, assignment.generations)
        for generation in _evaluated(assignment):
            observer.doing(f"evaluating generation {generation}")
            RunEvaluation(session, assignment.suite, "all", generation).run()
        observer.doing("measuring")

        def run_jobs(jobs: list[Job]) -> list[JobResult]:
            from populora_core.sandbox.verify import verify_or_raise

            return verify_or_raise(session.sandbox, jobs, determinism=False)

        with Catalogue(run.directory) as catalogue:
            values = measure(catalogue, assignment.suite, run_jobs)  # type: ignore[arg-type]
            made = catalogue.rows(
                "SELECT list(DISTINCT code_revision) AS codes, sum(seconds) AS s FROM stages"
            )[0]
        origin = replace(assignment.origin, code_revisions=tuple(sorted(made["codes"])), seconds=made["s"])
        write_summary(assignment.summary, origin, values)
    if not assignment.keep:
        shutil.rmtree(run.directory)


def serve(pipe: Connection, assignment: Assignment, parent: int) -> None:
    """Play in a process of its own: tells by the pipe how far it is, then ("done", None) or ("error", why)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    end_with_parent(parent)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(assignment.config.compute.threads)
    answer: tuple[str, Any] = ("done", None)
    try:
        play(assignment, lambda told: pipe.send(("told", told)))
    except PopuloraError as error:
        answer = ("error", error)
    except Exception:
        problem = f"a defect, please report it:\n{traceback.format_exc()}"
        answer = (
            "error",
            PopuloraError(problem, remedy="nothing committed was lost; populora study goes on"),
        )
    pipe.send(answer)


def _open(assignment: Assignment) -> Run:
    directory = assignment.directory
    if not (directory / RECORD).is_file():
        return begin(directory, assignment.config)
    run = Run.open(directory)
    config = apply_overrides(run.config, [f"run.generations={assignment.generations}"])
    record = replace(assignment.origin, config=config.as_json(), base_digest=run.record["base_digest"])
    reason = record.stale(assignment.origin)
    if reason is not None:
        raise RunDirectoryError(
            f"{directory} holds a run that this study would make otherwise: {reason}",
            remedy="move or remove that folder, or give the study another `runs`",
        )
    return replace(run, config=config)


def _evaluated(assignment: Assignment) -> list[int]:
    """The generations whose members are measured on the suite: every n-th, and the last."""
    every, last = assignment.origin.evaluate_every, assignment.generations
    return sorted({*range(every, last + 1, every), last})


class _Teller(Silent):
    """Passes on how far the run is, once a generation and step."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._told, self._seconds = tell, Told(0, 0.0, "starting"), 0.0

    def stage_ended(self, generation: int, stage: str, reused: bool, seconds: float) -> None:
        self._seconds += seconds

    def generation_found(self, generation: int) -> None:
        self._told = replace(self._told, generation=generation)

    def generation_ended(self, generation: int) -> None:
        self._told = replace(self._told, generation=generation, seconds=self._seconds, doing="playing")
        self._seconds = 0.0
        self._tell(self._told)

    def doing(self, what: str) -> None:
        self._tell(replace(self._told, seconds=0.0, doing=what))
