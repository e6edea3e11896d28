"""run_stage: a stage is done when its manifest's key is the key it would be made with, and its files are intact."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from populora_core.config.load import Config
from populora_core.runs.machine import gpus_of
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.drift import drift, is_whole, recorded_alike
from populora_core.stages.plan import Past, StagePlan, made_of, plan_stage
from populora_core.stages.redoable import require_redoable
from populora_core.stages.table import Stage, stages_of
from populora_core.store.adapters import place_adapters, staged_adapters
from populora_core.store.artifacts import StageWriter
from populora_core.store.manifest import (
    EVALUATION,
    FileRecord,
    Manifest,
    read_manifest,
    shards_dir,
    stage_dir,
)
from populora_core.support.devices import watched
from populora_core.support.errors import ArtifactError, DamagedObject
from populora_core.support.revision import code_revision

if TYPE_CHECKING:
    from populora_core.runs.sharing import SharedEntry, SharedStore
    from populora_core.stages.context import StageContext

Guard = Callable[[Sequence[FileRecord]], None]


@dataclass(frozen=True, slots=True)
class StageResult:
    """Result of one stage: made now, or reused."""

    generation: int
    stage: str
    reused: bool
    seconds: float
    manifest: Manifest


def run_stage(
    session: Session,
    generation: int,
    stage: Stage,
    *,
    force: bool = False,
    redraw: int | None = None,
    guard: Guard | None = None,
) -> StageResult:
    """Make a stage's artifacts, unless they are there and follow from the same inputs.

    Args:
        force: make them although they are there.
        redraw: a seed to draw with instead of the run's.
        guard: sees the new files before they are committed and may refuse them by raising.

    Raises:
        ArtifactError: an input is missing or damaged, or the commit failed; nothing was changed.
        RunDirectoryError: the session is not open.
    """
    session.require_open()
    session.observer.stage_started(generation, stage.name)
    session.heartbeat.at(generation, stage.name)
    plan = plan_stage(session, generation, stage, redraw)
    manifest = None if force else _committed(session.run, plan) or _bring(session, plan, guard)
    reused = manifest is not None
    if manifest is None:
        if not force:
            _refuse_damaged_past(session.run, plan)
        moved = drift(session.run, plan)
        if moved is not None:
            session.observer.stage_again(generation, stage.name, moved)
        manifest, reused = _make(session, plan, moved, guard)
    session.stage_ended = time.time()
    session.observer.stage_ended(generation, stage.name, reused, manifest.seconds)
    return StageResult(generation, stage.name, reused, manifest.seconds, manifest)


def run_generation(session: Session, generation: int) -> list[StageResult]:
    """All stages of one generation, in order."""
    return [run_stage(session, generation, stage) for stage in stages_of(generation)]


def is_done(
    session: Session, generation: int, stages: Sequence[Stage] | None = None, past: Past | None = None
) -> bool:
    """True if every stage of the generation, or of `stages`, is committed, intact, and follows from its inputs.

    Args:
        past: of a walk over generations.
    """
    try:
        return all(
            _committed(session.run, plan_stage(session, generation, stage, past=past)) is not None
            for stage in (stages_of(generation) if stages is None else stages)
        )
    except ArtifactError:
        return False


def commit_shared(run: Run, shared: SharedStore, entry: SharedEntry) -> Manifest:
    """Commit in this run directory what a stage is in the shared store.

    Raises:
        DamagedObject: the store lost a file of it; nothing was changed.
    """
    made = entry.manifest
    with StageWriter(run.directory, made.generation, made.stage) as writer:
        shared.bring(entry, writer)
        place_adapters(run.directory, writer, made)
        return writer.commit(made)


def _committed(run: Run, plan: StagePlan) -> Manifest | None:
    """The stage as it is committed, if that is whole and follows from its inputs.

    What a fork inherited may have another key, as long as it follows from what lies there now and no one asked for
    another seed; so may an evaluation from before these were stages.
    """
    folder = stage_dir(run.directory, plan.generation, plan.stage.name)
    found = read_manifest(folder)
    if found is None or not is_whole(run, folder, found):
        return None
    if found.key == plan.key:
        return found
    if plan.stage.name.startswith(EVALUATION):
        return found if recorded_alike(plan, found, folder) else None
    return found if not plan.stage.own and _inherited(run, plan, found) else None


def _inherited(run: Run, plan: StagePlan, found: Manifest) -> bool:
    """True for what a fork took over, and follows from what lies there now."""
    return (
        plan.generation <= run.settled
        and (found.seed == plan.seed or run.redrawn(plan.generation, plan.stage.name) is None)
        and made_of(run, plan.generation, plan.stage.name, plan.inputs, found.inputs)
    )


def _refuse_damaged_past(run: Run, plan: StagePlan) -> None:
    """Raise ArtifactError where what a fork took over is damaged: its own settings would make another past."""
    generation, name = plan.generation, plan.stage.name
    if plan.stage.own or generation > run.settled or run.redrawn(generation, name) is not None:
        return
    folder = stage_dir(run.directory, generation, name)
    found = read_manifest(folder)
    damaged = folder.is_dir() if found is None else found.key != plan.key and _inherited(run, plan, found)
    if damaged:
        raise ArtifactError(
            f"{name} of generation {generation} is damaged, and this run took it over from another",
            expected="the files that its manifest names: this run's settings would make others",
            got=", ".join(drift(run, plan) or ["its manifest is damaged"]),
            fix=f"copy {folder} and the members' folders g{generation:04d} from the run "
            f"{run.record['forked_from']['run']} or from a copy; with a store, populora pull fetches them",
        )


def _shared(session: Session, plan: StagePlan) -> SharedStore | None:
    """The store that the loop's stages are shared in: no other machine depends on evaluations beside it."""
    return None if plan.stage.own else session.shared


def _bring(session: Session, plan: StagePlan, guard: Guard | None) -> Manifest | None:
    """Commit what another machine, or this one before a kill, has shared under the key; None where no one has."""
    shared = _shared(session, plan)
    entry = shared.find(plan.generation, plan.stage.name, plan.key) if shared is not None else None
    if shared is None or entry is None:
        return None
    if guard is not None:
        guard(entry.manifest.files)
    try:
        return commit_shared(session.run, shared, entry)
    except DamagedObject:
        return None  # made again with equal bytes it is whole again; with others, `settle` says what is wrong


def _make(
    session: Session, plan: StagePlan, moved: Sequence[str] | None, guard: Guard | None
) -> tuple[Manifest, bool]:
    """Run the stage's code and commit what it wrote; the second is whether just that was committed already."""
    run, generation, stage = session.run, plan.generation, plan.stage
    if not stage.own:  # what stands beside the loop reads its own generation's weights alone
        require_redoable(run, generation, moved)
    from populora_core.stages.context import StageContext

    started, began = time.time(), time.perf_counter()  # the first may be set back meanwhile
    with StageWriter(run.directory, generation, stage.name) as writer:
        kept = shards_dir(run.directory, generation, stage.name)
        shards = session.shards(plan.key, kept, staged_adapters(writer))
        context = StageContext(session, plan, writer, shards, session.observer.stage_progress)
        with _watched(run.config) as busy:
            perform(stage, context)
        if busy:
            context.extra["gpu_busy"] = fmean(busy)
        if shards.records:
            context.extra["shards"] = shards.records
        if moved is not None:
            context.extra["again"] = list(moved)
        manifest = writer.draft(
            key=plan.key,
            stage_version=stage.version,
            seed=plan.seed,
            config=plan.settings,
            inputs=plan.inputs,
            started=started,
            seconds=time.perf_counter() - began,
            code_revision=code_revision(),
            extra=context.extra | {"made_with": plan.made_with} | session.since_stage(started),
        )
        found = _committed(run, plan)
        if found is not None and found.contents == manifest.contents:
            shards.release()
            return found, True  # forced, and it came out as it was: what is there stays
        if guard is not None:
            guard(manifest.files)  # before another machine can take it
        if (shared := _shared(session, plan)) is not None:
            manifest = shared.settle(manifest, writer)
        place_adapters(run.directory, writer, manifest)
        writer.commit(manifest)
    shards.release()
    return manifest, False


def _watched(config: Config) -> AbstractContextManager[list[float]]:
    """See `watched`, of the GPUs that the run holds; nothing is known here of a cluster's."""
    if not config.compute.here:
        return nullcontext([])
    return watched(config.base.device, gpus_of(config))


def perform(stage: Stage, context: StageContext) -> None:
    """Run the stage's code. It is imported only here: a finished stage is recognised without what makes one."""
    from populora_core.stages import evaluate, evolve, found, grade, match, propose, solve, update, verify

    code: dict[str, Callable[[StageContext], None]] = {
        "found": found.run,
        "match": match.run,
        "propose": propose.run,
        "verify": verify.run,
        "solve": solve.run,
        "grade": grade.run,
        "update": update.run,
        "evaluate": evaluate.run,
        "evolve": evolve.run,
    }
    (stage.code or code[stage.name])(context)
