"""Scores beside the frozen base, on held-out problems and on the run's own: while a run goes on, or when asked for.

They are what people read: no stage depends on them, and none sees what they are taken on.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from populora_core.benchmarks.benchmark import benchmark
from populora_core.benchmarks.items import sample_of
from populora_core.benchmarks.scores import BASE, FIRST, NEWEST, YARDSTICK
from populora_core.benchmarks.suite import DATA, Entry, Suite, load_suite, named_suite
from populora_core.lifecycle.run_evaluation import (
    SOLVERS,
    RunEvaluation,
    RunStage,
    evaluations_of,
    selection,
)
from populora_core.lifecycle.standing import newest_generation
from populora_core.runs.run import Run, suites
from populora_core.runs.session import Session
from populora_core.stages.engine import run_stage
from populora_core.stages.evaluation import seeded
from populora_core.stages.table import folder_name, typed_name
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.store.rows import ProblemRow, StageTables
from populora_core.support.errors import ConfigError, RunDirectoryError
from populora_core.support.ids import ANCHOR
from populora_core.support.trust import require_trusted

ATTEMPTS = 2  # more problems tell more than more attempts at each
YARDSTICK_PROBLEMS = 80  # of each era, where no one says how many
LONGEST_ERA = 5  # generations, as long as the report's "at first" and "now"


def score_progress(session: Session, generation: int, run_one: RunStage = run_stage) -> None:
    """Score solvers and base where the configuration asks for it; what was scored before is not scored again.

    Args:
        run_one: runs one stage; Prefect's tasks take its place.
    """
    settings = session.run.config.evaluate
    if not settings.report_every or generation % settings.report_every:
        return
    suite = load_suite(settings.file()).sampled(settings.report_problems)
    RunEvaluation(session, suite, SOLVERS, generation).run(run_one)
    if settings.yardstick:
        own = _yardstick(session, _own_suite(session.run, settings.yardstick), generation)
        if own is not None:
            own.run(run_one)


def is_current(session: Session, suite: Suite, members: str = "all") -> bool:
    """True if these of the newest generation's members, or all, were evaluated just as they would be now.

    Raises:
        RunDirectoryError: the run has no complete generation yet, or no such member.
        BenchmarkError: the suite cannot be used with this run.
    """
    asked = (members,) if suite.suite == YARDSTICK else sorted({members, "all"})
    return any(evaluation_of(session, suite, each).is_done for each in asked)


def evaluation_again(session: Session, generation: int, name: str, seed: int | None = None) -> RunEvaluation:
    """The evaluation that a generation holds as the stage of a name, such as evaluate:tiny.

    Args:
        seed: of its draws; None for the one it had.

    Raises:
        RunDirectoryError: it was never made.
        ConfigError: the yardstick is asked for another seed, or the suite names a file that the user has not named.
    """
    run = session.run
    manifest = read_manifest(stage_dir(run.directory, generation, folder_name(name)))
    if manifest is None or "suite" not in manifest.config:
        there = [typed_name(folder.name) for folder, _ in evaluations_of(run, generation)]
        raise RunDirectoryError(
            f"{name} of generation {generation} was never made",
            expected=" or ".join(there) or "a stage of the loop",
            fix=f"populora evaluate {run.directory} --suite FILE makes such scores",
        )
    try:
        suite = Suite.model_validate(manifest.config["suite"])
    except ValidationError as error:
        raise RunDirectoryError(
            f"{name} of generation {generation} names no suite", got=str(error)
        ) from error
    for entry in suite.benchmarks:  # somebody may have sent the run
        if entry.here is not None and DATA not in entry.here.resolve().parents:
            require_trusted(str(entry.here.resolve()))
    if suite.suite == YARDSTICK:
        _refuse_seed(run, seed)
    base = [BASE, None] in manifest.config.get("players", [[BASE, None]])
    return evaluation_of(session, seeded(suite, seed), selection(manifest), generation, base)


def suite_for(run: Run, name: str = "", seed: int | None = None, sample: int | None = None) -> Suite:
    """The suite that a person names: a file, `yardstick` for the run's own problems, or nothing for `evaluate.suite`.

    Args:
        seed: of the draws; None for the suite's.
        sample: problems of each benchmark; None for all of a file's, or as many as a yardstick has.

    Raises:
        ConfigError: the yardstick is asked for another seed, or the user has not named the run's suite.
        BenchmarkError: the file is no suite.
    """
    if name != YARDSTICK:
        for own in () if name else suites(run.config):
            require_trusted(own)
        chosen = seeded(named_suite(name) if name else load_suite(run.config.evaluate.file()), seed)
        return chosen if sample is None else chosen.sampled(sample)
    _refuse_seed(run, seed)
    return _own_suite(run, sample or YARDSTICK_PROBLEMS)


def _refuse_seed(run: Run, seed: int | None) -> None:
    if seed is not None:
        raise ConfigError(
            "the yardstick has no seed of its own",
            expected=f"the run's, {run.config.run.seed}, so that a later one compares with it",
            got=f"--seed {seed}",
            fix="leave --seed out, or give a suite file",
        )


def evaluation_of(
    session: Session, suite: Suite, members: str = "all", generation: int | None = None, base: bool = True
) -> RunEvaluation:
    """The evaluation of a run on a suite of `suite_for`; nothing is made yet.

    Raises:
        ConfigError: the yardstick is asked for some members.
        RunDirectoryError: no such generation or member, or no two eras with problems yet.
        BenchmarkError: the suite cannot be used with this run.
    """
    if suite.suite != YARDSTICK:
        return RunEvaluation(session, suite, members, generation, base=base)
    if members not in ("all", SOLVERS):
        raise ConfigError(
            "the yardstick is taken of all solvers",
            expected=f"members all or {SOLVERS}",
            got=members,
            fix="leave --members out, or give a suite file",
        )
    at = newest_generation(session.run) if generation is None else generation
    asked = _yardstick(session, suite, at)
    if asked is None:
        raise RunDirectoryError(
            f"{session.run.directory} has no yardstick after generation {at}",
            expected="valid problems in its first and in its newest generations, two at least",
            fix="go on first: populora resume",
        )
    return asked


def _own_suite(run: Run, problems: int) -> Suite:
    """The yardstick of a run, as its students attempt."""
    solve = run.config.solve
    first, newest = (
        Entry(
            benchmark=name,
            dataset="run",
            attempts=ATTEMPTS,
            temperature=solve.temperature,
            top_p=solve.top_p,
            max_tokens=solve.max_tokens,
        )
        for name in (FIRST, NEWEST)
    )
    return Suite(suite=YARDSTICK, seed=run.config.run.seed, sample=problems, benchmarks=(first, newest))


def _yardstick(session: Session, suite: Suite, generation: int) -> RunEvaluation | None:
    """Solvers and base on a sample of the run's first and newest problems, drawn as students' attempts are.

    An era is a third of the generations, five at most; so until the 15th the first one grows, and its sample with it.

    The base never changes, so what it solves tells how hard the problems are. Founders begin as the base (B = 0).

    Returns:
        None before there are two eras with valid problems.
    """
    era = max(1, min(LONGEST_ERA, generation // 3))
    if generation < 2:
        return None
    eras = range(1, era + 1), range(generation - era + 1, generation + 1)
    asked = []
    for entry, generations in zip(suite.benchmarks, eras, strict=True):
        items = benchmark(entry.benchmark).load(_problems(session.run, generations))
        asked.append((entry, sample_of(items, suite.sample or YARDSTICK_PROBLEMS)))
    if not all(items for _, items in asked):
        return None
    return RunEvaluation(session, suite, SOLVERS, generation, asked)


def _problems(run: Run, generations: Sequence[int]) -> list[ProblemRow]:
    return [
        row
        for number in generations
        for row in StageTables(stage_dir(run.directory, number, "verify")).rows("problems")
        if row["teacher_id"] != ANCHOR
    ]
