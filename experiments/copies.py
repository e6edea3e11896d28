"""Loss of an exact copy of a student against its original: by today's inheritance, and by the first.

    python -m experiments.copies --runs runs/copies --output bench/results/copies.jsonl

A run of four and four (the arm `no-evolution` of configs/study-frontier.toml) is forked after `--at` generations. In
one fork nothing happens; in the others every student is replaced by a child of the operator `copy_parent`, which
inherits moments and steps, or starts afresh, as children did before (`evolve.inherit`). From there all forks are
played alike: the same pairs, teachers that no longer learn, the same seeds of every draw. So what the copies lose, in
held-out score after two and after ten generations, is what their optimiser costs. A line a student, rule and point;
what is there already is not made again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from math import isinf
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

from experiments.lines import append_lines, read_lines
from populora_core.benchmarks.items import suite_items
from populora_core.benchmarks.suite import Part, Suite, load_suite
from populora_core.config.load import apply_overrides
from populora_core.config.measuring import EvaluateSection
from populora_core.lifecycle.loop import fork, rerun, train
from populora_core.lifecycle.run_evaluation import SOLVERS, RunEvaluation
from populora_core.population.member import Member, Role
from populora_core.population.replacement import Replacement
from populora_core.report.text import markdown_table
from populora_core.runs.run import RECORD, Run, begin
from populora_core.runs.session import Session
from populora_core.stages import evolve
from populora_core.store.artifacts import read_table
from populora_core.store.manifest import stage_dir
from populora_core.support.aliases import Row
from populora_core.support.revision import code_revision
from populora_plugins.study.config import load_study
from populora_plugins.study.statistics import Test, one_sample

STUDY, ARM = Path("configs/study-frontier.toml"), "no-evolution"
UNTOUCHED, INHERITS, FRESH = "untouched", "inherits", "fresh"
RULES = {UNTOUCHED: None, INHERITS: True, FRESH: False}
POINTS = (2, 10)  # generations after the copies were made
LEVELS = ("level 2", "level 3", "level 4", "level 5")
PAIRED = (
    "match.scheme=round_robin",
    "match.uniform_floor=0.0",
    "update.roles=students",
    "evolve.minimum_age=1",
    "evolve.last_share=0.0",
)


def losses(rows: Sequence[Row], rule: str, after: int) -> list[float]:
    """Loss in score of each student, measured both ways, by being copied."""
    scores: Mapping[str, dict[tuple[int, int], float]] = {
        name: {
            (row["seed"], row["student"]): row["score"]
            for row in rows
            if row["rule"] == name and row["after"] == after
        }
        for name in (UNTOUCHED, rule)
    }
    kept, copied = scores[UNTOUCHED], scores[rule]
    return [kept[student] - copied[student] for student in sorted(kept.keys() & copied.keys())]


def loss(rows: Sequence[Row], rule: str, after: int) -> Test:
    """The mean of these losses with its 95 % interval, over students."""
    return one_sample(losses(rows, rule, after))


def table(rows: Sequence[Row]) -> str:
    """A table for a person: points lost by each rule."""
    rows_shown = []
    for after in POINTS:
        for rule in (INHERITS, FRESH):
            if count := len(losses(rows, rule, after)):
                found = loss(rows, rule, after)
                interval = f"{100 * found.low:.1f} to {100 * found.high:.1f}"
                told = "too few students" if isinf(found.high) else interval
                rows_shown.append((f"`{rule}`", after, count, f"{100 * found.value:.1f}", told))
    return markdown_table(("rule", "generations after", "students", "points lost", "95 %"), rows_shown)


def state(folder: Path, seed: int, generations: int) -> Run:
    """The run that is forked, played so far."""
    if (folder / RECORD).is_file():
        run = Run.open(folder)
    else:
        config = load_study(STUDY)[1][ARM]
        run = begin(folder, apply_overrides(config, [f"run.seed={seed}", f"run.generations={generations}"]))
    with Session(run) as session:
        train(session, generations)
    return run


def forked(source: Run, to: Path, rule: str, at: int) -> Run:
    """A fork in which the rule's copies have taken the students' places."""
    inherit = RULES[rule]
    settings = [*PAIRED, f"evolve.every={at}", f"evolve.inherit={str(bool(inherit)).lower()}"]
    run = Run.open(to) if (to / RECORD).is_file() else None
    run = run or fork(source, at, to, apply_overrides(source.config, settings))
    made = read_table(stage_dir(run.directory, at, "evolve"), "evolutions").num_rows
    if inherit is not None and not made:
        with Session(run) as session, patch.object(evolve, "plan_evolution", _copies):
            rerun(session, at, "evolve")
    return run


def _copies(generation: int, members: Sequence[Member], *_: object) -> list[Replacement]:
    """Every student makes room for a copy of itself."""
    return [
        Replacement(member.member_id, member.role, member.slot, (member.member_id,), "copy_parent")
        for member in members
        if member.role is Role.STUDENT
    ]


def scores(run: Run, generation: int, suite: Suite) -> dict[int, float]:
    """slot -> share of right answers at levels 2 to 5, after the generation."""
    asked = [
        (entry, [item for item in items if item.stratum in LEVELS])
        for entry, items in suite_items(suite, Part.TEST)
    ]
    with Session(run) as session:
        train(session, generation)
        evaluated = RunEvaluation(session, suite, SOLVERS, generation, asked, base=False).run()
    answers: dict[int, list[float]] = {}
    for row in evaluated.items():
        if row["correct"] is not None:
            answers.setdefault(int(row["member_id"].split("-")[1]), []).append(float(row["correct"]))
    return {slot: fmean(own) for slot, own in sorted(answers.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=Path, default=Path("runs/copies"))
    parser.add_argument("--output", type=Path, default=Path("bench/results/copies.jsonl"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--at", type=int, default=20, help="generations before the copies are made")
    asked = parser.parse_args()
    # Evolution comes every --at generations, and would replace copies before their scores.
    if asked.at <= max(POINTS):
        parser.error(f"--at must be above {max(POINTS)}")
    # Both halves: nothing is chosen here.
    suite = load_suite(EvaluateSection(suite="bundled:frontier").file())
    suite = suite.model_copy(update={"suite": "frontier-2-to-5", "validation": 0.0})
    rows = read_lines(asked.output)
    done = {(row["seed"], row["at"], row["rule"], row["after"]) for row in rows}
    for after in POINTS:
        for seed in asked.seeds:
            for rule in RULES:
                if (seed, asked.at, rule, after) in done:
                    continue
                source = state(asked.runs / f"state-{seed}", seed, asked.at)
                run = forked(source, asked.runs / f"seed-{seed}-{rule}", rule, asked.at)
                told = {"seed": seed, "at": asked.at, "rule": rule, "after": after, "code": code_revision()}
                found = scores(run, asked.at + after, suite)
                made = [told | {"student": slot, "score": score} for slot, score in found.items()]
                append_lines(asked.output, made)
                rows += made
                print(json.dumps(made), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
