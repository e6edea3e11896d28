"""Limits that pruning sets: generations that can still be made again, and those that a run can go on from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from populora_core.runs.run import Run
from populora_core.store.adapters import STATE_FILES
from populora_core.store.manifest import pruned
from populora_core.support.errors import ArtifactError
from populora_core.support.typed import shown


def startable(run: Run, generation: int) -> bool:
    """True if nothing was pruned that the generation after this one starts from."""
    folders = (run.directory / "members").glob(f"*/g{generation:04d}")
    return not any(pruned(folder / name) for folder in folders for name in STATE_FILES)


def redoable(run: Run, generation: int) -> bool:
    """True if nothing was pruned that a stage of the generation needs or makes."""
    return startable(run, generation) and (generation == 0 or startable(run, generation - 1))


def all_redoable(run: Run, generations: Iterable[int]) -> list[int]:
    """The generations among these that are `redoable`; each member's folder is looked at once for all of them."""
    folders = (run.directory / "members").glob("*/g[0-9]*")
    numbered = [(folder.name[1:], folder) for folder in folders]
    ended = {
        int(number)
        for number, folder in numbered
        if number.isdecimal() and any(pruned(folder / name) for name in STATE_FILES)
    }
    return [generation for generation in generations if not {generation - 1, generation} & ended]


def require_redoable(run: Run, generation: int, moved: Sequence[str] | None = None) -> None:
    """Raise ArtifactError where a stage of the generation could not be made again.

    Args:
        moved: since the stage was committed, where a run that goes on has to make it again.
    """
    if not redoable(run, generation):
        as_it_is = f"populora fork {shown(run.directory)} --generation LAST --to NEW"
        raise ArtifactError(
            f"generation {generation} cannot be redone: populora prune removed what it starts from",
            expected="a generation that `populora inspect` names as one that can be redone",
            got=f"generation {generation}" + (f", since {', '.join(moved)}" if moved else ""),
            fix=f"choose a later generation, or go on with the past as it is: {as_it_is}; nothing was changed",
        )


def require_startable(run: Run, generation: int) -> None:
    """Raise ArtifactError where no run could go on from the generation."""
    if not startable(run, generation):
        raise ArtifactError(
            f"no run can go on from generation {generation}: populora prune removed its weights",
            expected="a later generation, or one that `populora prune --every` kept",
            got=f"generation {generation}",
            fix="choose another generation; nothing was changed",
        )
