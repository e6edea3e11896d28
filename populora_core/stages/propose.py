"""propose: each teacher writes problems of every type, seeing reference problems from the buffer or the archive.

For what was no new problem it may write others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from populora_core.compute.work import Prompt
from populora_core.population.islands import island_of
from populora_core.population.member import Role
from populora_core.population.pbt import own_or
from populora_core.problems.archive import Archive
from populora_core.problems.grading import Completed, Proposed
from populora_core.stages.context import StageContext
from populora_core.stages.history import read_buffer, read_graded
from populora_core.stages.sampling import generate, room
from populora_core.stages.verify import verified
from populora_core.support import ids

if TYPE_CHECKING:
    from populora_core.problems.buffer import Buffer


_Place = tuple[str, str]
"""Id of a match, and a problem type."""


def run(ctx: StageContext) -> None:
    settings, islands = ctx.config.propose, range(ctx.config.population.islands)
    sources = [_references(ctx, island) for island in islands]
    known = [read_buffer(ctx, settings.buffer_capacity, i) for i in islands] if settings.refills else []
    wanted = {
        (match["match_id"], problem_type): range(settings.per_type)
        for match in ctx.rows("matches", "match_id")
        for problem_type in settings.types
    }
    rows, texts = list[dict[str, Any]](), list[pa.Table]()
    for left in range(settings.refills, -1, -1):
        more, prompts = _proposals(ctx, sources, wanted)
        completions = generate(ctx, prompts)
        if completions is None:
            break
        rows += more
        texts.append(completions)
        if left:
            new = _new_problems(ctx, known, more, completions)
            wanted = {
                place: range(own.stop, own.stop + len(own) - new[place]) for place, own in wanted.items()
            }
    ctx.write("proposals", rows, pa.concat_tables(texts) if texts else None)


def _proposals(
    ctx: StageContext, sources: Sequence[Buffer | Archive], wanted: Mapping[_Place, range]
) -> tuple[list[dict[str, Any]], list[Prompt]]:
    """The proposals of these numbers, before they are sampled, and their prompts.

    Args:
        sources: of each island's references.
    """
    settings, islands = ctx.config.propose, len(sources)
    fits = room(ctx)
    roles = {member.member_id: member.role for member in ctx.members()}
    own = ctx.hyperparameters()
    matches = ctx.rows("matches", "match_id", "teacher_id")
    digits = ids.digits(len(matches))  # one match for every teacher
    slots = range(len(matches))
    if settings.refills:  # verify goes by the order of rows, and no teacher is to be always the first
        slots = ctx.rng("turns").permutation(len(matches)).tolist()
    rows, prompts = [], []
    for slot in slots:
        match = matches[slot]
        teacher_id = match["teacher_id"]
        source = sources[island_of(ids.slot_of(teacher_id), islands)]
        role = roles.get(teacher_id, Role.TEACHER)  # a past member's, which plays in the slot of a living one
        for problem_type in settings.types:
            for index in wanted[match["match_id"], problem_type]:
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
                        temperature=own_or(own, teacher_id, "temperature", settings.temperature),
                        top_p=settings.top_p,
                        max_tokens=settings.max_tokens,
                    )
                )
    return rows, prompts


def _new_problems(
    ctx: StageContext, known: Sequence[Buffer], rows: Sequence[Mapping[str, Any]], completions: pa.Table
) -> Counter[_Place]:
    """The number of new problems among the proposals of each match and type, as `verify` will find them.

    Chances are estimated by other draws there, and with more outputs to guess with, so that the two may differ near
    `verify.largest_chance`.

    Args:
        known: each island's problems; they take in what is new.
    """
    written: list[Completed] = completions.select(["completion", "finish_reason"]).to_pylist()
    drafts: dict[str, Proposed] = {
        row["proposal_id"]: {**text, "problem_type": row["problem_type"]}
        for row, text in zip(rows, written, strict=True)
    }
    _, problems = verified(ctx, known, drafts, {row["proposal_id"]: row["teacher_id"] for row in rows})
    return Counter((row["match_id"], row["problem_type"]) for row in rows if row["proposal_id"] in problems)


def _references(ctx: StageContext, island: int) -> Buffer | Archive:
    """Rebuild the pool that an island's references are drawn from, out of the rows of all earlier generations."""
    if ctx.config.propose.reference_source == "buffer":
        return read_buffer(ctx, ctx.config.propose.buffer_capacity, island)
    archive = Archive()
    archive.add(read_graded(ctx, island))
    return archive
