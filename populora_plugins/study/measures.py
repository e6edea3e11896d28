"""Measures of every generation of a run: rows (generation, measure, part, value) from the catalogue's views.

A part is a problem type, a role, a slot such as `student-02`, or `all`. `all` of what is told apart by type is the
mean over the types, each counting alike, so that a shift between types does not look like a change within them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

from populora_core.benchmarks.scores import headline_rows, headlines
from populora_core.benchmarks.suite import Suite
from populora_core.problems.grading import RunJobs
from populora_core.sandbox.jobs import Job
from populora_core.sandbox.status import Status
from populora_core.store.catalogue import Catalogue
from populora_plugins.study.heldout import held_out_by_level
from populora_plugins.study.steps import counting
from populora_plugins.study.summary import ALL, HELD_OUT, Value

# The mean over types of these and of what is said of problems is the part `all`.
BY_TYPE = """
    SELECT generation, problem_type AS part, valid AS validity, teacher_reward, proposal_length, solve_rate, learnable,
           ast_depth, cyclomatic_complexity, lines_of_code, variable_count, novelty, student_reward, attempt_length
    FROM figures_type
"""
PROBLEMS = """
    SELECT generation, problem_type AS part, avg(chance) AS chance, avg((chance > 0.2)::INT) AS guessable,
           avg(slack) AS slack, avg(level) AS level
    FROM problems WHERE teacher_id <> 'anchor' GROUP BY ALL
"""
OTHERS = (
    "SELECT generation, role AS part, avg(entropy) AS entropy FROM figures_member GROUP BY ALL",
    "SELECT generation, role AS part, avg(mu) AS rating FROM ratings WHERE role <> 'solo' GROUP BY ALL",
    # Spent in the generation; a solo adapter plays two roles and counts once, a role that never learns not at all.
    """
    SELECT generation, proposals, distinct_programs / problems AS distinct_programs, new_cells,
           updates / learners AS updates, trained_tokens / learners AS trained_tokens,
           trained_tokens + sampled_tokens AS total_tokens
    FROM figures_generation LEFT JOIN (
        SELECT generation, count(DISTINCT member_id) AS learners FROM updates
        WHERE role IN (SELECT role FROM updates WHERE tokens > 0) GROUP BY generation
    ) USING (generation)
    """,
)
HELD_OUT_SCORES = """
    SELECT e.generation, e.benchmark, e.metric, e.temperature, e.score,
           CASE WHEN e.member_id = 'base' THEN 'base' ELSE printf('%s-%02d', m.role, m.slot) END AS part
    FROM tables.evaluations e LEFT JOIN members m USING (member_id)
    WHERE e.suite = $suite AND e.part = 'test'
"""
PAIRS = """
    SELECT generation, match_id, avg(rate) AS mean, sum(variance) / (count(*) * count(*)) AS noise
    FROM (SELECT q.generation, p.match_id, q.solve_rate AS rate,
                 q.solve_rate * (1 - q.solve_rate) / greatest(q.n_attempts - 1, 1) AS variance
          FROM problems q JOIN proposals p USING (proposal_id) WHERE q.solve_rate IS NOT NULL)
    GROUP BY ALL
"""
PROGRAMS = """
    SELECT generation, problem_id, problem_type, program, inputs FROM problems
    WHERE teacher_id <> 'anchor' ORDER BY problem_id
"""


def measure(
    catalogue: Catalogue, suite: Suite, run_jobs: RunJobs, sampled: Suite | None = None
) -> list[Value]:
    """All measures of a run.

    Args:
        suite: the held-out suite.
        sampled: the sample of it that was answered eight times; None for none.
        run_jobs: runs programs in a sandbox; for the steps that programs execute.
    """
    found: list[Value] = []
    by_type = [_unpivoted(catalogue.rows(sql)) for sql in (BY_TYPE, PROBLEMS)]
    for values in (*map(list, by_type), _steps(catalogue, run_jobs)):
        found += [*values, *_over_types(values)]
    for sql in OTHERS:
        found += _unpivoted(catalogue.rows(sql))
    found += _lead_changes(found)
    found += _pair_spread(catalogue)
    found += _held_out(catalogue, suite)
    found += held_out_by_level(catalogue, suite, sampled)
    return sorted(set(found))


def _unpivoted(rows: Iterable[dict[str, Any]]) -> Iterator[Value]:
    """A value for every column that is neither `generation` nor `part`; nulls are no values."""
    for row in rows:
        for name, value in row.items():
            if name not in ("generation", "part") and value is not None and math.isfinite(value):
                yield Value(row["generation"], name, row.get("part", ALL), float(value))


def _over_types(values: Iterable[Value]) -> Iterator[Value]:
    grouped: dict[tuple[int, str], list[float]] = defaultdict(list)
    for value in values:
        grouped[value.generation, value.measure].append(value.value)
    for (generation, name), parts in grouped.items():
        yield Value(generation, name, ALL, sum(parts) / len(parts))


def _steps(catalogue: Catalogue, run_jobs: RunJobs) -> list[Value]:
    """Mean statements that a problem's program executes on its inputs, by generation and type."""
    rows = catalogue.rows(PROGRAMS)
    jobs, asked = [], []
    for row in rows:
        # Python 3.11 cannot write out every f-string that it parses.
        with suppress(ValueError):
            jobs.append(Job(row["problem_id"], counting(row["program"]), tuple(row["inputs"])))
            asked.append(row)
    counts: dict[tuple[int, str], list[float]] = defaultdict(list)
    for row, result in zip(asked, run_jobs(jobs), strict=True):
        # With its counters a program may be too long for the verifier, or too slow.
        if result.status is Status.OK and result.outputs:
            steps = [int(output) for output in result.outputs]
            counts[row["generation"], row["problem_type"]].append(sum(steps) / len(steps))
    return [
        Value(generation, "executed_steps", kind, sum(own) / len(own))
        for (generation, kind), own in counts.items()
    ]


def _lead_changes(values: Iterable[Value]) -> Iterator[Value]:
    """Yield how often, so far, the role with the higher mean rating gave way to the other."""
    mus = {(v.generation, v.part): v.value for v in values if v.measure == "rating"}
    leads = [
        (generation, math.copysign(1.0, mus[generation, "student"] - mus[generation, "teacher"]))
        for generation in sorted({generation for generation, _ in mus})
        if {(generation, "student"), (generation, "teacher")} <= mus.keys()
    ]
    changes = 0
    if leads:
        yield Value(leads[0][0], "lead_changes", ALL, 0.0)
    for (_, before), (generation, now) in pairwise(leads):
        changes += before != now
        yield Value(generation, "lead_changes", ALL, float(changes))


def _held_out(catalogue: Catalogue, suite: Suite) -> Iterator[Value]:
    """Every player's score over the whole suite, and of each benchmark by its first metric."""
    rows = catalogue.rows(HELD_OUT_SCORES, {"suite": suite.suite})
    for row in headline_rows(rows, suite):
        yield Value(row["generation"], HELD_OUT, row["part"], row["score"])
    first = {(metric.entry.benchmark, metric.name, metric.entry.temperature) for metric in headlines(suite)}
    for row in rows:
        if (row["benchmark"], row["metric"], row["temperature"]) in first:
            yield Value(row["generation"], f"{HELD_OUT}.{row['benchmark']}", row["part"], row["score"])


def _pair_spread(catalogue: Catalogue) -> Iterator[Value]:
    """Standard deviation of solve rates between a generation's pairs, beyond what finite attempts give.

    Pairs that differ by chance alone, equally able on equally hard problems, come to 0 on average before the root.
    """
    pairs: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in catalogue.rows(PAIRS):
        pairs[row["generation"]].append(row)
    for generation, own in pairs.items():
        if len(own) > 1:
            mean = sum(row["mean"] for row in own) / len(own)
            between = sum((row["mean"] - mean) ** 2 for row in own) / (len(own) - 1)
            noise = sum(row["noise"] for row in own) / len(own)
            yield Value(generation, "pair_spread", ALL, math.sqrt(max(0.0, between - noise)))
