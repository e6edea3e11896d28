"""solve: the matched student answers each problem of its teacher, and its share of the anchors, G times."""

from __future__ import annotations

from itertools import cycle

from populora_core.compute.work import Prompt
from populora_core.stages.context import PROBLEM, StageContext
from populora_core.support import ids


def run(ctx: StageContext) -> None:
    settings = ctx.config.solve
    matches = ctx.rows("matches", "match_id", "teacher_id", "student_id")
    match_of = {match["teacher_id"]: match for match in matches}
    turns = cycle(matches)  # anchors have no teacher: they are dealt out among the matches
    rows, prompts = [], []
    for problem_row in ctx.rows("problems", *PROBLEM, "teacher_id"):
        problem = ctx.problem(problem_row)
        teacher = problem_row["teacher_id"]
        match = next(turns) if teacher == ids.ANCHOR else match_of[teacher]
        text = ctx.dialect.solve_prompt(problem)
        for sample_index in range(settings.attempts):
            attempt_id = ids.attempt_id(problem.problem_id, sample_index)
            rows.append(
                {
                    "generation": ctx.generation,
                    "attempt_id": attempt_id,
                    "problem_id": problem.problem_id,
                    "match_id": match["match_id"],
                    "student_id": match["student_id"],
                    "sample_index": sample_index,
                }
            )
            prompts.append(
                Prompt(
                    member_id=match["student_id"],
                    text=text,
                    seed=ids.draw_seed(ctx.seed, attempt_id, "tokens"),
                    temperature=settings.temperature,
                    top_p=settings.top_p,
                    max_tokens=settings.max_tokens,
                )
            )
    ctx.write("attempts", rows, ctx.generate(prompts))
