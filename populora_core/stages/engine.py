"""run_stage: a stage is done when its manifest's key is the key it would be made with, and its files are intact."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.decisive import decisive
from populora_core.stages.redoable import require_redoable
from populora_core.stages.table import FOUND, Stage, When, file_name, giver, stages_of
from populora_core.store.adapters import WEIGHTS, adapter_intact, place_adapters
from populora_core.store.artifacts import (
    FileRecord,
    Manifest,
    StageWriter,
    intact,
    read_manifest,
    stage_dir,
)
from populora_core.store.manifest import pruned, shards_dir
from populora_core.support import ids
from populora_core.support.errors import ArtifactError, DamagedObject
from populora_core.support.revision import code_revision

if TYPE_CHECKING:
    from populora_core.sharing.shared import SharedRun, SharedStage
    from populora_core.stages.context import StageContext

Guard = Callable[[Sequence[FileRecord]], None]


@dataclass(frozen=True, slots=True)
class StageResult:
    """What became of one stage: made anew, or found done."""

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
    """
    session.observer.stage_started(generation, stage.name)
    session.heartbeat.at(generation, stage.name)
    run = session.run
    folder = stage_dir(run.directory, generation, stage.name)
    folders, inputs = stage_inputs(run, generation, stage)
    seed = stage_seed(run, generation, stage, redraw)
    key = stage_key(session, stage, seed, inputs)
    found = read_manifest(folder)
    if found is not None and not force and is_whole(run, generation, folder, found, key, inputs):
        session.observer.stage_ended(generation, stage.name, True, found.seconds)
        return StageResult(generation, stage.name, True, found.seconds, found)

    brought = None if force else _bring(session, generation, stage, key)
    if brought is not None:
        session.observer.stage_ended(generation, stage.name, True, brought.seconds)
        return StageResult(generation, stage.name, True, brought.seconds, brought)

    require_redoable(run, generation)
    from populora_core.stages.context import StageContext

    started = time.time()
    with StageWriter(run.directory, generation, stage.name) as writer:
        shards = session.shards(key, shards_dir(run.directory, generation, stage.name))
        context = StageContext(
            session, generation, seed, folders, writer, shards, session.observer.stage_progress
        )
        _perform(stage, context)
        if shards.records:
            context.extra["shards"] = shards.records
        manifest = writer.draft(
            key=key,
            stage_version=stage.version,
            seed=seed,
            config=decisive(run.config, stage.config),
            inputs=inputs,
            started=started,
            seconds=time.time() - started,
            code_revision=code_revision(),
            extra=context.extra,
        )
        if session.shared is not None:
            manifest = session.shared.settle(manifest, writer)
        if guard is not None:
            guard(manifest.files)
        place_adapters(run.directory, writer, manifest)
        writer.commit(manifest)
    shards.release()
    session.observer.stage_ended(generation, stage.name, False, manifest.seconds)
    return StageResult(generation, stage.name, False, manifest.seconds, manifest)


def _perform(stage: Stage, context: StageContext) -> None:
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
    code[stage.name](context)


def _bring(session: Session, generation: int, stage: Stage, key: str) -> Manifest | None:
    """Commit what another machine, or this one before a kill, has shared under the key; None where nobody has."""
    shared = session.shared
    entry = shared.find(generation, stage.name, key) if shared is not None else None
    if shared is None or entry is None:
        return None
    try:
        return commit_shared(session.run, shared, entry)
    except DamagedObject:
        return None  # made again with equal bytes it is whole again; with others, `settle` says what is wrong


def commit_shared(run: Run, shared: SharedRun, entry: SharedStage) -> Manifest:
    """Commit in this run directory what a stage is in the shared store.

    Raises:
        DamagedObject: the store lost a file of it; nothing was changed.
    """
    made = entry.manifest
    with StageWriter(run.directory, made.generation, made.stage) as writer:
        shared.bring(entry, writer)
        place_adapters(run.directory, writer, made)
        return writer.commit(made)


def run_generation(session: Session, generation: int) -> list[StageResult]:
    """All stages of one generation, in order."""
    return [run_stage(session, generation, stage) for stage in stages_of(generation)]


def is_whole(
    run: Run, generation: int, folder: Path, found: Manifest, key: str, inputs: Mapping[str, str]
) -> bool:
    """Whether a committed stage is the one of this key, with all its files and adapters.

    What a fork inherited may have another key, as long as it follows from what lies there now.
    """
    inherited = generation <= run.settled and all(
        found.inputs.get(name, content) == content for name, content in inputs.items()
    )
    follows = found.key == key or inherited
    adapters: Mapping[str, str] = found.extra.get("adapters", {})
    return (
        follows
        and intact(folder, found)
        and all(
            adapter_intact(run.directory / path, sha256) or pruned(run.directory / path / WEIGHTS)
            for path, sha256 in adapters.items()
        )
    )


def is_done(session: Session, generation: int, stages: Sequence[Stage] | None = None) -> bool:
    """Whether every stage of the generation, or each of `stages`, is committed, intact, and follows from its inputs."""
    run = session.run
    for stage in stages_of(generation) if stages is None else stages:
        folder = stage_dir(run.directory, generation, stage.name)
        found = read_manifest(folder)
        if found is None:
            return False
        try:
            _, inputs = stage_inputs(run, generation, stage)
        except ArtifactError:
            return False
        key = stage_key(session, stage, stage_seed(run, generation, stage), inputs)
        if not is_whole(run, generation, folder, found, key, inputs):
            return False
    return True


def stage_seed(run: Run, generation: int, stage: Stage, redraw: int | None = None) -> int:
    """The stage's seed: drawn from the run's, or from the one that `rerun --seed` gave it."""
    redrawn = run.redraws().get(f"{generation:04d}/{stage.name}") if redraw is None else redraw
    return ids.draw_seed(run.config.run.seed if redrawn is None else redrawn, generation, stage.name)


def stage_key(session: Session, stage: Stage, seed: int, inputs: Mapping[str, Any]) -> str:
    """sha256 over everything that decides the stage's content, and nothing else."""
    spec = session.model_spec
    document = {
        "stage": stage.name,
        "version": stage.version,
        "seed": seed,
        "config": decisive(session.run.config, stage.config),
        "inputs": inputs,
        "base": [spec.digest, spec.dtype, spec.device] if stage.base else None,
        "dialect": session.dialect.digest if stage.dialect else None,
        "sandbox": session.sandbox.identity if stage.sandbox else None,
        "sampler": spec.sampler.engine if stage.sampler else None,
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def stage_inputs(run: Run, generation: int, stage: Stage) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """Where each needed artifact lies, and the content hash of what lies there."""
    folders: dict[str, list[Path]] = {}
    inputs: dict[str, str] = {}
    if stage is FOUND:
        inputs = {f"start_from {member}": digest for member, digest in run.start_digests.items()}
    for artifact, when in stage.needs.items():
        folders[artifact] = []
        hashes = []
        for source_generation, source in _sources(generation, stage, artifact, when):
            folder = stage_dir(run.directory, source_generation, source.name)
            manifest = read_manifest(folder)
            if manifest is None or not intact(folder, manifest):
                raise ArtifactError(
                    f"{stage.name} of generation {generation} needs {artifact}, which is not there whole",
                    expected=f"a committed {source.name} of generation {source_generation}",
                    came="damaged files" if manifest else "nothing",
                    remedy=f"populora resume {run.directory} makes what is missing",
                )
            folders[artifact].append(folder)
            hashes.append(manifest.content(file_name(artifact)))
        inputs[artifact] = hashlib.sha256("".join(hashes).encode()).hexdigest()
    return folders, inputs


def _sources(generation: int, stage: Stage, artifact: str, when: When) -> list[tuple[int, Stage]]:
    own = stages_of(generation)
    if when is When.NOW:
        return [(generation, giver(artifact, own[: own.index(stage)]))]
    if when is When.BEFORE:
        return [(generation - 1, giver(artifact, stages_of(generation - 1)))]
    last = generation if when is When.SO_FAR else generation - 1
    return [(number, giver(artifact, own)) for number in range(1, last + 1)]
