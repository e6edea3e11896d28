"""match: every teacher draws a student, near-even pairs first; a solo member meets itself."""

from __future__ import annotations

from populora_core.population.matchmaking import draw_matches
from populora_core.population.member import Role
from populora_core.population.rating import win_probabilities
from populora_core.stages.context import StageContext
from populora_core.support import ids


def run(ctx: StageContext) -> None:
    members = ctx.members()
    teachers = [member for member in members if Role.TEACHER in member.role.plays]
    students = [member for member in members if Role.STUDENT in member.role.plays]
    p_student_win = win_probabilities(
        [student.rating for student in students],
        [teacher.rating for teacher in teachers],
        ctx.config.rating,
    )
    pairs = draw_matches(p_student_win, ctx.config.match, ctx.generation, ctx.rng("pairs"))
    digits = ids.digits(len(teachers))
    ctx.write(
        "matches",
        [
            {
                "generation": ctx.generation,
                "match_id": ids.match_id(ctx.generation, teachers[pair.teacher].slot, digits),
                "teacher_id": teachers[pair.teacher].member_id,
                "student_id": students[pair.student].member_id,
                "p_student_win": p_student_win[pair.teacher, pair.student],
                "weight": pair.weight,
            }
            for pair in sorted(pairs, key=lambda pair: pair.teacher)
        ],
    )
