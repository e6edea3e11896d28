"""Scores beside the frozen base, on held-out problems and on the run's own: while a run goes on, or when asked for.

They are what people read: no stage depends on them, and none sees what they are taken on.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError

from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import DATA, Suite, load_suite, named_suite
from populora_core.lifecycle.own_suites import OWN_SUITES, own_evaluation, own_suite
from populora_core.lifecycle.run_evaluation import (
    SOLVERS,
    RunEvaluation,
    RunStage,
    selection,
    stages_beside,
)
from populora_core.lifecycle.standing import require_generation
from populora_core.runs.run import Run, suites
from populora_core.runs.session import Session
from populora_core.stages.engine import run_stage
from populora_core.stages.evaluation import seeded
from populora_core.stages.following import newest_generation
from populora_core.stages.table import Stage, folder_name, typed_name
from populora_core.store.manifest import Manifest, read_manifest, stage_dir
from populora_core.support.errors import ConfigError, RunDirectoryError
from populora_core.support.registry import Registry
from populora_core.support.trust import require_trusted
from populora_core.support.typed import shown

Again = Callable[[Session, Manifest, int | None], Stage]
"""A stage's manifest, and another seed or None for its own -> the stage as it is made now."""


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


def stage_again(session: Session, generation: int, name: str, seed: int | None = None) -> Stage:
    """The stage with a parameter that a generation holds under a name, such as evaluate:tiny, to be made again.

    Args:
        seed: of its draws; None for the one it had.

    Raises:
        RunDirectoryError: it was never made, or nothing here makes such stages.
        ConfigError: it cannot have another seed, or names a file that the user has not named.
    """
    run, kind = session.run, name.partition(":")[0]
    again: Again = MAKERS.find(kind)
    manifest = read_manifest(stage_dir(run.directory, generation, folder_name(name)))
    if manifest is None:
        there = [typed_name(folder.name) for folder, _ in stages_beside(run, generation)]
        raise RunDirectoryError(
            f"{name} of generation {generation} was never made",
            expected=" or ".join(there) or "a stage of the loop",
            fix=f"populora {kind} {shown(run.directory)} --suite FILE makes such a stage",
        )
    return again(session, manifest, seed)


def evaluation_again(session: Session, manifest: Manifest, seed: int | None) -> Stage:
    """The evaluation that a manifest records (see `stage_again`)."""
    suite = suite_again(manifest, seed)
    if suite.suite in OWN_SUITES:
        _refuse_seed(session.run, suite.suite, seed)
    base = [BASE, None] in manifest.config.get("players", [[BASE, None]])
    return evaluation_of(session, suite, selection(manifest), manifest.generation, base).stage


def suite_again(manifest: Manifest, seed: int | None) -> Suite:
    """The suite that a manifest records, with another seed or with its own.

    Raises:
        RunDirectoryError: it records none.
        ConfigError: the suite names a file that the user has not named.
    """
    try:
        suite = Suite.model_validate(manifest.config.get("suite"))
    except ValidationError as error:
        raise RunDirectoryError(
            f"{manifest.stage} of generation {manifest.generation} names no suite", got=str(error)
        ) from error
    for entry in suite.benchmarks:  # somebody may have sent the run
        if entry.here is not None and DATA not in entry.here.resolve().parents:
            require_trusted(str(entry.here.resolve()))
    return seeded(suite, seed)


MAKERS = Registry(
    {"evaluate": evaluation_again},
    group="populora.stages",
    what="kind of stage with a parameter",
    setting="--stage",
    error=RunDirectoryError,
)
"""The word before the colon -> `Again`."""


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
