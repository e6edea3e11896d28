"""Measures of a run's held-out answers: by level and member, by vote, and of the member that a user would choose.

A suite's strata are its levels. What is said of several levels is the mean over them, each counting alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, TypedDict, TypeVar

from populora_core.benchmarks.metrics import pass_at_k, voted
from populora_core.benchmarks.scores import BASE, headlines
from populora_core.benchmarks.suite import Suite
from populora_core.store.catalogue import Catalogue
from populora_plugins.study.summary import ALL, HELD_OUT, Value

BANDS = {"levels_2_5": (2, 3, 4, 5), "edge": (4, 5), "beyond": (6, 7, 8)}
"""Levels that are read together: up to the base's edge, the edge alone, and what no document of the base holds."""
SAMPLED, ATTEMPTS = "mean_at_8", 8
FRONTIERS = {"frontier": 0.5, "frontier_tenth": 0.1}

ANSWERS = """
    SELECT e.generation, e.suite, e.member_id, e.item_id, e.stratum, e.answer, e.correct, e.completion_tokens,
           CASE WHEN e.member_id = 'base' THEN 'base' ELSE printf('%s-%02d', m.role, m.slot) END AS part
    FROM evaluation_items e LEFT JOIN members m USING (member_id)
    WHERE e.suite = $suite AND e.part = 'test' AND e.correct IS NOT NULL ORDER BY ALL
"""
VALIDATED = "SELECT generation, member_id, external_fitness FROM ratings WHERE external_fitness IS NOT NULL"


class JudgedAnswer(TypedDict):
    """The columns of `evaluation_items` that say what is right at which level."""

    item_id: str
    stratum: str
    correct: bool | None


class AnswerRow(JudgedAnswer):
    """A row of `ANSWERS`."""

    generation: int
    suite: str
    member_id: str
    answer: str | None
    completion_tokens: int
    part: str


Given = TypeVar("Given", bound=JudgedAnswer)
AnswersByProblem = Mapping[str, Sequence[AnswerRow]]
"""The answers to each problem of a level, by its item_id."""


def sampled_suite(suite: Suite, problems: int) -> Suite:
    """A sample of the suite's problems, each answered eight times at temperature 1."""
    drawn = {"attempts": ATTEMPTS, "k": (1, ATTEMPTS), "temperature": 1.0}
    entries = tuple(rule.entry.model_copy(update=drawn) for rule in headlines(suite))
    return suite.sampled(problems).model_copy(
        update={"suite": f"{suite.suite}-{problems}-{SAMPLED}", "benchmarks": entries}
    )


def held_out_by_level(catalogue: Catalogue, suite: Suite, sampled: Suite | None) -> Iterator[Value]:
    """Scores by level of every player; of the solvers together their vote, pass@8, and the one to take home.

    Args:
        suite: answered greedily.
        sampled: the same with eight attempts; None where there were none.
    """
    validated: dict[int, dict[str, float]] = defaultdict(dict)
    for row in catalogue.rows(VALIDATED):
        validated[row["generation"]][row["member_id"]] = row["external_fitness"]
    for generation, rows in _by(catalogue.rows(ANSWERS, {"suite": suite.suite}), "generation"):
        yield from _greedy(generation, rows, validated[generation])
    answers = catalogue.rows(ANSWERS, {"suite": sampled.suite}) if sampled else []
    for generation, rows in _by(answers, "generation"):
        for part, own in _by(rows, "part"):
            yield Value(generation, SAMPLED, part, _score(own))
            yield from by_level(generation, SAMPLED, part, own)
        levels = _levels(_solvers(rows)).items()
        together = {level: score for level, items in levels if (score := _pass_at_8(items)) is not None}
        yield from _spread(generation, "pass_at_8", ALL, together)


def _greedy(generation: int, rows: Sequence[AnswerRow], validated: Mapping[str, float]) -> Iterator[Value]:
    for part, own in _by(rows, "part"):
        scores = level_scores(own)
        yield from _spread(generation, HELD_OUT, part, scores)
        for name, least in FRONTIERS.items():
            solved = [level for level, score in scores.items() if score >= least]
            if scores:
                yield Value(generation, name, part, float(max(solved, default=min(scores) - 1)))
        tokens = fmean(row["completion_tokens"] for row in own)
        yield Value(generation, "held_out_tokens", part, tokens)
    solvers = _solvers(rows)
    asked = {row["member_id"] for row in solvers}
    standing = sorted(asked, key=lambda member: (-validated.get(member, 0.0), member))
    votes = {level: _vote(items, standing) for level, items in _levels(solvers).items()}
    yield from _spread(generation, "vote", ALL, votes)
    best = best_of({member: fitness for member, fitness in validated.items() if member in asked})
    if best is not None:
        own = [row for row in solvers if row["member_id"] == best]
        yield from by_level(generation, "take_home", ALL, own)


def by_level(generation: int, measure: str, part: str, rows: Iterable[JudgedAnswer]) -> Iterator[Value]:
    """The share of right answers of every level, and of the bands all of whose levels were asked."""
    return _spread(generation, measure, part, level_scores(rows))


def best_of(scores: Mapping[str, float]) -> str | None:
    """The member with the highest score, of equal ones the first by name; None if there are no scores."""
    return max(sorted(scores), key=scores.__getitem__, default=None)


def _spread(generation: int, measure: str, part: str, scores: Mapping[int, float]) -> Iterator[Value]:
    """The score of every level, and of the bands all of whose levels have one."""
    for level, score in scores.items():
        yield Value(generation, f"{measure}.level_{level}", part, score)
    for band, levels in BANDS.items():
        if set(levels) <= scores.keys():
            yield Value(generation, f"{measure}.{band}", part, fmean(scores[level] for level in levels))


def _by(rows: Iterable[AnswerRow], key: Literal["generation", "part"]) -> list[tuple[Any, list[AnswerRow]]]:
    found: dict[Any, list[AnswerRow]] = defaultdict(list)
    for row in rows:
        found[row[key]].append(row)
    return sorted(found.items())


def _levels(rows: Iterable[Given]) -> dict[int, Mapping[str, Sequence[Given]]]:
    """level -> its problems' answers; rows of a stratum that is no level are left out."""
    found: dict[int, dict[str, list[Given]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        word, _, number = row["stratum"].partition(" ")
        if word == "level":
            found[int(number)][row["item_id"]].append(row)
    return {level: found[level] for level in sorted(found)}


def _solvers(rows: Iterable[AnswerRow]) -> list[AnswerRow]:
    return [row for row in rows if row["part"] != BASE and not row["part"].startswith("teacher-")]


def _score(rows: Iterable[JudgedAnswer]) -> float:
    return fmean(float(row["correct"]) for row in rows if row["correct"] is not None)


def level_scores(rows: Iterable[JudgedAnswer]) -> dict[int, float]:
    """level -> share of right answers."""
    return {
        level: _score([row for own in items.values() for row in own])
        for level, items in _levels(rows).items()
    }


def _vote(items: AnswersByProblem, standing: Sequence[str]) -> float:
    """Share of problems on which the vote of all is right.

    Args:
        standing: who votes, in the order of validation scores, which breaks ties.
    """
    right = []
    for rows in items.values():
        ordered = sorted(rows, key=lambda row: standing.index(row["member_id"]))
        place = voted([row["answer"] for row in ordered])
        right.append(place is not None and bool(ordered[place]["correct"]))
    return fmean(right)


def _pass_at_8(items: AnswersByProblem) -> float | None:
    """Chance that one of eight attempts is right, drawn from those of all solvers together; None without eight."""
    counts = [(len(rows), sum(bool(row["correct"]) for row in rows)) for rows in items.values()]
    enough = [count for count in counts if count[0] >= ATTEMPTS]
    if not enough:
        return None
    drawn, right = zip(*enough, strict=True)
    return float(pass_at_k(drawn, right, ATTEMPTS).mean())
