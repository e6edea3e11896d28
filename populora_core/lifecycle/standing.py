"""Members at the end of a generation, and who is best by play: `best` is a member's name wherever one is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from populora_core.lifecycle.naming import BEST, member_named
from populora_core.population.fitness import rank
from populora_core.population.member import Member, Role
from populora_core.population.rating import lower_bound
from populora_core.runs.run import Run
from populora_core.stages.plan import Past, input_hash, made_of
from populora_core.stages.table import When, file_name, giver, stages_of
from populora_core.store.manifest import intact, read_manifest, stage_dir
from populora_core.store.rows import PopulationRow, StageTables
from populora_core.support.errors import RunDirectoryError
from populora_core.support.typed import shown

MEMBERS = ("population", "hyperparameters")
"""Tables of the members at the end of a generation, on which the next one is built."""


def population_folder(run: Run, generation: int) -> Path:
    """The stage folder that holds the members at the end of a generation."""
    return stage_dir(run.directory, generation, giver("population", stages_of(generation)).name)


def require_generation(run: Run, generation: int) -> None:
    """Raise RunDirectoryError unless the members at the end of a generation are all there."""
    source = population_folder(run, generation)
    manifest = read_manifest(source)
    if manifest is None or not intact(source, manifest):
        raise RunDirectoryError(
            f"{run.directory} has no complete generation {generation}",
            expected=f"a generation up to {newest_generation(run)}",
            got="damaged files" if manifest else "nothing",
            fix=f"populora resume {shown(run.directory)} makes what is missing",
        )


def living(run: Run, generation: int) -> list[PopulationRow]:
    """The rows of the members at the end of a generation.

    Raises:
        RunDirectoryError: there is no such generation.
    """
    require_generation(run, generation)
    return StageTables(population_folder(run, generation)).rows("population")


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


def newest_following(run: Run) -> int:
    """The newest generation to which all before it lead: a stage made again may have left later ones behind.

    Raises:
        RunDirectoryError: no generation is complete yet.
    """
    newest = newest_generation(run)
    past = Past(run)
    led = (follows(run, number) and agrees(run, number, past) for number in range(1, newest + 1))
    return next((number for number, leads in enumerate(led) if not leads), newest)


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


def by_play(run: Run, generation: int) -> list[str]:
    """The members, role by role, the fittest first, by play alone: a choice by test scores would flatter them."""
    members = [Member.of(row) for row in living(run, generation)]
    eligible = {member.member_id: True for member in members}
    if generation > 0:
        ratings = StageTables(stage_dir(run.directory, generation, "grade")).rows("ratings")
        eligible |= {row["member_id"]: row["eligible"] for row in ratings}
    fitness = {member.member_id: lower_bound(member.rating) for member in members}
    ranked = [rank([m for m in members if m.role is role], fitness, eligible) for role in Role]
    return [member.member_id for own in ranked for member in own]


def named(
    run: Run, given: str, members: Iterable[str], generation: int | None = None, role: Role = Role.STUDENT
) -> str:
    """The member that a person means by a name; `best` is the fittest of those who play a role.

    Args:
        members: the ids to choose from.
        generation: at the end of which somebody is best; None for the newest.

    Raises:
        RunDirectoryError: none of them, or several.
    """
    if given != BEST:
        return member_named(given, members)
    number = newest_generation(run) if generation is None else generation
    playing = {row["member_id"] for row in living(run, number) if role in Role(row["role"]).plays}
    return next(member for member in by_play(run, number) if member in playing)
