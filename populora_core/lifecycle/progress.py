"""Scores beside the frozen base, on held-out problems and on the run's own: while a run goes on, or when asked for.

They are what people read: no stage depends on them, and none sees what they are taken on.
"""

from __future__ import annotations

from pydantic import ValidationError

from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import DATA, Suite, load_suite, named_suite
from populora_core.lifecycle.own_suites import OWN_SUITES, own_evaluation, own_suite
from populora_core.lifecycle.run_evaluation import (
    SOLVERS,
    RunEvaluation,
    RunStage,
    evaluations_of,
    selection,
)
from populora_core.lifecycle.standing import newest_generation, require_generation
from populora_core.runs.run import Run, suites
from populora_core.runs.session import Session
from populora_core.stages.engine import run_stage
from populora_core.stages.evaluation import seeded
from populora_core.stages.table import folder_name, typed_name
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.errors import ConfigError, RunDirectoryError
from populora_core.support.trust import require_trusted
from populora_core.support.typed import shown


def score_progress(session: Session, generation: int, run_one: RunStage = run_stage) -> None:
    """Score members and base where the configuration asks for it; what was scored before is not scored again.

    Args:
        run_one: runs one stage; Prefect's tasks take its place.
    """
    settings = session.run.config.evaluate
    if not settings.report_every or generation % settings.report_every:
        return
    suite = load_suite(settings.file()).sampled(settings.report_problems)
    RunEvaluation(session, suite, SOLVERS, generation).run(run_one)
    for name in OWN_SUITES:
        if problems := getattr(settings, name):
            own = own_evaluation(session, own_suite(session.run, name, problems), generation)
            if own is not None:
                own.run(run_one)


def is_current(session: Session, suite: Suite, members: str = "all") -> bool:
    """True if these of the newest generation's members, or all, were evaluated just as they would be now.

    Raises:
        RunDirectoryError: the run has no complete generation yet, or no such member.
        BenchmarkError: the suite cannot be used with this run.
    """
    asked = (members,) if suite.suite in OWN_SUITES else sorted({members, "all"})
    return any(evaluation_of(session, suite, each).is_done for each in asked)


def evaluation_again(session: Session, generation: int, name: str, seed: int | None = None) -> RunEvaluation:
    """The evaluation that a generation holds as the stage of a name, such as evaluate:tiny.

    Args:
        seed: of its draws; None for the one it had.

    Raises:
        RunDirectoryError: it was never made.
        ConfigError: a suite of the run's own is asked for another seed, or names a file that the user has not named.
    """
    run = session.run
    manifest = read_manifest(stage_dir(run.directory, generation, folder_name(name)))
    if manifest is None or "suite" not in manifest.config:
        there = [typed_name(folder.name) for folder, _ in evaluations_of(run, generation)]
        raise RunDirectoryError(
            f"{name} of generation {generation} was never made",
            expected=" or ".join(there) or "a stage of the loop",
            fix=f"populora evaluate {shown(run.directory)} --suite FILE makes such scores",
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
    if suite.suite in OWN_SUITES:
        _refuse_seed(run, suite.suite, seed)
    base = [BASE, None] in manifest.config.get("players", [[BASE, None]])
    return evaluation_of(session, seeded(suite, seed), selection(manifest), generation, base)


def suite_for(run: Run, name: str = "", seed: int | None = None, sample: int | None = None) -> Suite:
    """The suite that a person names: a file, one of the run's own, or nothing for `evaluate.suite`.

    Args:
        name: `yardstick` and `validity` are the run's own.
        seed: of the draws; None for the suite's.
        sample: problems of each benchmark; None for all of a file's, or as many as one of the run's own has.

    Raises:
        ConfigError: one of the run's own is asked for another seed, or the user has not named the run's suite.
        BenchmarkError: the file is no suite.
    """
    if name not in OWN_SUITES:
        for own in () if name else suites(run.config):
            require_trusted(own)
        chosen = seeded(named_suite(name) if name else load_suite(run.config.evaluate.file()), seed)
        return chosen if sample is None else chosen.sampled(sample)
    _refuse_seed(run, name, seed)
    return own_suite(run, name, sample)


def _refuse_seed(run: Run, name: str, seed: int | None) -> None:
    if seed is not None:
        raise ConfigError(
            f"the suite {name} has no seed of its own",
            expected=f"the run's, {run.config.run.seed}, so that a later one compares with it",
            got=f"--seed {seed}",
            fix="leave --seed out, or give a suite file",
        )


def evaluation_of(
    session: Session, suite: Suite, members: str = "all", generation: int | None = None, base: bool = True
) -> RunEvaluation:
    """The evaluation of a run on a suite of `suite_for`; nothing is made yet.

    Raises:
        ConfigError: a suite of the run's own is asked for some members.
        RunDirectoryError: no such generation or member, or nothing of the run's own to ask yet.
        BenchmarkError: the suite cannot be used with this run.
    """
    own = OWN_SUITES.get(suite.suite)
    if own is None:
        return RunEvaluation(session, suite, members, generation, base=base)
    if members not in ("all", own.players):
        raise ConfigError(
            f"the suite {suite.suite} is taken of all {own.players}",
            expected=f"members all or {own.players}",
            got=members,
            fix="leave --members out, or give a suite file",
        )
    at = newest_generation(session.run) if generation is None else generation
    require_generation(session.run, at)
    asked = own_evaluation(session, suite, at)
    if asked is None:
        raise RunDirectoryError(
            f"{session.run.directory} has no {suite.suite} after generation {at}",
            expected=own.needs,
            fix="go on first: populora resume",
        )
    return asked
