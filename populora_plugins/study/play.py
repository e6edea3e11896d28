"""Making one run of a study: the ordinary stages, evaluations on the way, and the summary at the end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from populora_core.benchmarks.suite import Suite
from populora_core.config.load import Config, apply_overrides
from populora_core.runs.absolute import absolute
from populora_core.runs.lock import lock
from populora_core.runs.observer import Observer
from populora_core.runs.run import RECORD, Run, begin
from populora_core.runs.session import Session
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.store.catalogue import Catalogue
from populora_core.support.aliases import Say
from populora_core.support.children import end_with_parent
from populora_core.support.errors import PopuloraError, RunDirectoryError, StudyError
from populora_plugins.study.measures import measure
from populora_plugins.study.summary import Origin, versions_of, why_void, write_summary

MADE = """
    SELECT list(DISTINCT code_revision) AS codes, sum(seconds) AS seconds,
           sum(seconds) FILTER (stage LIKE 'evaluate%') AS evaluation_seconds
    FROM stages
"""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A run to make, with all that a process of its own needs to know.

    Attributes:
        suite: answered greedily at every evaluation.
        sampled: answered at the first and the last one; None for not at all.
        members: who answers: all, or solvers.
        directory: of the run.
        summary: file that its summary is written to.
        keep: whether the run directory stays afterwards.
        average: whether the average of those who solve answers too.
        copies_at: generation whose students are copied in forks; 0 for none.
    """

    origin: Origin
    config: Config
    suite: Suite
    sampled: Suite | None
    members: str
    directory: Path
    summary: Path
    keep: bool
    average: bool = False
    copies_at: int = 0

    @property
    def name(self) -> str:
        return self.origin.name

    @property
    def generations(self) -> int:
        return self.config.run.generations

    def evaluations(self) -> Iterator[tuple[Suite, int, bool]]:
        """(suite, generation, whether the base answers too): every n-th generation and the last.

        The base never changes, so that it answers each suite once.
        """
        every, last = self.origin.evaluate_every, self.generations
        generations = sorted({*range(every, last + 1, every), last})
        first = generations[0]
        for generation in generations:
            yield self.suite, generation, generation == first
            if self.sampled is not None and generation in (first, last):
                yield self.sampled, generation, generation == first


def play(assignment: Assignment, say: Say) -> None:
    """Make the run, or go on with it, and write its summary; nothing where that is there.

    Raises:
        StudyError: the code is another than when the run was planned.
        RunDirectoryError: the directory holds a run of another configuration, or somebody else writes to it.
        PopuloraError: what a stage or an evaluation raises; everything committed stays.
    """
    from populora_core.lifecycle.loop import train
    from populora_core.lifecycle.run_evaluation import RunEvaluation
    from populora_plugins.study.mixtures import averages, copies

    if (now := versions_of(assignment.config)) != assignment.origin.stage_versions:
        raise StudyError(
            f"the code changed since {assignment.name} was planned",
            expected=f"stage versions {assignment.origin.stage_versions}",
            got=str(now),
            fix="start the study again",
        )
    if why_void(assignment.summary, assignment.origin) is None:
        say("another process has made it")
        return
    run = _open(assignment)
    with Session(run, _Teller(assignment.generations, say)) as session:
        train(session, assignment.generations)
        for suite, generation, base in assignment.evaluations():
            say(f"evaluating generation {generation} on {suite.suite}")
            RunEvaluation(session, suite, assignment.members, generation, base=base).run()
        mixed = [
            value
            for suite, generation, _ in assignment.evaluations()
            if assignment.average and suite is assignment.suite
            for value in averages(session, suite, generation)
        ]
        say("measuring")

        def run_jobs(jobs: list[Job]) -> list[JobResult]:
            from populora_core.sandbox.verify import verify_or_raise

            return verify_or_raise(session.sandbox, jobs, determinism=False)

        with Catalogue(run.directory) as catalogue:
            values = measure(catalogue, assignment.suite, run_jobs, assignment.sampled)  # type: ignore[arg-type]
            (made,) = catalogue.rows(MADE)
        origin = replace(
            assignment.origin,
            code_revisions=tuple(sorted(made["codes"])),
            seconds=made["seconds"],
            evaluation_seconds=made["evaluation_seconds"] or 0.0,
        )
    with lock(run.directory):  # another conductor stays away
        if assignment.copies_at:
            mixed += copies(run, assignment.copies_at, assignment.suite, say)
        write_summary(assignment.summary, origin, [*values, *mixed])
        if not assignment.keep:
            shutil.rmtree(run.directory)


def serve(pipe: Connection, assignment: Assignment) -> None:
    """Play in a process of its own: sends lines that tell how far it is, then None, or the error that ended it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    end_with_parent()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(assignment.config.compute.threads)
    failure = None
    try:
        play(assignment, pipe.send)
    except PopuloraError as error:
        failure = error
    except Exception:
        problem = f"a defect, please report it:\n{traceback.format_exc()}"
        failure = PopuloraError(problem, fix="nothing committed was lost; populora study goes on")
    with suppress(OSError):  # the parent was interrupted, and listens no more
        pipe.send(failure)


def _open(assignment: Assignment) -> Run:
    directory = assignment.directory
    if not (directory / RECORD).is_file():
        return begin(directory, assignment.config)
    run = Run.open(directory)
    config = apply_overrides(run.config, [f"run.generations={assignment.generations}"])
    record = replace(
        assignment.origin, config=absolute(config).as_json(), base_digest=run.record["base_digest"]
    )
    reason = record.stale(replace(assignment.origin, config=absolute(assignment.config).as_json()))
    played = max(run.generations(), default=0)
    if reason is None and played > assignment.generations:
        reason = f"it has played {played} generations of {assignment.generations}"
    if reason is not None:
        raise RunDirectoryError(
            f"{directory} holds a run that this study would make otherwise: {reason}",
            fix="move or remove that folder, or give the study another `runs`",
        )
    return replace(run, config=config)


class _Teller(Observer):
    """An observer that says what each generation took."""

    def __init__(self, generations: int, say: Say) -> None:
        self._generations, self._say, self._seconds = generations, say, 0.0

    def stage_ended(self, generation: int, stage: str, reused: bool, seconds: float) -> None:
        self._seconds += seconds

    def generation_ended(self, generation: int) -> None:
        self._say(f"generation {generation} of {self._generations}: {self._seconds:.0f} s")
        self._seconds = 0.0
