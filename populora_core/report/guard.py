"""The guard: a check of each role against its base.

A role has fallen where the mean of its members lies below the base's by more than the 99 % interval, paired over
problems, at two evaluations in a row. Both answer greedily wherever a suite asks for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from shlex import quote

from populora_core.benchmarks.metrics import Interval, paired_interval
from populora_core.benchmarks.scores import BASE
from populora_core.report import advice
from populora_core.report.text import signed
from populora_core.runs.run import Run
from populora_core.store.catalogue import Catalogue
from populora_core.support import ids
from populora_core.support.aliases import Row
from populora_core.support.errors import BelowBase

CONFIDENCE = 0.99
ByProblem = tuple[tuple[float, ...], ...]  # of each benchmark, problem by problem

# A row for each role and problem that all its members and the base were judged on: its mean, and the base's.
ANSWERED = f"""
WITH coolest AS (
    FROM evaluation_items WHERE part = $part AND ($suite IS NULL OR suite = $suite)
    QUALIFY temperature = min(temperature) OVER (PARTITION BY generation, suite, benchmark)
), scored AS (
    SELECT generation, member_id, role, benchmark, item_id, avg(correct::INT) AS score
    FROM coolest LEFT JOIN members USING (member_id) GROUP BY ALL
)
SELECT own.role, generation, benchmark, item_id, avg(own.score) AS score, any_value(base.score) AS base
FROM scored AS own JOIN scored AS base USING (generation, benchmark, item_id)
WHERE own.role IS NOT NULL AND base.member_id = '{BASE}'
GROUP BY ALL HAVING count(own.score) = count(*) AND count(base.score) = count(*) ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """A role against the base at one evaluation.

    Attributes:
        gap: members' mean minus base, with the paired 99 % interval.
    """

    role: str
    generation: int
    gap: Interval


@dataclass(frozen=True, slots=True)
class Fall:
    """A role that was below the base at two evaluations in a row; `newest` if it was not evaluated since."""

    before: Standing
    now: Standing
    newest: bool

    def __str__(self) -> str:
        gap = self.now.gap
        return (
            f"the {self.now.role}s are {-100 * gap.value:.0f} points below the base after generation "
            f"{self.now.generation} ({signed(100 * gap.low, 0)} to {signed(100 * gap.high, 0)}, 99 %), as they were "
            f"after generation {self.before.generation}"
        )


def standing(role: str, generation: int, rows: Sequence[Row]) -> Standing:
    """A role's gap to the base, from its rows of one evaluation by benchmark: `score` and `base` of each problem."""
    benchmarks = [list(own) for _, own in groupby(rows, itemgetter("benchmark"))]
    scores, base = ([tuple(row[side] for row in own) for own in benchmarks] for side in ("score", "base"))
    return Standing(role, generation, _gap(role, generation, tuple(scores), tuple(base)))


@lru_cache(maxsize=1 << 11)
def _gap(role: str, generation: int, scores: ByProblem, base: ByProblem) -> Interval:
    """A gap with its interval, drawn once: reports and guard come back to every evaluation in each generation."""
    return paired_interval(scores, base, ids.generator(generation, "guard", role), CONFIDENCE)


def falls_of(standings: Iterable[Standing]) -> list[Fall]:
    """The falls among the standings, which come by role and then by generation."""
    found = list(standings)
    newest = {each.role: each for each in found}
    return [
        Fall(before, now, now is newest[now.role])
        for before, now in pairwise(found)
        if before.role == now.role and before.gap.high < 0.0 and now.gap.high < 0.0
    ]


def falls(
    directory: Path,
    part: str = "validation",
    suite: str | None = None,
    generations: Collection[int] | None = None,
) -> list[Fall]:
    """Every fall of a run on one half of a suite, by role; none where the base did not answer.

    Args:
        suite: None for any, which the loop has one of.
        generations: after which whole roles answered the same problems; None for all.
    """
    with Catalogue(directory) as catalogue:
        rows = catalogue.rows(ANSWERED, {"part": part, "suite": suite})
    return falls_of(
        standing(role, generation, list(own))
        for (role, generation), own in groupby(rows, itemgetter("role", "generation"))
        if generations is None or generation in generations
    )


def stop_if_fallen(run: Run, generation: int) -> None:
    """Stop the run if its guard says so and a role has fallen at this generation's evaluation.

    Raises:
        BelowBase: a role has fallen.
    """
    settings = run.config.evaluate
    if settings.guard != "stop" or generation % settings.every:
        return
    fallen = [fall for fall in falls(run.directory) if fall.now.generation == generation]
    if fallen:
        place, first = quote(str(run.directory)), min(fall.before.generation for fall in fallen)
        slower = dict.fromkeys(advice.learning_rate(run.config, fall.now.role, 0.25) for fall in fallen)
        raise BelowBase(
            f"the guard stops {run.name}: " + "; ".join(map(str, fallen)),
            expected='no role below the base at two evaluations in a row, since evaluate.guard = "stop"',
            fix=f"change a setting from before the fall, for instance populora fork {place} --generation "
            f"{max(0, first - settings.every)} --to {place}-slower "
            + " ".join(f"--set {quote(setting)}" for setting in slower)
            + f"{advice.stays(run.config, 'learning_rate')}, or go on all the same: populora fork {place} --generation "
            f"{generation} --to {place}-marked --set 'evaluate.guard=\"mark\"'; then populora resume the new folder",
        )
