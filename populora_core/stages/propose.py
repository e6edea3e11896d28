"""propose: each teacher writes problems of every type, seeing reference problems from the buffer."""

from __future__ import annotations

from populora_core import ids
from populora_core.compute.work import Prompt
from populora_core.stages.context import StageContext


def run(ctx: StageContext) -> None:
    settings = ctx.config.propose
    buffer = ctx.buffer(settings.buffer_capacity)
    members = {member.member_id: member for member in ctx.members()}
    rows, prompts = [], []
    for match in ctx.rows("matches"):
        teacher = members[match["teacher_id"]]
        for problem_type in settings.types:
            for index in range(settings.per_type):
                proposal_id = ids.proposal_id(ctx.generation, teacher.role, teacher.slot, problem_type, index)
                rng = ctx.rng(proposal_id)
                shown = int(rng.integers(settings.references[0], settings.references[1] + 1))
                references = buffer.sample(problem_type, shown, rng)
                rows.append(
                    {
                        "generation": ctx.generation,
                        "proposal_id": proposal_id,
                        "match_id": match["match_id"],
                        "teacher_id": teacher.member_id,
                        "problem_type": problem_type,
                        "reference_ids": [reference.problem_id for reference in references],
                    }
                )
                prompts.append(
                    Prompt(
                        member_id=teacher.member_id,
                        text=ctx.dialect.propose_prompt(problem_type, references),
                        seed=ids.draw_seed(ctx.seed, proposal_id, "tokens"),
                        temperature=settings.temperature,
                        top_p=settings.top_p,
                        max_tokens=settings.max_tokens,
                    )
                )
    completions = ctx.generate(prompts)
    ctx.write("proposals", [row | text for row, text in zip(rows, completions, strict=True)])
