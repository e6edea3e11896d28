"""match: every teacher draws a student, near-even pairs first; a solo member meets itself."""

from __future__ import annotations

from populora_core.population.matchmaking import draw_matches, with_hall_of_fame
from populora_core.population.member import Role
from populora_core.population.rating import Rating, win_probabilities
from populora_core.stages.context import StageContext
from populora_core.support import ids


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
    pairs = draw_matches(p_student_win[: living[0], : living[1]], rules, ctx.generation, ctx.rng("pairs"))
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
