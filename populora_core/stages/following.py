"""Generations of a run that follow from one another: each was made of what lies there now."""

from __future__ import annotations

from pathlib import Path

from populora_core.runs.run import Run
from populora_core.stages.plan import Past, input_hash, made_of
from populora_core.stages.table import When, file_name, giver, stages_of
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.errors import RunDirectoryError
from populora_core.support.typed import shown

MEMBERS = ("population", "hyperparameters")
"""Tables of the members at the end of a generation, on which the next one is built."""


def population_folder(run: Run, generation: int) -> Path:
    """The stage folder that holds the members at the end of a generation."""
    return stage_dir(run.directory, generation, giver("population", stages_of(generation)).name)


def newest_generation(run: Run) -> int:
    """The newest generation whose members are all there.

    Raises:
        RunDirectoryError: there is none yet.
    """
    for number in reversed(run.generations()):
        if read_manifest(population_folder(run, number)) is not None:
            return number
    raise RunDirectoryError(
        f"{run.directory} has no complete generation yet", fix=f"populora resume {shown(run.directory)}"
    )


def follows(run: Run, generation: int) -> bool:
    """True if a generation was made of the members that stand at the end of the one before it now."""
    before = read_manifest(population_folder(run, generation - 1))
    made = [read_manifest(stage_dir(run.directory, generation, name)) for name in ("match", "propose")]
    if before is None or made[0] is None:
        return False
    # Copies of one parent are equal whatever they inherit beside its weights.
    now = {
        name: input_hash([content]) for name in MEMBERS if (content := before.contents.get(file_name(name)))
    }
    return all(each.inputs.get(name, now[name]) == now[name] for each in made if each for name in now)


def agrees(run: Run, generation: int, past: Past | None = None) -> bool:
    """True if the stages of a generation were made of one another as they are now.

    Args:
        past: of a walk over generations.

    Raises:
        ArtifactError: a table of an earlier generation, which this one was made of too, is damaged.
    """
    contents: dict[str, str] = {}
    for stage in stages_of(generation):
        found = read_manifest(stage_dir(run.directory, generation, stage.name))
        if found is None:
            return False
        now = {
            artifact: input_hash([contents[file_name(artifact)]])
            for artifact, when in stage.needs.items()
            if when is When.NOW and file_name(artifact) in contents
        }
        if not made_of(run, generation, stage.name, now, found.inputs, past):
            return False
        contents |= found.contents
    return True


def newest_following(run: Run) -> int:
    """The newest generation to which all before it lead: a stage made again may have left later ones behind.

    Raises:
        RunDirectoryError: no generation is complete yet.
    """
    newest = newest_generation(run)
    past = Past(run)
    led = (follows(run, number) and agrees(run, number, past) for number in range(1, newest + 1))
    return next((number for number, leads in enumerate(led) if not leads), newest)
