"""propose: each teacher writes problems of every type, seeing reference problems from the buffer or the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from populora_core.compute.work import Prompt
from populora_core.population.islands import island_of
from populora_core.population.member import Role
from populora_core.problems.archive import Archive
from populora_core.stages.context import StageContext
from populora_core.stages.history import read_buffer, read_graded
from populora_core.stages.sampling import generate, room
from populora_core.support import ids

if TYPE_CHECKING:
    from populora_core.problems.buffer import Buffer


def run(ctx: StageContext) -> None:
    settings = ctx.config.propose
    islands = ctx.config.population.islands
    fits = room(ctx)
    sources = [_references(ctx, island) for island in range(islands)]
    roles = {member.member_id: member.role for member in ctx.members()}
    matches = ctx.rows("matches", "match_id", "teacher_id")
    digits = ids.digits(len(matches))  # one match for every teacher
    rows, prompts = [], []
    for slot, match in enumerate(matches):
        teacher_id = match["teacher_id"]
        source = sources[island_of(ids.slot_of(teacher_id), islands)]
        role = roles.get(teacher_id, Role.TEACHER)  # a past member's, which plays in the slot of a living one
        for problem_type in settings.types:
            for index in range(settings.per_type):
                proposal_id = ids.proposal_id(ctx.generation, role, slot, problem_type, index, digits)
                rng = ctx.rng(proposal_id)
                shown = int(rng.integers(settings.references[0], settings.references[1] + 1))
                references = source.sample(problem_type, shown, rng)
                text = ctx.dialect.propose_prompt(problem_type, references)
                while references and not fits(text, settings.max_tokens):
                    references.pop()
                    text = ctx.dialect.propose_prompt(problem_type, references)
                rows.append(
                    {
                        "generation": ctx.generation,
                        "proposal_id": proposal_id,
                        "match_id": match["match_id"],
                        "teacher_id": teacher_id,
                        "problem_type": problem_type,
                        "reference_ids": [reference.problem_id for reference in references],
                    }
                )
                prompts.append(
                    Prompt(
                        member_id=teacher_id,
                        text=text,
                        seed=ids.draw_seed(ctx.seed, proposal_id, "tokens"),
                        temperature=settings.temperature,
                        top_p=settings.top_p,
                        max_tokens=settings.max_tokens,
                    )
                )
    ctx.write("proposals", rows, generate(ctx, prompts))


def _references(ctx: StageContext, island: int) -> Buffer | Archive:
    """Rebuild the pool that an island's references are drawn from, out of the rows of all earlier generations."""
    if ctx.config.propose.reference_source == "buffer":
        return read_buffer(ctx, ctx.config.propose.buffer_capacity, island)
    archive = Archive()
    archive.add(read_graded(ctx, island))
    return archive
