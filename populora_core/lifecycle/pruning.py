"""`populora prune`: what a long run no longer needs in order to go on, and what becomes impossible without it.

Removed are members files (weights and optimiser moments) and adapter weights of old generations, and blocks that the
catalogue no longer uses. An empty file NAME.pruned takes the place of each, so that the stage still counts as whole:
every table, manifest and content hash stays, and with them the report, the lineage and all questions. Every member's
newest adapter stays too.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from populora_core.lifecycle.run_evaluation import newest_generation
from populora_core.runs.lock import lock
from populora_core.runs.run import Run
from populora_core.stages.table import MEMBERS, file_name, giver, stages_of
from populora_core.store.adapters import WEIGHTS
from populora_core.store.artifacts import stage_dir
from populora_core.store.blocks import stale_blocks
from populora_core.store.catalogue import Catalogue, publish
from populora_core.store.manifest import PRUNED, stage_folders
from populora_core.support import durable


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What a prune removes.

    Attributes:
        oldest: the first generation whose stages can be redone afterwards.
        members, adapters: files that give way to a marker.
        blocks: folders of the catalogue's that nothing uses.
        freed: bytes; a file with a hard link that stays, in a fork for instance, frees nothing.
    """

    oldest: int
    members: tuple[Path, ...]
    adapters: tuple[Path, ...]
    blocks: tuple[Path, ...]
    freed: int


def plan(run: Run, keep: int, every: int = 0) -> PrunePlan:
    """What to remove so that the last `keep` generations can still be redone.

    Args:
        keep: at least 1.
        every: each so many generations one stays that a fork can start from; 0 for none.

    Raises:
        RunDirectoryError: the run has no complete generation yet.
    """
    oldest = max(0, newest_generation(run) - keep + 1)
    numbers = sorted({int(folder.parent.name) for folder in stage_folders(run.directory)})
    members = []
    for number in numbers:
        stages = stages_of(number)
        last = giver(MEMBERS, stages)
        for stage in stages:
            needed = number >= oldest or (stage is last and (number == oldest - 1 or _kept(number, every)))
            if MEMBERS in stage.gives and not needed:
                members.append(stage_dir(run.directory, number, stage.name) / file_name(MEMBERS))
    with Catalogue(run.directory) as catalogue:
        newest = {row["adapter_path"] for row in catalogue.rows("SELECT adapter_path FROM members")}
        rows = catalogue.rows("SELECT generation, path FROM adapters ORDER BY ALL")
    adapters = [
        run.directory / row["path"] / WEIGHTS
        for row in rows
        # The generation before the oldest is sampled from; what it came from tells the sampler's proof apart.
        if row["generation"] < oldest - 2
        and row["path"] not in newest
        and not _kept(row["generation"], every)
    ]
    members = [path for path in members if path.is_file()]
    adapters = [path for path in adapters if path.is_file()]
    blocks = stale_blocks(run.directory)
    freed = _freed([*members, *adapters, *(file for block in blocks for file in block.iterdir())])
    return PrunePlan(oldest, tuple(members), tuple(adapters), tuple(blocks), freed)


def prune(run: Run, keep: int, every: int = 0) -> PrunePlan:
    """Remove what `plan` says. A kill at any moment leaves a run that resumes; the next prune ends the work.

    Raises:
        RunDirectoryError: another process writes to the run, or it has no complete generation yet.
        ArtifactError: the disk refused.
    """
    with lock(run.directory):
        chosen = plan(run, keep, every)
        files = [*chosen.members, *chosen.adapters]
        with durable.writing(run.directory):
            for path in files:
                path.with_name(path.name + PRUNED).touch()
            for folder in {path.parent for path in files}:
                durable.fsync(folder)
            for path in files:
                path.unlink()
            for block in chosen.blocks:
                shutil.rmtree(block)
        publish(run.directory)
    return chosen


def _kept(generation: int, every: int) -> bool:
    return every > 0 and generation % every == 0


def _freed(paths: Sequence[Path]) -> int:
    freed = 0
    links: Counter[int] = Counter()
    for path in paths:
        status = os.stat(path)
        links[status.st_ino] += 1
        if links[status.st_ino] == status.st_nlink:
            freed += status.st_size
    return freed
