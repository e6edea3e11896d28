"""match: every teacher draws a student, near-even pairs first; a solo member meets itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from populora_core.population.islands import island_of
from populora_core.population.matchmaking import Pair, draw_matches, with_hall_of_fame
from populora_core.population.member import Member, Role
from populora_core.population.rating import Rating, win_probabilities
from populora_core.stages.context import StageContext
from populora_core.support import ids
from populora_core.support.arrays import Array


def run(ctx: StageContext) -> None:
    members, rules = ctx.members(), ctx.config.match
    teachers = [member for member in members if Role.TEACHER in member.role.plays]
    students = [member for member in members if Role.STUDENT in member.role.plays]
    past = ctx.rows("retired") if rules.hall_of_fame else []
    proposing, answering = (
        {member.member_id: member.rating for member in own}
        | {row["member_id"]: Rating(row["mu"], row["sigma"]) for row in past if row["role"] == role}
        for own, role in ((teachers, Role.TEACHER), (students, Role.STUDENT))
    )
    p_student_win = win_probabilities(list(answering.values()), list(proposing.values()), ctx.config.rating)
    living = len(teachers), len(students)
    pairs = _pairs(ctx, teachers, students, p_student_win)
    played = with_hall_of_fame(pairs, p_student_win, living, rules, ctx.generation, ctx.rng("hall of fame"))
    matches = {pair.teacher: own for pair, own in zip(pairs, played, strict=True)}
    teacher_ids, student_ids, digits = list(proposing), list(answering), ids.digits(len(teachers))
    ctx.write(
        "matches",
        [
            {
                "generation": ctx.generation,
                # A past teacher plays in the slot of the living one that makes room.
                "match_id": ids.match_id(ctx.generation, teachers[place].slot, digits),
                "teacher_id": teacher_ids[pair.teacher],
                "student_id": student_ids[pair.student],
                "p_student_win": p_student_win[pair.teacher, pair.student],
                "weight": pair.weight,
            }
            for place, pair in sorted(matches.items())
        ],
    )


def _pairs(
    ctx: StageContext, teachers: Sequence[Member], students: Sequence[Member], p_student_win: Array
) -> list[Pair]:
    """Draw the matches, island by island; pairs are by index into all teachers and all students."""
    pairs, islands = [], ctx.config.population.islands
    for island in range(islands):
        own = [
            [place for place, member in enumerate(members) if island_of(member.slot, islands) == island]
            for members in (teachers, students)
        ]
        rng = ctx.rng("pairs", island) if islands > 1 else ctx.rng("pairs")
        drawn = draw_matches(p_student_win[np.ix_(*own)], ctx.config.match, ctx.generation, rng)
        pairs += [Pair(own[0][pair.teacher], own[1][pair.student], pair.weight) for pair in drawn]
    return pairs
