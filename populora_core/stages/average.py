"""The end of an update in some generations: members of a role move towards their average (see `averaging`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from populora_core.compute.breeding import Average
from populora_core.compute.members import Hashes
from populora_core.population.member import Member
from populora_core.stages.context import StageContext
from populora_core.support import ids


def average(ctx: StageContext, members: Sequence[Member]) -> dict[str, Hashes]:
    """Average every role that has two members or more, where the generation is one that averages.

    Members are taken from where the update has just written them, and written there again. They keep their names,
    step counts and ratings, and children that evolution breeds now have averaged parents.

    Returns:
        member_id -> hashes of its files, of the members that moved.
    """
    rules = ctx.config.evolve
    if not rules.average_every:
        return {}
    of_role: dict[str, list[str]] = defaultdict(list)
    if ctx.generation % rules.average_every == 0:
        for member in members:
            of_role[member.role].append(member.member_id)
    groups = [group for group in of_role.values() if len(group) > 1]
    dealt = [groups[shard :: ctx.config.compute.shards] for shard in range(ctx.config.compute.shards)]
    parts = [
        Average(
            members={member: ctx.shards.files / member for group in own for member in group},
            groups=own,
            share=rules.average_share,
            seed=ids.draw_seed(ctx.seed, "average"),
        )
        for own in dealt
        if own
    ]
    moved = {member: told for part in ctx.shards.map(parts) for member, told in part.items()}
    role = {member.member_id: member.role for member in members}
    ctx.write(
        "averages",
        [
            {
                "generation": ctx.generation,
                "member_id": member,
                "role": role[member],
                "member_ids": group,
                "share": rules.average_share,
                "distance": moved[member]["distance"],
                "energy_kept": moved[member]["energy_kept"],
            }
            for group in groups
            for member in group
        ],
    )
    return {member: told["hashes"] for member, told in moved.items()}
