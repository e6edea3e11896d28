"""Members at the end of a generation, and who is best by play: `best` is a member's name wherever one is asked for."""

from __future__ import annotations

from collections.abc import Iterable

from populora_core.lifecycle.naming import BEST, member_named
from populora_core.population.fitness import rank
from populora_core.population.member import Member, Role
from populora_core.population.rating import lower_bound
from populora_core.runs.run import Run
from populora_core.stages.following import newest_generation, population_folder
from populora_core.store.manifest import intact, read_manifest, stage_dir
from populora_core.store.rows import PopulationRow, StageTables
from populora_core.support.errors import RunDirectoryError
from populora_core.support.typed import shown


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
