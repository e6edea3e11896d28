"""Gains by practice, as tables: ``python -m experiments.gains`` over the oracle's results.

Gains are paired by problem, and every level counts alike. Intervals are 95 %: 1.96 standard errors over problems.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from base_model.steps.suite import BEYOND, EDGE
from experiments.lines import read_lines
from populora_core.report.text import markdown_table
from populora_core.support.aliases import Row
from populora_core.support.shipped import REPOSITORY

RESULTS = REPOSITORY / "bench" / "results" / "frontier-oracle.jsonl"
ARMS = ("following", "fixed", "supervised", "shuffled")
SAMPLED_ATTEMPTS = 8
LEAST_GAIN = {EDGE: 0.15, BEYOND: 0.08}
"""Least gain in greedy scores by the following arm before self-play is built on a base."""

WAYS = {"greedy": ("right", 1), "whole": ("whole", 1), "temperature 1": ("right", SAMPLED_ATTEMPTS)}

Scores = dict[str, dict[str, str]]
"""Level -> "right" and "whole" -> how many attempts were so, a digit per problem."""


def counts(scores: Scores, level: int, name: str) -> NDArray[np.int64]:
    """Right attempts at each problem of the level."""
    return np.array([int(digit) for digit in scores[str(level)][name]])


def shares(scores: Scores, attempts: int) -> dict[str, list[float]]:
    """Level -> [share right, share with a whole thought]."""
    return {
        level: [
            round(float(counts(scores, int(level), name).mean()) / attempts, 3) for name in ("right", "whole")
        ]
        for level in sorted(scores)
    }


def gain(before: Row, after: Row, levels: Sequence[int], way: str = "greedy") -> tuple[float, float]:
    """Mean paired gain over the problems of these levels, with its 95 % half-width.

    Args:
        before, after: of two results, what "after" holds.
        way: a key of `WAYS`.
    """
    name, attempts = WAYS[way]
    how = "sampled" if attempts > 1 else "greedy"
    means, variances = [], []
    for level in levels:
        moved = (counts(after[how], level, name) - counts(before[how], level, name)) / attempts
        means.append(float(moved.mean()))
        variances.append(float(moved.var(ddof=1)) / len(moved))
    return float(np.mean(means)), 1.96 * math.sqrt(sum(variances)) / len(levels)


def average(scores: Row, levels: Sequence[int], way: str) -> float:
    """Mean score over these levels."""
    name, attempts = WAYS[way]
    how = "sampled" if attempts > 1 else "greedy"
    return float(np.mean([counts(scores[how], level, name).mean() for level in levels])) / attempts


def gates(results: Sequence[Row]) -> dict[str, bool]:
    """Check that each seed's following arm lifts enough, and more than its fixed one: edge and beyond together."""
    base, arms = _sorted(results)
    found = {}
    for (arm, seed), result in arms.items():
        if arm != "following":
            continue
        after = result["after"]
        for levels, least in LEAST_GAIN.items():
            mean, half = gain(base["after"], after, levels)
            found[f"seed {seed}: greedy at levels {_span(levels)} {least:+.2f}"] = (
                mean >= least and mean > half
            )
        if ("fixed", seed) in arms:
            mean, half = gain(arms["fixed", seed]["after"], after, EDGE + BEYOND)
            found[f"seed {seed}: more than fixed at levels {_span(EDGE + BEYOND)}"] = mean > half
    return found


def summary(base: Row, result: Row) -> str:
    """One line for one result, beside the base's scores."""
    parts = [f"{result['arm']} {result['seed']}", f"frontier {result['curve'][-1]['frontier']}"]
    for levels in (EDGE, BEYOND):
        for way in WAYS:
            parts.append(f"{_span(levels)} {way} {_moved(base, result, levels, way)}")
    return ", ".join(parts)


def tables(results: Sequence[Row]) -> str:
    """Gains by arm and seed at the edge and beyond, scores by level, and the gates, as Markdown."""
    base, arms = _sorted(results)
    columns = [(levels, way) for way in WAYS for levels in (EDGE, BEYOND)]
    starts = (f"{average(base['after'], levels, way):.2f}" for levels, way in columns)
    moved: list[tuple[object, ...]] = [("base", "", "", "", *starts)]
    for (arm, seed), result in arms.items():
        cells = (_moved(base, result, levels, way) for levels, way in columns)
        moved.append((arm, seed, len(result["curve"]), result["curve"][-1]["frontier"], *cells))
    by_level = [
        (
            result["arm"],
            result.get("seed", ""),
            *(f"{right:.2f} / {good:.2f}" for right, good in shares(result["after"]["greedy"], 1).values()),
        )
        for result in (base, *arms.values())
    ]
    heads = (f"{_span(levels)}, {way}" for levels, way in columns)
    levels = (f"level {level}" for level in sorted(base["after"]["greedy"]))
    parts = [
        markdown_table(("arm", "seed", "updates", "frontier", *heads), moved),
        markdown_table(("greedy, right / whole", "seed", *levels), by_level),
        "\n".join(f"- {'met' if met else 'NOT MET'}: {gate}" for gate, met in gates(results).items()),
    ]
    return "\n\n".join(parts)


def _sorted(results: Sequence[Row]) -> tuple[Row, dict[tuple[str, int], Row]]:
    """The base's result, and the others by arm and seed."""
    base = next(one for one in results if one["arm"] == "base")
    rest = (one for one in results if one["arm"] != "base")
    ordered = sorted(rest, key=lambda one: (ARMS.index(one["arm"]), one["seed"]))
    return base, {(one["arm"], one["seed"]): one for one in ordered}


def _moved(base: Row, result: Row, levels: Sequence[int], way: str) -> str:
    mean, half = gain(base["after"], result["after"], levels, way)
    return f"{mean:+.2f} ± {half:.2f}"


def _span(levels: Sequence[int]) -> str:
    return f"{levels[0]} to {levels[-1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS)
    print(tables(read_lines(parser.parse_args().results)))


if __name__ == "__main__":
    main()
