"""Scores of a run's population on a suite over its generations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from populora_core.benchmarks.metrics import Interval
from populora_core.benchmarks.scores import (
    BASE,
    by_problem,
    difference,
    group_interval,
    headlines,
    shared_scores,
)
from populora_core.benchmarks.suite import Suite
from populora_core.lifecycle.run_evaluation import selection
from populora_core.runs.run import Run
from populora_core.store.manifest import EVALUATION, generation_dir, intact, read_manifest, stage_dir
from populora_core.store.rows import EvaluationItemRow, StageTables


@dataclass(frozen=True, slots=True)
class Point:
    """The population after one generation.

    Attributes:
        mean: over its members, with an interval over problems.
        change: minus the evaluated generation before, paired by problems; None for the first.
    """

    generation: int
    members: int
    mean: Interval
    change: Interval | None


def trend(run: Run, suite: Suite, members: str = "all") -> list[Point]:
    """Every evaluated generation of a run, oldest first, by the mean over its members; the base is left out.

    Left out too are evaluations by another version of the suite, whose problems differ, by other rules than the
    newest, and of other members: a mean over the best does not compare with one over all.

    Args:
        members: the evaluated ones: all, best, or a member's id.
    """
    points: list[Point] = []
    before: list[EvaluationItemRow] | None = None
    for generation in evaluated_generations(run, suite, members):
        items = _members_items(run, generation, suite)
        measured = sorted({row["member_id"] for row in items})
        mean = group_interval(items, suite, measured) if measured else None
        if mean is None:
            continue
        change = None if before is None else _change(items, before, suite)
        points.append(Point(generation, len(measured), mean, change))
        before = items
    return points


def evaluated_generations(run: Run, suite: Suite, members: str = "all") -> list[int]:
    """The generations with a whole evaluation of these members by this very suite, oldest first.

    A grader's version or the rows of a data set may have changed since some of them, which the suite's text does not
    say: those remain whose problems were judged as the newest one's.
    """
    found: dict[int, object] = {}
    for folder in generation_dir(run.directory, 0).parent.glob(f"[0-9]*/{EVALUATION}{suite.suite}"):
        manifest = read_manifest(folder)
        if (
            manifest is not None
            and manifest.config.get("suite") == suite.model_dump(mode="json")
            and selection(manifest) == members
            and intact(folder, manifest)
        ):
            found[int(folder.parent.name)] = manifest.config.get("problems")
    newest = found[max(found)] if found else None
    return sorted(number for number, problems in found.items() if problems == newest)


def _members_items(run: Run, generation: int, suite: Suite) -> list[EvaluationItemRow]:
    folder = stage_dir(run.directory, generation, EVALUATION + suite.suite)
    rows = StageTables(folder).rows("evaluation_items")
    return [row for row in rows if row["member_id"] != BASE]


def _change(
    now: Sequence[EvaluationItemRow], before: Sequence[EvaluationItemRow], suite: Suite
) -> Interval | None:
    """The mean over the members now minus that of the members before, paired by problems."""
    pairs = []
    for metric in headlines(suite):
        sides = [[own.scores for own in by_problem(items, metric).values()] for items in (now, before)]
        pairs.append(shared_scores(*sides))
    return difference(pairs, suite.seed, "trend")
