"""Measurements that a run alone does not make: its solvers averaged into one, and its students copied in forks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from statistics import fmean

from populora_core.benchmarks.suite import Part, Suite
from populora_core.config.load import apply_overrides
from populora_core.lifecycle.loop import fork, rerun, train
from populora_core.lifecycle.mixing import mixed
from populora_core.lifecycle.run_evaluation import SOLVERS, RunEvaluation, chosen_members
from populora_core.population.member import Role
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.evaluation import Exam, answers
from populora_core.store.manifest import shards_dir, stage_dir
from populora_core.store.rows import StageTables
from populora_core.support.aliases import Say
from populora_plugins.study.config import COPIES_AFTER
from populora_plugins.study.heldout import BANDS, by_level, level_scores
from populora_plugins.study.summary import ALL, AVERAGE, COPIES, FRESH, INHERITS, Value

BRED = (
    "evolve.fraction=0.75",  # all students of four but one, whose copies they become
    'evolve.mutations=["copy_parent"]',
    "evolve.crossover_probability=0.0",
    "evolve.minimum_age=1",
    "evolve.last_share=0.0",
    "update.roles=students",
)


def averages(session: Session, suite: Suite, generation: int) -> Iterator[Value]:
    """Scores by level of the average of all who solve after a generation; nothing where only one does."""
    run = session.run
    members = sorted(chosen_members(run, generation, SOLVERS))
    if len(members) < 2:
        return
    work = shards_dir(run.directory, generation, f"{AVERAGE}-{suite.suite}")
    folders = {member: run.adapter_folder(member, generation) for member in members}
    player, _ = mixed(session.shards(AVERAGE, work / AVERAGE), AVERAGE, folders, suite.seed)
    rows = answers(session, Exam(suite, Part.TEST, [player]), generation, work / Part.TEST).to_pylist()
    yield from by_level(generation, AVERAGE, ALL, rows)


def copies(run: Run, at: int, suite: Suite, say: Say) -> Iterator[Value]:
    """Scores over levels 2 to 5 of students that copies have replaced, with and without their original's optimiser.

    Two forks of the run's state after a generation, equal but for this rule: the same students are replaced by copies
    of the same survivor, and all draws have the same seeds. Teachers do not learn.
    """
    for rule in (INHERITS, FRESH):
        say(f"a fork whose copies start as {rule}")
        folder = run.directory.with_name(f"{run.directory.name}-{rule}")
        settings = [*BRED, f"evolve.every={at}", f"evolve.inherit={str(rule == INHERITS).lower()}"]
        if folder.exists():  # of a process that was killed, maybe of another state
            shutil.rmtree(folder)
        with Session(fork(run, at, folder, apply_overrides(run.config, settings))) as session:
            rerun(session, at, "evolve")
            evolved = StageTables(stage_dir(folder, at, "evolve"))
            train(session, at + COPIES_AFTER)
            answered = RunEvaluation(session, suite, SOLVERS, at + COPIES_AFTER, base=False).run().items()
        born = {row["child_id"] for row in evolved.rows("evolutions") if row["role"] == Role.STUDENT}
        scores = level_scores(row for row in answered if row["member_id"] in born)
        yield Value(at + COPIES_AFTER, COPIES, rule, fmean(scores[level] for level in BANDS["levels_2_5"]))
        shutil.rmtree(folder)
