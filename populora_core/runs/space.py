"""The disk that a run takes by its configuration, held against what is free."""

from __future__ import annotations

import shutil
from pathlib import Path

from populora_core.config.load import Config
from populora_core.planning.disk import Disk, disk_of
from populora_core.planning.memory import read_shape
from populora_core.runs.run import Run
from populora_core.support.errors import ArtifactError, BaseModelError

GB = 10**9


def disk_needed(config: Config) -> Disk:
    """Disk that a generation takes, if every completion is as long as it may be.

    Raises:
        BaseModelError: nothing can be said of this base.
    """
    shape = read_shape(config.base.folder(), config.adapters.rank)
    population, propose, solve = config.population, config.propose, config.solve
    tokens = config.proposals * propose.max_tokens + config.attempts * solve.max_tokens
    return disk_of(shape, population.proposers + population.students, tokens)


def whole_run(config: Config, disk: Disk) -> int:
    """Bytes of the run at its end."""
    kept = (
        None if keep == "all" else keep for keep in (config.store.keep_states, config.store.keep_adapters)
    )
    return disk.whole(config.run.generations, *kept)


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of a folder, which need not exist yet."""
    there = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    return shutil.disk_usage(there).free


def require_space(run: Run) -> None:
    """Raise ArtifactError unless the disk has room for what one more generation writes."""
    try:
        needed = disk_needed(run.config).generation
    except BaseModelError:
        return  # a base that cannot be estimated may well be run
    free = free_bytes(run.directory)
    if free < needed:
        raise ArtifactError(
            f"the disk of {run.directory} has no room for another generation; nothing was changed",
            expected=f"{needed / GB:.2f} GB free: members, their optimiser states, and completions",
            got=f"{free / GB:.2f} GB",
            fix=f"free space, for instance by `populora prune {run.directory} --keep 1`, then resume; "
            "with store.keep_states and store.keep_adapters a run prunes itself",
        )
