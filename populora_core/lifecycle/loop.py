"""The loop over generations, and the three ways back into it: resume, rerun, fork."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from populora_core.benchmarks.heldout import kept_out, require_kept_out
from populora_core.config.fields import END_OF_SEEDS
from populora_core.config.load import Config
from populora_core.lifecycle.progress import MAKERS, score_progress, stage_again
from populora_core.lifecycle.pruning import prune_as_configured
from populora_core.lifecycle.run_evaluation import supersede_outdated
from populora_core.model.base import base_digest, require_files, require_same
from populora_core.report.figures import Figures
from populora_core.report.guard import stop_if_fallen
from populora_core.report.scalars import whole_generations
from populora_core.report.write import outdated, refresh
from populora_core.runs.run import Run, chosen_here, refuse_occupied
from populora_core.runs.session import Session
from populora_core.runs.sharing import sharing
from populora_core.runs.space import require_space
from populora_core.runs.trackers import Trackers
from populora_core.stages.drift import is_whole
from populora_core.stages.engine import Guard, StageResult, is_done, run_generation, run_stage
from populora_core.stages.following import agrees, follows
from populora_core.stages.plan import Past
from populora_core.stages.redoable import require_redoable, require_startable
from populora_core.stages.table import STAGES, stages_of
from populora_core.store.artifacts import link_tree, supersede_all
from populora_core.store.blocks import compact
from populora_core.store.catalogue import publish
from populora_core.store.manifest import (
    FileRecord,
    generation_dir,
    read_manifest,
    stage_dir,
    stage_folder_names,
)
from populora_core.support import durable
from populora_core.support.errors import ArtifactError, RunDirectoryError
from populora_core.support.typed import shown

VERIFY = "verify"
RunGeneration = Callable[[Session, int], object]


def train(
    session: Session,
    generations: int,
    run_one: RunGeneration = run_generation,
    show: Callable[[Figures], None] = lambda figures: None,
) -> None:
    """Go on to the given number of generations; what is done and follows from its inputs stays.

    Args:
        run_one: runs all stages of one generation; the Prefect flow takes the place of the plain loop.
        show: called with the report's figures, whenever it was written.

    Raises:
        BelowBase: the guard is to stop a run whose population has fallen below the base.
        BenchmarkError: the suite whose problems the run does not play is gone, or its rows are; nothing was started.
        RunDirectoryError: the session is not open.
    """
    session.require_open()
    _require_kept_out(session.run)
    found, past = False, Past(session.run)
    with Trackers(session.run) as trackers:
        for generation in range(generations + 1):
            found = is_done(session, generation, past=past)
            if found:
                session.observer.generation_found(generation)
                continue
            require_space(session.run)
            if generation:
                supersede_outdated(session.run, generation - 1)  # a kill may have come before these
                score_progress(session, generation - 1)
                stop_if_fallen(session.run, generation - 1)
            run_one(session, generation)
            past.forget(generation)
            leads_on = is_done(session, generation + 1, past=past)
            _publish(session, generation, trackers, show, told=None if leads_on else generation)
            session.observer.generation_ended(generation)
        if found and outdated(session.run.directory):  # killed when all stages were done
            _publish(session, generations, trackers, show)


def rerun(
    session: Session,
    generation: int,
    stage_name: str,
    seed: int | None = None,
    truncate: bool = False,
    run_one: Callable[..., StageResult] = run_stage,
    up_to: str | None = None,
) -> list[StageResult]:
    """Make one stage again, then the later stages of its generation whose inputs changed.

    Args:
        seed: draw again with this seed; None repeats the stage as it was.
        truncate: let later generations go to superseded/ when they no longer follow.
        run_one: runs one stage, as `run_stage` does; Prefect's tasks take its place.
        up_to: the later stage that is left, with those after it, to whoever goes on with the run.

    Raises:
        RunDirectoryError: no such stage yet, the content changed under later generations, or the session is not open.
        BenchmarkError: as of `train`.
    """
    session.require_open()
    run = session.run
    if seed is not None and not 0 <= seed < END_OF_SEEDS:
        raise RunDirectoryError(
            f"{seed} is no seed",
            expected=f"a number from 0 to {END_OF_SEEDS - 1}",
            fix="choose another --seed",
        )
    if ":" in stage_name:
        asked = stage_again(session, generation, stage_name, seed)
        made = run_one(session, generation, asked, force=True)
        if not made.reused:
            publish(run.directory)
        refresh(run.directory)
        return [made]
    stages = stages_of(generation)
    if stage_name not in (stage.name for stage in stages):
        beside = ", ".join(f"{kind}:SUITE" for kind in MAKERS.names())
        raise RunDirectoryError(
            f"generation {generation} has no stage {stage_name!r}",
            expected=f"one of {', '.join(stage.name for stage in stages)}, {beside}",
            fix="populora inspect shows the stages of a run",
        )
    stage = STAGES[stage_name]
    before = read_manifest(stage_dir(run.directory, generation, stage_name))
    if before is None:
        raise RunDirectoryError(
            f"{stage_name} of generation {generation} was never made",
            fix=f"populora resume {shown(run.directory)} makes it",
        )
    require_redoable(run, generation)
    if STAGES[VERIFY] in stages[stages.index(stage) :]:
        _require_kept_out(run)
    later = begun_later(run, generation)
    if seed is not None and later and not truncate:  # said before the stage is drawn again, not after
        raise _would_not_follow(stage_name, generation, later, "a new seed")

    def redraw() -> None:  # before anything is moved: a resume after a kill draws with it
        redraws = run.redraws() | ({} if seed is None else {f"{generation:04d}/{stage_name}": seed})
        if seed is not None and session.shared is not None:
            session.shared.redraw(redraws)
        if seed is not None:
            run.save_redraws(redraws)

    refused = () if truncate else later
    guard = _guard(run, generation, stage_name, before.contents, refused, redraw)
    results = [run_one(session, generation, stage, force=True, guard=guard, redraw=seed)]
    for follower in stages[stages.index(stage) + 1 :]:
        if follower.name == up_to:
            publish(run.directory)
            refresh(run.directory)
            return results
        held = read_manifest(stage_dir(run.directory, generation, follower.name))
        guard = _guard(run, generation, follower.name, held.contents if held else {}, refused)
        results.append(run_one(session, generation, follower, guard=guard))
    with Trackers(run) as trackers:
        _publish(session, generation, trackers)
    return results


def _guard(
    run: Run,
    generation: int,
    stage: str,
    before: Mapping[str, str],
    refused: Sequence[int],
    first: Callable[[], None] = lambda: None,
) -> Guard:
    """A guard that lets no other content come under later generations, and moves them away where they may go.

    Args:
        before: file -> content of the stage as it is committed; empty where it is not.
        refused: the generations that may not go.
        first: called before anything is moved.
    """

    def guard(files: Sequence[FileRecord]) -> None:
        changed = [file.name for file in files if file.content != before.get(file.name)]
        if changed and refused:
            came = "other content in " + ", ".join(changed)
            raise _would_not_follow(stage, generation, refused, came)
        first()
        if changed:
            supersede_later(run, generation)

    return guard


def _require_kept_out(run: Run) -> None:
    """See `require_kept_out`; a run that has played without its suite goes on without it."""
    verified = (read_manifest(stage_dir(run.directory, n, VERIFY)) for n in reversed(run.generations()))
    newest = next(filter(None, verified), None)
    held = newest is None or "held_out" in newest.config.get(VERIFY, {})
    if held or kept_out(run.config) is not None:
        require_kept_out(run.config)


def _would_not_follow(stage: str, generation: int, later: Sequence[int], came: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"generations {later[0]} to {later[-1]} would no longer follow from {stage} of generation {generation}",
        got=came,
        fix="repeat with --truncate to move them to superseded/, or populora fork to keep both; "
        "no content was changed",
    )


def _publish(
    session: Session,
    generation: int,
    trackers: Trackers,
    show: Callable[[Figures], None] = lambda figures: None,
    told: int | None = None,
) -> None:
    """Bring what is made of a generation's stages up to date: evaluations, blocks, catalogue, report, trackers.

    Args:
        told: the last generation that trackers hear of: later ones will be made again. None for all.
    """
    session.heartbeat.at(generation, "publish")
    supersede_outdated(session.run, generation)
    score_progress(session, generation)
    compact(session.run.directory)
    publish(session.run.directory)
    prune_as_configured(session.run, generation)
    figures = refresh(session.run.directory)
    if figures is not None:
        if trackers:
            trackers.follow(whole_generations(figures)[:told])
        show(figures)


def supersede_later(run: Run, generation: int) -> None:
    """Move the generations after `generation`, and then their members' folders, to superseded/."""
    later = reversed(later_generations(run, generation))  # a kill in between leaves a whole prefix
    members = [folder for folder in member_folders(run) if int(folder.name[1:]) > generation]
    supersede_all(run.directory, [*(generation_dir(run.directory, number) for number in later), *members])


def member_folders(run: Run) -> list[Path]:
    """The folders of members as they were after a generation, by member and generation."""
    found = (run.directory / "members").glob("*/g[0-9]*")
    return sorted(folder for folder in found if folder.name[1:].isdigit())


def later_generations(run: Run, generation: int) -> list[int]:
    """The numbers of the generations after `generation` that have a folder."""
    return [number for number in run.generations() if number > generation]


def begun_later(run: Run, generation: int) -> list[int]:
    """Later generations of which a stage is committed: a kill within the first one leaves an empty folder."""
    later = later_generations(run, generation)
    return [number for number in later if stage_folder_names(run.directory, {number})]


def fork(source: Run, generation: int, to: Path, config: Config) -> Run:
    """Start a new run directory from the first generations of an old one (by hard links, no copy), all or nothing.

    The inherited generations are settled: they stay although `config` would make them differently.

    Raises:
        RunDirectoryError: the generation is not complete, `to` is not free, or the source changed meanwhile.
        ArtifactError: the new directory could not be made; nothing of it is left.
        BaseModelError: the base is not the source's.
        ConfigError, SandboxUnavailable: nothing here is what `auto` stands for.
    """
    to = Path(to).resolve()
    refuse_occupied(to)
    _require_forkable(source, generation)
    if config.base.path != source.config.base.path:  # it may have moved, but not changed
        folder = config.base.folder()
        require_files(folder)
        require_same(folder, base_digest(folder), source.record["base_digest"])
    if config.store.url:
        if config.store.url == source.config.store.url:
            raise RunDirectoryError(
                "a fork needs a store of its own: the one that the old run names is the old run's",
                expected="another store, or none",
                got=f"store.url = {config.store.url}",
                fix="add --set store.url=URL, or --set 'store.url=\"\"' for none; nothing was written there",
            )
        sharing().require_unpruned(config.store.url, source.directory, generation)
    _refuse_other_shapes(source.config, config)
    if "auto" in (config.base.dtype, config.sampler.engine, config.sandbox.backend):
        config = chosen_here(config)
    with durable.writing(to):
        to.parent.mkdir(parents=True, exist_ok=True)
        durable.sweep(to.parent)
        with durable.temporary_folder(to.parent, to.name) as folder:
            _inherit(source, generation, folder / to.name, config)
            durable.fsync_tree(folder)
            os.rename(folder / to.name, to)
            durable.fsync(to.parent)
    publish(to)
    return Run.open(to)


def _require_forkable(run: Run, generation: int) -> None:
    """Raise RunDirectoryError or ArtifactError unless a run that ends with the generation is whole and can go on."""
    past = Past(run)
    for number in range(generation + 1):
        for stage in stages_of(number):
            folder = stage_dir(run.directory, number, stage.name)
            manifest = read_manifest(folder)
            if manifest is None or not is_whole(run, folder, manifest):
                raise RunDirectoryError(
                    f"{run.directory} has no complete generation {generation}",
                    expected=f"one of its generations 0 to {number - 1}" if number else "a founded run",
                    got=f"{'no' if manifest is None else 'a damaged'} {stage.name} of generation {number}",
                    fix=f"fork from one of these, or populora resume {shown(run.directory)} first",
                )
        if number and not (follows(run, number) and agrees(run, number, past)):
            raise RunDirectoryError(
                f"generation {number} of {run.directory} does not follow from what comes before any more",
                expected=f"one of its generations 0 to {number - 1}",
                got="a stage that was made again, and the run has not come here since",
                fix=f"fork from one of these, or populora resume {shown(run.directory)} first",
            )
    require_startable(run, generation)


def _inherit(source: Run, generation: int, to: Path, config: Config) -> None:
    """Make a run directory with all that a fork takes over.

    Raises:
        RunDirectoryError: the source changed meanwhile.
    """
    origin = {"run": source.directory.name, "generation": generation}
    run = Run.create(to, config, source.record["base_digest"], origin, source.start_digests)
    try:
        for number in range(generation + 1):
            link_tree(generation_dir(source.directory, number), generation_dir(run.directory, number))
        for folder in member_folders(source):
            if int(folder.name[1:]) <= generation:
                link_tree(folder, run.directory / "members" / folder.parent.name / folder.name)
    except (FileNotFoundError, ArtifactError):
        try:
            _require_forkable(source, generation)
        except (RunDirectoryError, ArtifactError):
            pass  # something was moved while it was linked: the fork is not whole, and refused below
        else:
            raise
    try:
        _require_forkable(run, generation)
    except (RunDirectoryError, ArtifactError) as error:
        taken = f", with another store.url: {config.store.url} is taken" if config.store.url else ""
        raise RunDirectoryError(
            f"{source.directory} changed while it was forked",
            expected=f"generations 0 to {generation} as they were when the fork began",
            got=error.problem.replace(str(run.directory), "the fork"),
            fix=f"give the same command again{taken}; nothing of the fork is left",
        ) from error
    redraws = {
        key: seed for key, seed in source.redraws().items() if int(key.partition("/")[0]) <= generation
    }
    shared = run.shared()
    if shared is not None:
        shared.push(redraws)
    if redraws:
        run.save_redraws(redraws)


def _refuse_other_shapes(old: Config, new: Config) -> None:
    changed: Iterable[str] = (s for s in ("population", "adapters") if getattr(old, s) != getattr(new, s))
    for section in changed:
        raise RunDirectoryError(
            f"a fork cannot change [{section}]: the inherited members would not fit",
            expected=str(getattr(old, section)),
            got=str(getattr(new, section)),
            fix="start a new run for another population or adapter shape",
        )
    if old.pbt.own != new.pbt.own:
        raise RunDirectoryError(
            "a fork cannot change which hyperparameters members inherit: the inherited members have others",
            expected=", ".join(sorted(old.pbt.own)) or "none",
            got=", ".join(sorted(new.pbt.own)) or "none",
            fix="leave each prior of [pbt] empty or not as it was, or start a new run",
        )
