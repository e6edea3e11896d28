"""Scores by stratum: of each level or kind of a suite's problems, what solvers and base get right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from populora_core.benchmarks.scores import BASE, Pairs, by_problem, headlines, shared_scores
from populora_core.benchmarks.suite import Suite
from populora_core.store.rows import EvaluationItemRow

LEVEL = re.compile(r"level (\d+)")


def level_of(stratum: str) -> int | None:
    """The number of a stratum that is a level; None of any other."""
    found = LEVEL.fullmatch(stratum)
    return int(found[1]) if found else None


def by_stratum(
    items: Sequence[EvaluationItemRow], suite: Suite, solvers: Sequence[str]
) -> dict[str, list[Pairs]]:
    """Mean scores of solvers and base for each stratum: problem by problem, one entry per benchmark that has it.

    Levels come by number, other strata by name. Empty where no problem has a stratum, or all have the same.

    Args:
        items: rows of `evaluation_items`, of one suite, half and generation.
        solvers: member ids that answered beside the base.
    """
    found: dict[str, list[Pairs]] = {}
    for metric in headlines(suite):
        scored = by_problem(items, metric)
        if BASE not in scored or not solvers or not set(solvers) <= scored.keys():
            continue
        stratum = {
            row["item_id"]: row["stratum"] for row in items if row["benchmark"] == metric.entry.benchmark
        }
        for name in set(stratum.values()) - {""}:
            own, base = (
                [_within(scored[player].scores, stratum, name) for player in players]
                for players in (solvers, [BASE])
            )
            pairs = shared_scores(own, base)
            if pairs[0]:
                found.setdefault(name, []).append(pairs)
    return {name: found[name] for name in in_order(found)} if len(found) > 1 else {}


def in_order(strata: Iterable[str]) -> list[str]:
    """Strata as a reader expects them: levels by number, then others by name."""
    return sorted(strata, key=lambda name: (level_of(name) is None, level_of(name) or 0, name))


def _within(scores: Mapping[str, float], stratum: Mapping[str, str], name: str) -> dict[str, float]:
    return {item_id: score for item_id, score in scores.items() if stratum[item_id] == name}
