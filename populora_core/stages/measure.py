"""evaluate:SUITE: members after a generation, and the base beside them, on the half of a suite that is reported.

It stands beside the loop, in `generations/0012/evaluate-SUITE`: no stage depends on it. It goes where its generation
goes.
"""

from __future__ import annotations

from functools import partial

from populora_core.benchmarks.scores import BASE, score_rows
from populora_core.runs.session import Session
from populora_core.stages.context import StageContext
from populora_core.stages.evaluation import BASE_PLAYER, ITEMS, Evaluation, Exam
from populora_core.stages.table import Stage, When
from populora_core.store.manifest import EVALUATION

SELECTION, SANDBOX = "members", "sandbox"


def measure(session: Session, exam: Exam, members: str) -> Stage:
    """The stage in which an exam is taken.

    Args:
        members: a word for its players: all, solvers, teachers, best, or a member's id.

    Raises:
        BenchmarkError: the suite cannot be used with this run.
    """
    return Stage(
        EVALUATION + exam.suite.suite,
        version=1,
        needs={"population": When.NOW},
        gives=("evaluations", ITEMS),
        config=("adapters", "compute"),
        base=True,
        sandbox=True,
        sampler=True,
        own={SELECTION: members, **exam.decides(session)},
        own_seed=exam.suite.seed,
        code=partial(_take, exam),
    )


def _take(exam: Exam, ctx: StageContext) -> None:
    evaluation = Evaluation(ctx.session, exam, ctx.generation, ctx.shards)
    items = evaluation.run(ctx.progress)
    base = BASE if BASE_PLAYER in exam.players else None
    ctx.writer.write_table(ITEMS, items)
    ctx.write("evaluations", score_rows(items.to_pylist(), exam.suite, base=base))
    ctx.extra |= evaluation.tokens | {
        SELECTION: ctx.plan.settings[SELECTION],
        SANDBOX: ctx.session.sandbox.identity,
    }
