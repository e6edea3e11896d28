"""`populora pull`: a run directory from its shared store alone, or brought up to date from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from populora_core.config.load import build_config
from populora_core.lifecycle.loop import supersede_later
from populora_core.lifecycle.run_evaluation import supersede_outdated
from populora_core.report.write import outdated, refresh
from populora_core.runs.lock import lock
from populora_core.runs.reap import clear
from populora_core.runs.run import RECORD, Run, refuse_occupied
from populora_core.sharing.objects import ObjectStore
from populora_core.sharing.places import open_objects
from populora_core.stages.drift import is_whole
from populora_core.stages.engine import commit_shared
from populora_core.stages.plan import Past, made_of, stage_inputs, stage_seed, stage_sources
from populora_core.stages.table import as_configured, stages_of
from populora_core.store.catalogue import publish
from populora_core.store.manifest import Manifest, read_manifest, stage_dir
from populora_core.support.durable import write_atomically, writing
from populora_core.support.errors import RunDirectoryError
from populora_core.support.trust import remember
from populora_plugins.cluster.shared import (
    SharedRun,
    SharedStage,
    entries_under,
    open_shared,
    read_history,
    read_record,
    require_same,
)
from populora_plugins.cluster.trials import require_conditional


@dataclass(frozen=True, slots=True)
class Pulled:
    """Result of a pull: stages brought from the store, and stages that were here.

    Attributes:
        left: the store that the run shared before; empty where it is this one, or there was none.
    """

    run: Run
    brought: int
    kept: int
    left: str = ""


def pull(url: str, directory: str | Path) -> Pulled:
    """Make or bring up to date a run directory, so that it holds what the store holds.

    It walks the stages in order and takes each that follows from those already here: no model, sandbox or key is
    needed. What is here and follows stays; what no longer follows, since another machine redrew a stage, goes to
    superseded/, and so do evaluations of members that are no more. From now on the run shares this store.

    Raises:
        RunDirectoryError: the store holds no run or the beginning of a fork, or the directory another one or
            anything else.
        DamagedObject: the store lost a file; everything before it is here.
        StoreUnavailable: the store does not answer; the same command goes on.
    """
    objects = open_objects(url)
    url = objects.url
    remember([url])
    record = read_record(objects)
    _require_pushed(objects, record)
    directory = Path(directory).resolve()
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with lock(directory):
        run, left = _opened(directory, record, url)
        clear(directory)
        brought = kept = 0
        reached = set()
        shared = open_shared(url, run.directory, run.record, run.redraws())
        for entry, here in _stages(run, shared):
            reached.add(entry.manifest.generation)
            if here:
                kept += 1
                continue
            _supersede_what_differs(run, entry.manifest)
            commit_shared(run, shared, entry)
            brought += 1
        # Of what is here too: a pull may have been killed between a stage and this.
        superseded = [path for generation in sorted(reached) for path in supersede_outdated(run, generation)]
        if brought or superseded or (kept and outdated(directory)):
            publish(directory)
            refresh(directory)
    return Pulled(run, brought, kept, left)


def _require_pushed(objects: ObjectStore, record: Mapping[str, Any]) -> None:
    """Raise RunDirectoryError if the run is a fork that was cut short before all that it inherits was shared.

    Going on with it would make inherited generations by the fork's own configuration.
    """
    origin = record.get("forked_from")
    if not origin:
        return
    generation = origin["generation"]
    for stage in stages_of(generation):
        if next(iter(objects.listing(entries_under(generation, stage.name))), None) is None:
            raise RunDirectoryError(
                f"the fork whose run {objects.url} holds was never finished",
                expected=f"every stage up to generation {generation}, which it takes over",
                got=f"no {stage.name} of generation {generation}",
                fix="fork again with another store.url; this store can be removed",
            )


def _opened(directory: Path, record: dict[str, Any], url: str) -> tuple[Run, str]:
    """The run of the directory, with the store's redraws, and the store that it shared before.

    It is started where there is none. From now on it shares this store: the other may be gone, or stand still.
    """
    if (directory / RECORD).exists():
        here = Run.open(directory)
        require_same(url, directory, here.record, record)
        record, before = dict(here.record), here.config.store.url
    else:
        refuse_occupied(directory)
        before = ""
    if before != url:
        require_conditional(open_objects(url))  # before a run turns to a place that takes no second writer
        record["config"].setdefault("store", {})["url"] = url  # as this machine sees it
        build_config(record["config"], f"{url}/{RECORD}")
        write_atomically(directory / RECORD, json.dumps(record, indent=1) + "\n")
    run = Run.open(directory)
    history = read_history(open_objects(url))
    redraws = history[-1] if history else {}
    if redraws != run.redraws():
        run.save_redraws(redraws)
    return run, before if before != url else ""


def _stages(run: Run, shared: SharedRun) -> Iterator[tuple[SharedStage, bool]]:
    """Yield the stages of the store's run, in order, and whether each is here already.

    Several entries follow from equal inputs and an equal seed where the code or the sandbox changed meanwhile: then
    the newest version counts, and of those the last that was made.
    """
    past = Past(run)
    for generation in count():
        inherited = generation <= run.settled
        for declared in stages_of(generation):
            stage = as_configured(declared, run.config)
            inputs = stage_inputs(run, stage, stage_sources(run, generation, stage, past))
            seed = stage_seed(run, generation, stage)
            follows = [
                entry
                for entry in shared.found(generation, stage.name)
                if (
                    entry.manifest.inputs == inputs
                    or (
                        inherited
                        and made_of(run, generation, stage.name, inputs, entry.manifest.inputs, past)
                    )
                )
                and (
                    entry.manifest.seed == seed or (inherited and run.redrawn(generation, stage.name) is None)
                )
            ]
            if not follows:
                return
            newest = max(entry.manifest.stage_version for entry in follows)
            follows = [entry for entry in follows if entry.manifest.stage_version == newest]
            folder = stage_dir(run.directory, generation, stage.name)
            found = read_manifest(folder)
            here = (
                found is not None
                and found.key in {entry.manifest.key for entry in follows}
                and is_whole(run, folder, found)
            )
            yield max(follows, key=lambda entry: entry.manifest.started_at), here


def _supersede_what_differs(run: Run, coming: Manifest) -> None:
    """Before a stage comes with other content, what was made after it goes, as with `rerun --truncate`."""
    before = read_manifest(stage_dir(run.directory, coming.generation, coming.stage))
    if before is not None and before.contents != coming.contents:
        supersede_later(run, coming.generation)
