"""What a run has learnt, in plain words: solvers scored beside the base. No cause is named that was not measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from populora_core.benchmarks.metrics import Interval
from populora_core.benchmarks.scores import BASE, Pairs, by_problem, difference, headlines, shared_scores
from populora_core.benchmarks.suite import Suite
from populora_core.report.text import percent
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import EVALUATION, read_manifest, stage_dir
from populora_core.support.aliases import Row

# The evaluations of solvers beside the base, the newest suite's, oldest first.
SCORED = f"""
WITH shown AS (
    SELECT DISTINCT generation, suite FROM evaluation_items WHERE member_id = '{BASE}'
)
SELECT generation, suite FROM shown
WHERE suite = (SELECT suite FROM shown ORDER BY generation DESC, suite LIMIT 1) ORDER BY generation
"""
ANSWERED = """
SELECT i.*, coalesce(m.role, '') AS role FROM evaluation_items i LEFT JOIN members m USING (member_id)
WHERE i.generation = ? AND i.suite = ? AND coalesce(m.role, '') <> 'teacher'
"""
# Of the problems that became harder or easier: the mean over the first and the last three generations.
PLAYED = """
SELECT avg(lines_of_code) FILTER (generation <= 3) AS first, avg(lines_of_code) FILTER (generation > last - 3) AS last
FROM problems, (SELECT max(generation) AS last FROM problems)
"""


@dataclass(frozen=True, slots=True)
class Scored:
    """Solvers and base on the same problems, after one generation.

    Attributes:
        pairs: of each benchmark, the solvers' mean scores and the base's, problem by problem.
        seed: of the suite, which the intervals are drawn from.
        tokens: mean length of the solvers' answers.
    """

    generation: int
    suite: str
    pairs: Sequence[Pairs]
    seed: int
    tokens: float
    rows: Sequence[Row]

    @property
    def solvers(self) -> float:
        """The solvers' mean score."""
        return fmean(fmean(own) for own, _ in self.pairs)

    @property
    def base(self) -> float:
        """The base's mean score."""
        return fmean(fmean(own) for _, own in self.pairs)

    def gain(self) -> Interval:
        """Solvers minus base, paired over problems: a bootstrap, so only for what is shown."""
        found = difference(self.pairs, self.seed, "solvers")
        assert found is not None, "every benchmark has a problem that all answered"
        return found


@dataclass(frozen=True, slots=True)
class Won:
    """A problem that the base gets wrong and a solver right."""

    prompt: str
    base: str
    solver_id: str
    solver: str


def scored(directory: Path, generation: int | None = None) -> list[Scored]:
    """The evaluations of a run that hold solvers and base, by the newest suite, oldest first.

    Args:
        generation: this one alone; None for all.
    """
    found = []
    with Catalogue(directory) as catalogue:
        for row in catalogue.rows(SCORED):
            number, name = row["generation"], row["suite"]
            manifest = read_manifest(stage_dir(directory, number, EVALUATION + name))
            if generation in (None, number) and manifest is not None:
                suite = Suite.model_validate(manifest.config["suite"])
                found.append(_scored(number, suite, catalogue.rows(ANSWERED, [number, name])))
    return [item for item in found if item is not None]


def _scored(generation: int, suite: Suite, rows: Sequence[Row]) -> Scored | None:
    solvers = sorted({row["member_id"] for row in rows} - {BASE})
    pairs = []
    for metric in headlines(suite):
        own = by_problem(rows, metric)
        if BASE not in own or not solvers:
            return None
        pairs.append(shared_scores([own[member].scores for member in solvers], [own[BASE].scores]))
    if not all(solved for solved, _ in pairs):
        return None
    tokens = fmean(row["completion_tokens"] for row in rows if row["member_id"] != BASE)
    return Scored(generation, suite.suite, pairs, suite.seed, tokens, rows)


def score_line(item: Scored) -> str:
    """One line of a generation."""
    gain = item.gain()
    return (
        f"held-out ({item.suite}): solvers {percent(item.solvers)}, base {percent(item.base)}, "
        f"{100 * gain.value:+.0f} points ({100 * gain.low:+.0f} to {100 * gain.high:+.0f})"
    )


def lines(directory: Path) -> list[str]:
    """What was learnt, in a few sentences; empty where the solvers were never scored after an update."""
    found = scored(directory)
    if not found or found[-1].generation == 0:
        return []
    last, first = found[-1], found[0]
    way = ", ".join(f"{percent(item.solvers)} after {item.generation}" for item in found)
    told = [
        f"On held-out problems ({last.suite}) the base solves {percent(last.base)}; "
        f"the population solved {way} generations.",
        verdict(last),
    ]
    if first is not last:
        told.append(f"Its answers there went from {first.tokens:.0f} to {last.tokens:.0f} tokens.")
    with Catalogue(directory) as catalogue:
        (played,) = catalogue.rows(PLAYED)
    if played["first"] is not None:
        told.append(
            f"The teachers' programs went from {played['first']:.1f} to {played['last']:.1f} statements."
        )
    return told


def verdict(item: Scored) -> str:
    """Whether the solvers are better than the base, by the interval."""
    gain = item.gain()
    interval = f"({100 * gain.low:+.0f} to {100 * gain.high:+.0f})"
    if gain.low > 0:
        return f"It gets {100 * gain.value:.0f} points more than the base {interval}."
    if gain.high < 0:
        return f"It gets {-100 * gain.value:.0f} points less than the base {interval}: training did harm."
    return f"That is no more than chance: {100 * gain.value:+.0f} points {interval}."


def won(directory: Path) -> Won | None:
    """A problem of the last evaluation that the base gets wrong and the solvers right.

    It is from the stratum with the largest gain, so that it shows a skill and not a lucky guess.
    """
    found = scored(directory)
    if not found:
        return None
    rows = [row for row in found[-1].rows if row["sample_index"] == 0 and row["correct"] is not None]
    solvers = [row for row in rows if row["member_id"] != BASE]
    base = {row["item_id"]: row for row in rows if row["member_id"] == BASE}
    gains: dict[str, float] = defaultdict(float)
    right: dict[str, int] = defaultdict(int)
    for row in solvers:
        if row["item_id"] in base:
            gains[row["stratum"]] += row["correct"] - base[row["item_id"]]["correct"]
            right[row["item_id"]] += row["correct"]
    shown = [
        row
        for row in solvers
        if row["correct"] and row["item_id"] in base and not base[row["item_id"]]["correct"]
    ]
    if not shown:
        return None
    best = max(shown, key=lambda row: (gains[row["stratum"]], right[row["item_id"]], row["item_id"]))
    return Won(best["prompt"], base[best["item_id"]]["completion"], best["member_id"], best["completion"])
