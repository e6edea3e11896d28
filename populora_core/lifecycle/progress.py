"""Scores while a run goes on, beside the frozen base: on held-out problems, and on the run's own.

They are what people read: no stage depends on them, and none sees what they are taken on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from populora_core.benchmarks.benchmark import benchmark
from populora_core.benchmarks.items import sample_of
from populora_core.benchmarks.scores import FIRST, NEWEST, YARDSTICK
from populora_core.benchmarks.suite import Entry, Suite, load_suite
from populora_core.lifecycle.run_evaluation import RunEvaluation
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.store.artifacts import read_table, stage_dir
from populora_core.support.aliases import Row

EVALUATE = "evaluate"
ATTEMPTS = 2  # more problems tell more than more attempts at each
YARDSTICK_PROBLEMS = 80  # of each era, where no one says how many
LONGEST_ERA = 5  # generations, as long as the report's "at first" and "now"


def score_progress(session: Session, generation: int) -> None:
    """Score solvers and base where the configuration asks for it; what was scored before is not scored again."""
    settings = session.run.config.evaluate
    if not settings.report_every or generation % settings.report_every:
        return
    for asked in _asked(session, generation):
        if asked.is_done:
            continue
        started = time.monotonic()
        session.observer.stage_started(generation, EVALUATE)
        asked.run(session.observer.stage_progress)
        session.observer.stage_ended(generation, EVALUATE, False, time.monotonic() - started)


def _asked(session: Session, generation: int) -> Iterator[RunEvaluation]:
    settings = session.run.config.evaluate
    suite = load_suite(settings.file()).sampled(settings.report_problems)
    yield RunEvaluation(session, suite, "solvers", generation)
    if settings.yardstick:
        own = yardstick(session, generation, settings.yardstick)
        if own is not None:
            yield own


def yardstick(session: Session, generation: int, problems: int) -> RunEvaluation | None:
    """Solvers and base on a sample of the run's first and newest problems, drawn as students' attempts are.

    An era is a third of the generations, five at most; so until the 15th the first one grows, and its sample with it.

    The base never changes, so what it solves tells how hard the problems are. Founders begin as the base (B = 0).

    Args:
        problems: of each era, at most.

    Returns:
        None before there are two eras with valid problems.
    """
    run = session.run
    era = max(1, min(LONGEST_ERA, generation // 3))
    if generation < 2:
        return None
    solve = run.config.solve
    eras = {FIRST: range(1, era + 1), NEWEST: range(generation - era + 1, generation + 1)}
    asked = []
    for name, generations in eras.items():
        entry = Entry(
            benchmark=name,
            dataset="run",
            attempts=ATTEMPTS,
            temperature=solve.temperature,
            top_p=solve.top_p,
            max_tokens=solve.max_tokens,
        )
        items = benchmark(name).load(_problems(run, generations))
        asked.append((entry, sample_of(items, problems)))
    if not all(items for _, items in asked):
        return None
    entries = tuple(entry for entry, _ in asked)
    suite = Suite(suite=YARDSTICK, seed=run.config.run.seed, sample=problems, benchmarks=entries)
    return RunEvaluation(session, suite, "solvers", generation, asked)


def _problems(run: Run, generations: Sequence[int]) -> list[Row]:
    return [
        row
        for number in generations
        for row in read_table(stage_dir(run.directory, number, "verify"), "problems").to_pylist()
    ]
