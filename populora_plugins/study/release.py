"""The member that a user would take home from every arm leaves its study, as an adapter with its card.

A finished run leaves a summary and no weights. It follows from its seed, so it is made again: what is released is
shown to be what was measured, since the new summary must say the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from populora_core.benchmarks.suite import Suite, load_suite
from populora_core.config.measuring import EvaluateSection
from populora_core.report.text import markdown_table, percent
from populora_core.runs.run import Run
from populora_core.store.catalogue import Catalogue
from populora_core.support.aliases import Say
from populora_core.support.durable import require_free, sweep, temporary_name, write_atomically
from populora_core.support.errors import StudyError
from populora_plugins.study.conduct import StudyPlan, conduct, plan_of
from populora_plugins.study.config import Arm, StudyConfig, load_study
from populora_plugins.study.heldout import best_of
from populora_plugins.study.outcomes import best_solver, taken_home, validated
from populora_plugins.study.play import Assignment
from populora_plugins.study.summary import Origin, Summary, read_summaries, read_summary

README = """\
# Adapters of the study {study}

One member of every arm: the solver that is best on the validation half of the suite or, where an arm is not validated,
the one that is best on the reported half. Its run is the arm's best by that member's score on the reported half, so the
score flatters: beside it stands the mean of the arm's runs, each with the member that would be taken home from it.
Each run was made again from its seed.

{table}
"""
SOLVERS = """
    SELECT DISTINCT e.member_id, printf('%s-%02d', m.role, m.slot) AS part, r.external_fitness AS fitness
    FROM tables.evaluations e JOIN members m USING (member_id) LEFT JOIN ratings r USING (generation, member_id)
    WHERE e.suite = $suite AND e.part = 'test' AND e.generation = $generation AND m.role <> 'teacher'
"""
TABLE = "README.md"
MADE = ".made"
"""Runs and summaries of a release that is not finished; what else lies in its folder is its own as well."""
HEADER = ("arm", "seed", "member", "score", "mean of the arm", "made again to the last digit")


@dataclass(frozen=True, slots=True)
class Release:
    """Runs to make again for the members taken home, and what their summaries said.

    Attributes:
        planned: a study of these runs alone; its folders are in the release's.
        chosen: arm -> its best run.
        means: arm -> the mean over its runs of what would be taken home.
        to: the folder: an adapter a subfolder, and a table.
    """

    planned: StudyPlan
    chosen: dict[str, Summary]
    means: dict[str, float]
    to: Path


def plan_release(path: str | Path, to: Path, arms: Sequence[str] = ()) -> Release:
    """Choose the best run of every arm.

    Args:
        path: the study's file.
        arms: some of the study's; none for all that have finished runs.

    Raises:
        StudyError: an arm has no finished run, or this code would make it otherwise.
        ConfigError, ArtifactError: the study or a summary cannot be used, or `to` holds a release.
    """
    sweep(to)
    if not (to / MADE).is_dir():
        require_free(to)
    study, configs = load_study(path)
    by_arm = _finished(study, arms)
    chosen = {arm: max(runs, key=_score) for arm, runs in by_arm.items()}
    folders = {"results": to / MADE / "summaries", "runs": to / MADE / "runs", "keep_runs": True}
    own = tuple(_alone(arm, chosen[arm.name]) for arm in study.arms if arm.name in chosen)
    planned = plan_of(study.model_copy(update={"arms": own, **folders}), configs)
    for run in planned.left:
        _require_same(run, chosen[run.origin.arm].origin)
    return Release(planned, chosen, {arm: fmean(map(_score, runs)) for arm, runs in by_arm.items()}, to)


def release(asked: Release, base_name: str | None, say: Say) -> Path:
    """Make the chosen runs again, export their members, and write the table that says how they did.

    Killed anywhere, the same call goes on from there. The runs go once the table is written.

    Args:
        base_name: how others find the base model; None for `known_as`.

    Returns:
        The table's file.

    Raises:
        StudyError: a run failed.
        PopuloraError: what `export_member` raises; what was exported before stays.
    """
    from populora_core.lifecycle.export import export_member

    study, rows = asked.planned.study, []
    suite = load_suite(EvaluateSection(suite=study.suite).file())
    conduct(asked.planned, say)
    for arm, before in asked.chosen.items():
        now = read_summary(study.results / f"{before.origin.name}.parquet")
        run, folder = Run.open(study.runs / before.origin.name), asked.to / arm
        member = _best(run, suite, now)
        shutil.rmtree(folder, ignore_errors=True)  # an earlier call may have chosen another run
        export_member(run, member, folder, base_name=base_name)
        same = "yes" if now.values == before.values else f"no: {_first_difference(now, before)}"
        rows.append(
            (
                arm,
                before.origin.seed,
                f"`{member}`",
                percent(_score(now)),
                percent(asked.means[arm]),
                same,
            )
        )
        say(f"{folder}: {member}; its run says the same as before to the last digit: {same}")
    table = asked.to / TABLE
    write_atomically(table, README.format(study=study.name, table=markdown_table(HEADER, rows)))
    done = temporary_name(asked.to, MADE)
    (asked.to / MADE).replace(done)  # at once, so that a kill leaves a release that is finished or goes on
    shutil.rmtree(done)
    return table


def _best(run: Run, suite: Suite, measured: Summary) -> str:
    """The member whose score `taken_home` gives."""
    with Catalogue(run.directory) as catalogue:
        last = {"suite": suite.suite, "generation": run.config.run.generations}
        solvers = catalogue.rows(SOLVERS, last)
    chosen = None
    if validated(measured) is not None:
        known = {row["member_id"]: row["fitness"] for row in solvers if row["fitness"] is not None}
        chosen = best_of(known)
    elif (best := best_solver(measured)) is not None:
        chosen = next(row["member_id"] for row in solvers if row["part"] == best[0])
    assert chosen is not None, "a run that was chosen has a solver with a score"
    return chosen


def _first_difference(now: Summary, before: Summary) -> str:
    """The first place at which the two differ, as they may on a processor of another type."""
    changed = set(now.values) ^ set(before.values)
    generation, measure, part, _ = min(changed)
    return f"{measure} of {part} in generation {generation}"


def _finished(study: StudyConfig, arms: Sequence[str]) -> dict[str, list[Summary]]:
    """The finished runs whose members have a score, of the requested arms."""
    found = read_summaries(study.results) if study.results.is_dir() else []
    scored = [run for run in found if taken_home(run) is not None]
    by_arm = {arm.name: [run for run in scored if run.origin.arm == arm.name] for arm in study.arms}
    there = [arm for arm, runs in by_arm.items() if runs]
    missing = [arm for arm in arms if arm not in there] if there else [study.name]
    if missing:
        raise StudyError(
            f"there is no finished run of {', '.join(missing)} in {study.results}",
            expected=f"arms of {', '.join(there) or 'no name yet'}",
            got=", ".join(missing),
            fix="populora study with --config makes the runs",
        )
    return {arm: by_arm[arm] for arm in arms or there}


def _score(run: Summary) -> float:
    score = taken_home(run)
    assert score is not None, "runs without a score are left out"
    return score


def _alone(arm: Arm, run: Summary) -> Arm:
    return arm.model_copy(update={"seeds": (run.origin.seed,)})


def _require_same(run: Assignment, made: Origin) -> None:
    reason = made.stale(run.origin)
    if reason:
        raise StudyError(
            f"{run.name} would not be made as it was: {reason}",
            got=f"this code; the run was made by revision {', '.join(made.code_revisions)}",
            fix="check out the code that made it, such as git checkout of that revision",
        )
