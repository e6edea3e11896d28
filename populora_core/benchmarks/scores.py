"""Scores with intervals from judged completions: the rows of `evaluations`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from populora_core.benchmarks.benchmark import BENCHMARKS, benchmark
from populora_core.benchmarks.items import left_out
from populora_core.benchmarks.metrics import (
    CONFIDENCE,
    Interval,
    maj_at_k,
    mean_interval,
    paired_interval,
    pass_at_k,
)
from populora_core.benchmarks.suite import Entry, Suite
from populora_core.store.rows import EvaluationItemRow, EvaluationRow
from populora_core.support import ids

ALL = "all"
BASE = "base"
"""The id under which scores of the base without an adapter are stored, in place of a member's."""
FIRST, NEWEST = "first_problems", "newest_problems"
"""The two benchmarks of the yardstick."""
PROMPTS = "newest_prompts"
"""The benchmark of the validity."""


@dataclass(frozen=True, slots=True)
class ScoreRule:
    """A way to score the completions of one problem.

    Attributes:
        name: `pass@k` or `maj@k`.
    """

    name: str
    entry: Entry
    k: int
    votes: bool

    def score(self, rows: Sequence[EvaluationItemRow]) -> float | None:
        """The score of one problem, from its completions in the order of sampling; None if too few were judged."""
        judged = [(row["answer"], row["correct"]) for row in rows if row["correct"] is not None]
        if len(judged) < self.k:
            return None
        correct = [right for _, right in judged]
        if self.votes:
            return maj_at_k([answer for answer, _ in judged], correct, self.k)
        return float(pass_at_k([len(judged)], [sum(correct)], self.k)[0])


def metrics_of(entry: Entry) -> list[ScoreRule]:
    """The metrics of one benchmark of a suite, its headline first."""
    found = [ScoreRule(f"pass@{k}", entry, k, votes=False) for k in entry.k]
    if benchmark(entry.benchmark).votes and entry.attempts > 1:
        found.append(ScoreRule(f"maj@{entry.attempts}", entry, entry.attempts, votes=True))
    return found


def headlines(suite: Suite) -> list[ScoreRule]:
    """The first metric of each benchmark: what the mean over the suite is made of."""
    first: dict[str, ScoreRule] = {}
    for entry in suite.benchmarks:
        first.setdefault(entry.benchmark, ScoreRule(f"pass@{entry.k[0]}", entry, entry.k[0], votes=False))
    return list(first.values())


def headline_rows(rows: Iterable[EvaluationRow], suite: Suite) -> list[EvaluationRow]:
    """One row per player of `evaluations` of one generation and half: its score over the whole suite."""
    first = headlines(suite)
    name = ALL if len(first) > 1 else first[0].entry.benchmark
    return [
        row
        for row in rows
        if row["benchmark"] == name
        and row["metric"] == first[0].name
        and row["temperature"] in (None, first[0].entry.temperature)
    ]


FLOOR = 0.02
NOTHING = "it tells nothing of this run: the base and everybody else score at the floor"


def tells_nothing(rows: Iterable[EvaluationRow], suite: Suite) -> bool:
    """True if a suite is too hard for base and members alike, or no better than guessed.

    That is so where each one's interval ends below `FLOOR`, or its score is not above the suite's chance.

    Args:
        rows: of `evaluations`, of one generation and half.
    """
    found = headline_rows(rows, suite)
    guessed = [getattr(BENCHMARKS.known(rule.entry.benchmark), "chance", 0.0) for rule in headlines(suite)]
    chance = sum(guessed) / len(guessed)
    measured = any(row["member_id"] == BASE for row in found) and len(found) > 1
    return measured and all(row["high"] < FLOOR or row["score"] <= chance for row in found)


@dataclass(frozen=True, slots=True)
class Problems:
    """One player's scores by one metric: item_id -> score, over the problems that were judged."""

    scores: Mapping[str, float]
    n_correct: int
    n_infrastructure: int


def by_problem(items: Iterable[EvaluationItemRow], metric: ScoreRule) -> dict[str, Problems]:
    """member_id -> its scores.

    Args:
        items: rows of `evaluation_items`, of any benchmarks.
    """
    entry = metric.entry
    grouped: dict[str, dict[str, list[EvaluationItemRow]]] = defaultdict(lambda: defaultdict(list))
    for row in items:
        if row["benchmark"] == entry.benchmark and row["temperature"] == entry.temperature:
            grouped[row["member_id"]][row["item_id"]].append(row)
    found = {}
    for member, problems in grouped.items():
        scores = {
            item_id: metric.score(sorted(rows, key=lambda row: row["sample_index"]))
            for item_id, rows in problems.items()
        }
        judged = {item_id: score for item_id, score in scores.items() if score is not None}
        solved = sum(any(row["correct"] for row in problems[item_id]) for item_id in judged)
        found[member] = Problems(judged, solved, len(scores) - len(judged))
    return found


def score_rows(items: Sequence[EvaluationItemRow], suite: Suite, base: str | None) -> list[EvaluationRow]:
    """The rows of `evaluations`: every player, benchmark and metric, and the mean over the benchmarks.

    Args:
        items: rows of `evaluation_items`, of one suite, half and generation.
        base: member_id that the others are compared with, by paired intervals; None for no comparison.
    """
    scored = {metric: by_problem(items, metric) for entry in suite.benchmarks for metric in metrics_of(entry)}
    of_benchmark = {row["benchmark"]: row for row in items}
    asked = [(metric.entry.benchmark, [metric]) for metric in scored]
    if len(headlines(suite)) > 1:
        asked.append((ALL, headlines(suite)))
    rows: list[EvaluationRow] = []
    for member in sorted({row["member_id"] for row in items}, key=lambda name: (name == base, name)):
        for name, metrics in asked:
            own = [scored[metric][member] for metric in metrics]
            if not all(problems.scores for problems in own):
                continue  # nothing but infrastructure is no score
            entry = metrics[0].entry if name != ALL else None
            interval = mean_interval(
                [list(problems.scores.values()) for problems in own],
                ids.generator(suite.seed, "interval", name, metrics[0].name),
            )
            delta = None
            if base is not None and member != base:
                pairs = [shared_scores([scored[m][member].scores], [scored[m][base].scores]) for m in metrics]
                delta = difference(pairs, suite.seed, name, metrics[0].name)
            rows.append(
                {
                    "generation": items[0]["generation"],
                    "suite": items[0]["suite"],
                    "part": items[0]["part"],
                    "member_id": member,
                    "benchmark": name,
                    "n": sum(len(problems.scores) for problems in own),
                    "n_correct": sum(problems.n_correct for problems in own),
                    "score": interval.value,
                    "low": interval.low,
                    "high": interval.high,
                    "metric": metrics[0].name,
                    "attempts": entry.attempts if entry else None,
                    "temperature": entry.temperature if entry else None,
                    "template": of_benchmark[name]["template"] if entry else None,
                    "n_infrastructure": sum(problems.n_infrastructure for problems in own),
                    "delta": delta.value if delta else None,
                    "delta_low": delta.low if delta else None,
                    "delta_high": delta.high if delta else None,
                }
            )
    return rows


def unjudged(items: Iterable[EvaluationItemRow], suite: Suite) -> dict[str, str]:
    """Benchmark and id of every problem that is missing from a score or was never asked -> why."""
    lost = [row for row in items if row["correct"] is None]
    found = {f"{row['benchmark']} {row['item_id']}": row["detail"] or row["verdict"] for row in lost}
    unasked = {} if suite.sample else left_out(suite)  # a sample is of those that can be asked
    return found | {name: f"not asked: {why}" for name, why in unasked.items()}


Pairs = tuple[list[float], list[float]]


def shared_scores(first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]]) -> Pairs:
    """The mean over each side's players at every problem that all of them have a score of, paired."""
    common = sorted(set.intersection(*(set(scores) for scores in (*first, *second))))
    return (
        [sum(scores[item] for scores in first) / len(first) for item in common],
        [sum(scores[item] for scores in second) / len(second) for item in common],
    )


def difference(
    pairs: Sequence[Pairs], seed: int, *names: str, confidence: float = CONFIDENCE
) -> Interval | None:
    """First minus second over benchmarks; None where one of them has no problem that both sides share."""
    if not all(first for first, _ in pairs):
        return None
    rng = ids.generator(seed, "difference", *names)
    return paired_interval([first for first, _ in pairs], [second for _, second in pairs], rng, confidence)


def group_interval(
    items: Sequence[EvaluationItemRow], suite: Suite, members: Sequence[str]
) -> Interval | None:
    """The mean score of a group of players over the suite, with its interval over problems."""
    means = []
    for metric in headlines(suite):
        scored = by_problem(items, metric)
        scores = [scored[member].scores for member in members]
        means.append(shared_scores(scores, scores)[0])
    return mean_interval(means, ids.generator(suite.seed, "group")) if all(means) else None
