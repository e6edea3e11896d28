"""`populora prune`: what a long run no longer needs in order to go on, and what becomes impossible without it.

Removed are optimiser moments and adapter weights of old generations, and blocks that the catalogue no longer uses.
An empty file NAME.pruned takes the place of each, so that the stage still counts as whole: every table, manifest and
content hash stays, and with them the report, the lineage and all questions. Every member's newest adapter stays too.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from populora_core.runs.lock import lock
from populora_core.runs.run import Run
from populora_core.stages.following import newest_following
from populora_core.store.adapters import MOMENTS, WEIGHTS
from populora_core.store.blocks import stale_blocks
from populora_core.store.catalogue import Catalogue, publish
from populora_core.store.manifest import PRUNED
from populora_core.support import durable
from populora_core.support.received import below


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """Files that a prune removes.

    Attributes:
        oldest: the first generation whose stages can be redone afterwards.
        states, adapters: files that give way to a marker.
        blocks: folders of the catalogue's that nothing uses.
        freed: bytes; a file with a hard link that stays, in a fork for instance, frees nothing.
    """

    oldest: int
    states: tuple[Path, ...]
    adapters: tuple[Path, ...]
    blocks: tuple[Path, ...]
    freed: int


def plan(run: Run, keep: int, every: int = 0, keep_adapters: int = 0, newest: int | None = None) -> PrunePlan:
    """Plan what to remove so that the last `keep` generations can still be redone.

    Args:
        keep: at least 1.
        every: each so many generations one stays that a fork can start from; 0 for none.
        keep_adapters: of how many generations adapters stay, where of more than can be redone.
        newest: the generation that the run goes on from; None to look for it, through all manifests.

    Raises:
        RunDirectoryError: the run has no complete generation yet.
    """
    newest = newest_following(run) if newest is None else newest
    oldest, oldest_adapter = (max(0, newest - kept + 1) for kept in (keep, max(keep, keep_adapters)))
    with Catalogue(run.directory) as catalogue:
        last = {row["adapter_path"] for row in catalogue.rows("SELECT adapter_path FROM members")}
        rows = catalogue.rows("SELECT generation, path FROM adapters ORDER BY ALL")
    old = [row for row in rows if not every or row["generation"] % every]
    # An update starts from the states of the generation before.
    states = [run.directory / row["path"] / MOMENTS for row in old if row["generation"] < oldest - 1]
    states = [path for path in states if path.is_file()]
    adapters = [
        run.directory / row["path"] / WEIGHTS
        for row in old
        # The generation before the oldest is sampled from; what it came from tells the sampler's proof apart.
        if row["generation"] < oldest_adapter - 2 and row["path"] not in last
    ]
    adapters = [path for path in adapters if path.is_file()]
    blocks = stale_blocks(run.directory)
    freed = _freed([*states, *adapters, *(file for block in blocks for file in block.iterdir())])
    return PrunePlan(oldest, tuple(states), tuple(adapters), tuple(blocks), freed)


def prune(run: Run, keep: int, every: int = 0) -> PrunePlan:
    """Remove what `plan` says. A kill at any moment leaves a run that resumes; the next prune ends the work.

    Raises:
        RunDirectoryError: another process writes to the run, or it has no complete generation yet.
        ArtifactError: the disk refused.
    """
    with lock(run.directory):
        chosen = plan(run, keep, every)
        remove(run, chosen)
        publish(run.directory)
    return chosen


def prune_as_configured(run: Run, newest: int) -> None:
    """Remove what `store.keep_states` and `store.keep_adapters` do not keep, while this process holds the run's lock.

    Args:
        newest: the generation that has just ended.

    Raises:
        ArtifactError: the disk refused.
    """
    states, adapters = run.config.store.keep_states, run.config.store.keep_adapters
    if states != "all":
        kept = sys.maxsize if adapters == "all" else adapters
        chosen = plan(run, states, keep_adapters=kept, newest=newest)
        remove(run, replace(chosen, blocks=()))


def remove(run: Run, chosen: PrunePlan) -> None:
    """Remove what was chosen, while this process holds the run's lock.

    Raises:
        ArtifactError: the disk refused, or the run names a file outside it; nothing was removed then.
    """
    files = [*chosen.states, *chosen.adapters]
    for path in (*files, *chosen.blocks):
        below(run.directory, path)
    with durable.writing(run.directory):
        for path in files:
            path.with_name(path.name + PRUNED).touch()
        for folder in {path.parent for path in files}:
            durable.fsync(folder)
        for path in files:
            path.unlink()
        for block in chosen.blocks:
            shutil.rmtree(block)


def _freed(paths: Sequence[Path]) -> int:
    freed = 0
    links: Counter[int] = Counter()
    for path in paths:
        status = os.stat(path)
        links[status.st_ino] += 1
        if links[status.st_ino] == status.st_nlink:
            freed += status.st_size
    return freed
