"""evaluate: external fitness, measured before evolution.

A student's is its score on the validation half of a suite, a teacher's the learnable share of its problems. The
half that is reported is never seen here; `populora evaluate` measures that.
"""

from __future__ import annotations

from populora_core.benchmarks.scores import BASE, headline_rows, score_rows
from populora_core.benchmarks.suite import Part, Suite, load_suite
from populora_core.population.fitness import learnable_share
from populora_core.population.member import Member, Role
from populora_core.stages.context import StageContext
from populora_core.stages.evaluation import BASE_PLAYER, ITEMS, Evaluation, Exam, players_of
from populora_core.support.errors import ArtifactError


def run(ctx: StageContext) -> None:
    settings = ctx.config.evaluate
    if not settings.every or ctx.generation % settings.every:
        for name in ("external_fitness", "evaluations", ITEMS):
            ctx.write(name, [])
        return
    members = ctx.members()
    scores = _measure(ctx, load_suite(settings.file()), [m for m in members if Role.STUDENT in m.role.plays])
    scores |= learnable_shares(ctx, [member for member in members if member.role is Role.TEACHER])
    ctx.write(
        "external_fitness",
        [
            {
                "generation": ctx.generation,
                "member_id": member.member_id,
                "external_fitness": scores[member.member_id],
            }
            for member in members
        ],
    )


def _measure(ctx: StageContext, suite: Suite, members: list[Member]) -> dict[str, float]:
    """member_id -> its score on the validation half.

    Raises:
        ArtifactError: infrastructure left a member without a score, and it can be ranked by none.
    """
    hashes = {row["member_id"]: row["sha256"] for row in ctx.rows("adapters", "member_id", "sha256")}
    players = players_of({member.member_id: hashes[member.member_id] for member in members})
    guarded = ctx.config.evaluate.guard != "off"
    exam = Exam(suite, Part.VALIDATION, [*players, BASE_PLAYER] if guarded else players)
    evaluation = Evaluation(ctx.session, exam, ctx.generation, ctx.shards)
    items = evaluation.run(ctx.progress)
    ctx.extra |= evaluation.tokens | {"sandbox": ctx.session.sandbox.identity}
    rows = score_rows(items.to_pylist(), suite, base=BASE if guarded else None)
    ctx.writer.write_table(ITEMS, items)
    ctx.write("evaluations", rows)
    scores = {row["member_id"]: row["score"] for row in headline_rows(rows, suite)}
    if missing := [member.member_id for member in members if member.member_id not in scores]:
        raise ArtifactError(
            f"{missing[0]} has no external fitness",
            expected="judged answers to every benchmark of the suite",
            got="nothing but infrastructure failures",
            fix="fix the sandbox, then resume",
        )
    return scores


def learnable_shares(ctx: StageContext, teachers: list[Member]) -> dict[str, float]:
    """member_id -> the share of its problems of the last generations that were solved sometimes but not always.

    A teacher without any problem has 0.

    Raises:
        ArtifactError: infrastructure failed for all attempts at a teacher's problems.
    """
    first = ctx.generation - ctx.config.evaluate.window
    rates = {
        row["problem_id"]: row["solve_rate"]
        for row in ctx.rows("problem_results", "problem_id", "solve_rate")
    }
    own: dict[str, list[float | None]] = {teacher.member_id: [] for teacher in teachers}
    for row in ctx.rows("problems", "problem_id", "generation", "teacher_id"):
        if row["generation"] > first and row["teacher_id"] in own:
            own[row["teacher_id"]].append(rates[row["problem_id"]])
    shares = {}
    for teacher, found in own.items():
        share = learnable_share(found) if found else 0.0
        if share is None:
            raise ArtifactError(
                f"{teacher} has no external fitness",
                expected=f"a judged attempt at one of its problems since generation {first + 1}",
                got="nothing but infrastructure failures",
                fix="fix the sandbox, then have grade made again: populora rerun --help",
            )
        shares[teacher] = share
    return shares
