"""verify: the sandbox runs every proposal and anchor; the valid and new ones become problems."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from populora_core.benchmarks.anchors import AGAIN, DATASET, PEERS, draw_anchors, left_by, may_repeat
from populora_core.benchmarks.heldout import held_out, kept_out
from populora_core.population.islands import anchor_index, island_of, island_of_problem
from populora_core.problems.buffer import Buffer
from populora_core.problems.chance import chances
from populora_core.problems.complexity import measure
from populora_core.problems.coverage import cell
from populora_core.problems.grading import ProposalCheck, Proposed, check_proposals
from populora_core.problems.model import Draft, Problem
from populora_core.problems.normal import program_key
from populora_core.problems.slack import slacks
from populora_core.problems.types.rules import echoes
from populora_core.problems.verdicts import ProposalVerdict
from populora_core.stages.context import StageContext
from populora_core.stages.history import read_buffer, read_graded
from populora_core.stages.sampling import room
from populora_core.store.rows import ProblemRow, ProposalRow
from populora_core.support import ids


def run(ctx: StageContext) -> None:
    ctx.extra["sandbox"] = ctx.session.sandbox.identity
    proposals = ctx.rows(
        "proposals", "proposal_id", "teacher_id", "problem_type", "completion", "finish_reason"
    )
    # The capacity bounds references only, not what is known, so it is not part of this stage's key.
    islands = range(ctx.config.population.islands)
    buffers = [read_buffer(ctx, ctx.config.propose.buffer_capacity, island) for island in islands]
    anchors = {
        anchor_id: draft
        for island, buffer in enumerate(buffers)
        for anchor_id, draft in _anchors(ctx, proposals, buffer, island).items()
    }
    drafts = {row["proposal_id"]: row for row in proposals} | anchors
    teachers = {row["proposal_id"]: row["teacher_id"] for row in proposals}
    checks, problems = verified(ctx, buffers, drafts, teachers | dict.fromkeys(anchors, ids.ANCHOR))
    for row, slack in zip(problems.values(), _slacks(ctx, list(problems.values())), strict=True):
        row["slack"] = slack
    ctx.write("problems", problems.values())
    ctx.write(
        "proposal_checks",
        [
            {
                "proposal_id": proposal_id,
                "verdict": check.verdict,
                "detail": check.detail,
                "problem_id": problems[proposal_id]["problem_id"] if proposal_id in problems else None,
            }
            for proposal_id, check in checks.items()
        ],
    )


def verified(
    ctx: StageContext,
    buffers: Sequence[Buffer],
    drafts: Mapping[str, Proposed | Draft],
    teachers: Mapping[str, str],
) -> tuple[Mapping[str, ProposalCheck], dict[str, ProblemRow]]:
    """Check proposals and anchors: the finding on each, and the problems that the valid and new ones become, by its id.

    Args:
        buffers: of each island, what was a problem before; they take in what is new.
        drafts: by the proposal's id, in order.
        teachers: proposal_id -> who proposed it, in the same order.
    """
    checked = check_proposals(ctx.dialect, ctx.sandbox_runner(determinism=True), list(drafts.values()))
    checks = dict(zip(drafts, checked, strict=True))
    checks |= _too_long(ctx, checks)
    estimated = _chances(ctx, checks, teachers)
    checks |= {key: _lost(checks[key]) for key, chance in estimated.items() if chance is None}
    guessed = {key: chance for key, chance in estimated.items() if chance is not None}
    checks |= _too_easily_guessed(checks, guessed, ctx.config.verify.largest_chance)
    problems, duplicates = _admit(ctx, buffers, teachers, checks, guessed)
    again = {each: replace(checks[each], verdict=ProposalVerdict.DUPLICATE) for each in duplicates}
    return checks | again, problems


def _anchors(
    ctx: StageContext, proposals: list[ProposalRow], buffer: Buffer, island: int
) -> dict[str, Draft]:
    """An island's anchors of the generation by their ids: of each type a share beside its proposals.

    Raises:
        ProblemError: they cannot be drawn (see `draw_anchors`), or the generation was made with another data set.
    """
    if not ctx.config.anchors.share:
        return {}
    if ctx.config.anchors.source == PEERS:
        return _of_peers(ctx, proposals, buffer, island)
    if ctx.config.anchors.source == DATASET:
        ctx.require_same("anchors", "parameters", "data set of anchors")
    islands = ctx.config.population.islands
    own = (row for row in proposals if island_of(ids.slot_of(row["teacher_id"]), islands) == island)
    asked = _asked(ctx, own)
    past = read_graded(ctx, island) if ctx.config.anchors.source in AGAIN else []
    stream = ("anchors", island) if islands > 1 else ("anchors",)
    found = {}
    for problem_type, drafts in draw_anchors(
        ctx.config.anchors, asked, buffer, past, lambda kind: ctx.rng(*stream, kind)
    ).items():
        for index, draft in enumerate(drafts):
            place = anchor_index(index, island, islands)
            found[ids.anchor_id(ctx.generation, problem_type, place)] = draft
    return found


def _of_peers(
    ctx: StageContext, proposals: list[ProposalRow], buffer: Buffer, island: int
) -> dict[str, Draft]:
    """Anchors for each student that plays on the island, beside its own teachers' proposals.

    The index of an anchor says for which student it is, by its slot.
    """
    asked_of = {
        row["problem_id"]: ids.slot_of(row["student_id"])
        for row in ctx.rows("attempts", "problem_id", "student_id")
    }
    teachers: dict[int, set[str]] = defaultdict(set)
    for match in ctx.rows("matches", "teacher_id", "student_id"):
        teachers[ids.slot_of(match["student_id"])].add(match["teacher_id"])
    past, found, population = read_graded(ctx, island), {}, ctx.config.population
    for slot, own in sorted(teachers.items()):
        if island_of(slot, population.islands) != island:
            continue
        asked = _asked(ctx, (row for row in proposals if row["teacher_id"] in own))
        left = left_by(slot, past, asked_of)
        stream = partial(ctx.rng, "anchors", slot)
        for kind, drafts in draw_anchors(ctx.config.anchors, asked, buffer, left, stream).items():
            for number, draft in enumerate(drafts):
                found[
                    ids.anchor_id(ctx.generation, kind, anchor_index(number, slot, population.students))
                ] = draft
    return found


def _asked(ctx: StageContext, proposals: Iterable[ProposalRow]) -> Counter[str]:
    """Problem type -> proposals of it, of which `propose.refills` asks for no more."""
    settings = ctx.config.propose
    return Counter(
        row["problem_type"]
        for row in proposals
        if not settings.refills or ids.index_of(row["proposal_id"]) < settings.per_type
    )


def _too_long(ctx: StageContext, checks: Mapping[str, ProposalCheck]) -> dict[str, ProposalCheck]:
    """The valid proposals that a student would have no room to be asked and to answer, as such.

    Context and `solve.max_tokens` are in no key of this stage: no generation with what they refuse was ever solved.
    """
    fits, tokens = room(ctx), ctx.config.solve.max_tokens
    return {
        proposal_id: replace(
            check,
            verdict=ProposalVerdict.OUTPUT_LIMIT,
            outputs=(),
            detail=f"asked with {tokens} tokens for an answer, it outgrows the base's context",
        )
        for proposal_id, check in checks.items()
        if check.verdict is ProposalVerdict.VALID
        and check.draft is not None
        and not fits(
            ctx.dialect.solve_prompt(check.draft.problem(ids.problem_id(proposal_id), check.outputs)), tokens
        )
    }


def _chances(
    ctx: StageContext, checks: Mapping[str, ProposalCheck], teachers: Mapping[str, str]
) -> dict[str, float | None]:
    """Chance that a blind guess, which knows what its island asks, solves each valid proposal; by the proposal's id."""
    found: dict[str, float | None] = {}
    for island in range(ctx.config.population.islands):
        valid = {
            proposal_id: check.draft.problem(ids.problem_id(proposal_id), check.outputs)
            for proposal_id, check in checks.items()
            if check.verdict is ProposalVerdict.VALID
            and check.draft is not None
            and island_of_problem(proposal_id, teachers[proposal_id], ctx.config.population.islands) == island
        }
        sources = [ctx.rng("chance", proposal_id) for proposal_id in valid]
        run_jobs = ctx.sandbox_runner(determinism=False, alone=False)
        found |= zip(valid, chances(list(valid.values()), run_jobs, sources), strict=True)
    return found


def _slacks(ctx: StageContext, rows: list[ProblemRow]) -> Sequence[float | None]:
    """The slack of each problem's program; None unless the configuration asks for it."""
    if not ctx.config.verify.slack:
        return [None] * len(rows)
    return slacks([Problem.of(row) for row in rows], ctx.sandbox_runner(determinism=False, alone=False))


def _lost(check: ProposalCheck) -> ProposalCheck:
    return replace(
        check,
        verdict=ProposalVerdict.INFRASTRUCTURE,
        outputs=(),
        detail="the sandbox lost a blind guess, without which no one knows its chance",
    )


def _too_easily_guessed(
    checks: Mapping[str, ProposalCheck], guessed: Mapping[str, float], largest: float
) -> dict[str, ProposalCheck]:
    """The valid proposals that are trivial by their chance, as such."""
    return {
        proposal_id: replace(
            checks[proposal_id],
            verdict=ProposalVerdict.TRIVIAL,
            outputs=(),
            detail=f"{chance:.0%} of blind guesses solve it",
        )
        for proposal_id, chance in guessed.items()
        if chance > largest or (chance == 1.0 and all(map(echoes, *_examples(checks[proposal_id]))))
    }


def _examples(check: ProposalCheck) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (check.draft.inputs if check.draft else ()), check.outputs


def _admit(
    ctx: StageContext,
    buffers: Sequence[Buffer],
    teachers: Mapping[str, str],
    checks: Mapping[str, ProposalCheck],
    guessed: Mapping[str, float],
) -> tuple[dict[str, ProblemRow], set[str]]:
    """Decide duplicates once for the whole generation, the teachers taking turns in a seeded order.

    Where proposals were refilled they are taken as they were written, round by round.
    Anchors come last, so that no teacher loses a problem to one. Islands do not know of each other's. A problem of
    the held-out suite counts as known, so that no run trains on what it is measured by.

    Args:
        teachers: proposal_id -> who proposed it.

    Returns:
        The problems by proposal_id, in the order of the proposals; the ids of the duplicates.
    """
    proposing = sorted({*teachers.values()} - {ids.ANCHOR})
    order = ctx.rng("turns").permutation(len(proposing))
    turn = dict(zip(proposing, order.tolist(), strict=True)) | {ids.ANCHOR: len(proposing)}
    if ctx.config.propose.refills:  # whose later rounds followed from what the earlier ones had taken
        turn |= dict.fromkeys(proposing, 0)
    known = held_out(kept_out(ctx.config))
    admitted: dict[str, ProblemRow] = {}
    duplicates: set[str] = set()
    # stable: a teacher's own keep their order
    for proposal_id, teacher in sorted(teachers.items(), key=lambda item: turn[item[1]]):
        check = checks[proposal_id]
        if check.verdict is not ProposalVerdict.VALID or check.draft is None:
            continue
        problem = check.draft.problem(ids.problem_id(proposal_id), check.outputs)
        buffer = buffers[island_of_problem(proposal_id, teacher, len(buffers))]
        novelty, key = buffer.novelty(problem.program), program_key(problem.program)
        again = teacher == ids.ANCHOR and may_repeat(ctx.config.anchors)
        if known.holds(problem.program, problem.inputs) or not (buffer.add(problem, key) or again):
            duplicates.add(proposal_id)
            continue
        complexity = measure(problem.program)
        admitted[proposal_id] = {
            "problem_id": problem.problem_id,
            "generation": ctx.generation,
            "proposal_id": proposal_id,
            "teacher_id": teacher,
            "problem_type": problem.problem_type,
            "program": problem.program,
            "inputs": list(problem.inputs),
            "outputs": list(problem.outputs),
            "message": problem.message,
            "ast_depth": complexity.ast_depth,
            "cyclomatic_complexity": complexity.cyclomatic_complexity,
            "lines_of_code": complexity.lines_of_code,
            "variable_count": complexity.variable_count,
            "cell": str(cell(problem.program, complexity)),
            "chance": guessed[proposal_id],
            "slack": None,  # measured of all together
            "novelty": novelty,
            "program_key": key,
        }
    return {key: admitted[key] for key in teachers if key in admitted}, duplicates
