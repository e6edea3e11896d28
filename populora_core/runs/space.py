"""The disk that a run takes, estimated from shapes: a plan prints it, and it must be free before each generation."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from populora_core.config.load import Config
from populora_core.planning.memory import GB, MASTER, read_shape
from populora_core.runs.run import Run
from populora_core.support.errors import ArtifactError, BaseModelError
from populora_core.support.typed import shown

MOMENTS = 2  # vectors of Adam beside the weights
TOKEN = 16  # bytes of a sampled token in its table at most: id, log-probability, text
REDONE = 1  # generations before the oldest that can be redone: it starts from their states
TOLD_APART = 2  # the same for adapters: what they came from tells the sampler's proof apart
BEGUN = 1  # the generation that is being made


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes that one generation writes.

    Attributes:
        adapters: float32 weights of all members.
        states: Adam's moments of all members.
        completions: tokens of proposals and attempts, at most.
    """

    adapters: int
    states: int
    completions: int

    @property
    def generation(self) -> int:
        return self.adapters + self.states + self.completions

    def whole(self, generations: int, keep_states: int | None, keep_adapters: int | None) -> int:
        """Bytes of a run at its end, founders included.

        Args:
            keep_states, keep_adapters: of how many generations they stay; None for all.
        """
        everything = generations + 1
        states = everything if keep_states is None else min(everything, keep_states + REDONE + BEGUN)
        adapters = (
            everything if keep_adapters is None else min(everything, keep_adapters + TOLD_APART + BEGUN)
        )
        return states * self.states + adapters * self.adapters + generations * self.completions


def disk_needed(config: Config) -> Disk:
    """Disk that a generation takes, if every completion is as long as it may be.

    Raises:
        BaseModelError: nothing can be said of this base.
    """
    shape = read_shape(config.base.folder(), config.adapters.rank)
    tokens = config.most_proposals * config.propose.max_tokens + config.attempts * config.solve.max_tokens
    adapters = config.members * shape.adapter * MASTER
    return Disk(adapters, MOMENTS * adapters, TOKEN * tokens)


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
            fix=f"free space, for instance by `populora prune {shown(run.directory)} --keep 1`, then resume; "
            "with store.keep_states and store.keep_adapters a run prunes itself",
        )
