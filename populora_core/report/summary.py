"""The figures of generations and of a whole run at a glance, from the catalogue's views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from populora_core.report.guard import falls
from populora_core.report.learnt import score_lines
from populora_core.runs.warm_start import OPERATOR
from populora_core.store.catalogue import Catalogue
from populora_core.support.aliases import Row

# Tokens that each member read, wrote and trained on in each role, and all of them together at the end. A past member
# that plays shares its slot with the one that holds it now, so it has no sum of its own.
MEMBER_TOKENS = """
SELECT coalesce(member_id, 'all') AS member, coalesce(role, '') AS "role played",
       sum(prompt_tokens)::BIGINT AS read, sum(generated_tokens)::BIGINT AS written,
       sum(trained_tokens)::BIGINT AS trained, sum(updates)::BIGINT AS updates,
       CASE WHEN grouping(member_id) = 0 THEN sum(cumulative_trained_tokens) FILTER (learns)
            ELSE (SELECT sum(trained_tokens) FROM tokens WHERE generation <= $1) END::BIGINT AS "trained so far"
FROM tokens LEFT JOIN (SELECT generation, member_id, role, true AS learns FROM tables.updates)
    USING (generation, member_id, role) WHERE generation = $1
GROUP BY GROUPING SETS ((member_id, role), ()) HAVING count(*) > 0
ORDER BY grouping(member_id), member_id, role DESC
"""
# The living members, the fittest of each role first; newborns stand at their starting rating.
POPULATION = """
SELECT p.member_id AS member, printf('%.1f ± %.1f', p.mu, p.sigma) AS "rating μ ± σ",
       printf('%.1f%s', p.mu - 3 * p.sigma, if(r.eligible IS false, ' (idle)', '')) AS "fitness μ - 3σ",
       p.operator AS "made by"
FROM tables.population p LEFT JOIN ratings r USING (member_id, generation)
WHERE p.generation = (SELECT max(generation) FROM tables.population)
ORDER BY p.role, r.eligible IS false, p.mu - 3 * p.sigma DESC, p.member_id
"""
# The newest row of each problem type.
COVERAGE = """
SELECT problem_type AS type, generation, cumulative_cells AS "cells so far", new_cells AS "new cells",
       cumulative_construct_sets AS "sets of constructs so far", printf('%.2f', mean_novelty) AS "mean novelty",
       printf('%.1f', mean_lines_of_code) AS "mean lines"
FROM coverage QUALIFY generation = max(generation) OVER (PARTITION BY problem_type) ORDER BY problem_type
"""
# Totals of the whole run, counted as the report's tiles count.
OVERALL = """
SELECT printf('%d proposals, %d new problems, %d attempts, %d replacements, %.0f s, of which %.0f s in stages',
              played.proposals, played.problems, played.attempts,
              (SELECT count(*) FROM evolutions), took.wall, took.stages) AS totals
FROM (SELECT coalesce(sum(seconds + coalesce(seconds_before, 0)), 0) AS wall, coalesce(sum(seconds), 0) AS stages
      FROM stages) AS took,
     (SELECT coalesce(sum(proposals), 0)::BIGINT AS proposals, coalesce(sum(problems), 0)::BIGINT AS problems,
             coalesce(sum(attempts), 0)::BIGINT AS attempts FROM figures_generation) AS played
"""
# Five problems of the first and of the last generation in which teachers asked, drawn by a hash, so none is picked.
ASKED = """
WITH asked AS (FROM problems SELECT *, min(generation) OVER () AS first, max(generation) OVER () AS last
               WHERE teacher_id <> 'anchor' AND solve_rate IS NOT NULL)
SELECT generation, program, inputs, outputs, solve_rate, n_attempts FROM asked WHERE generation IN (first, last)
QUALIFY row_number() OVER (PARTITION BY generation ORDER BY md5(problem_id)) <= 5
ORDER BY generation, md5(problem_id)
"""
# The founders, and those of them that began with an adapter.
FOUNDERS = """
SELECT count(*) AS members, count(*) FILTER (operator = $1) AS warm FROM tables.population WHERE generation = 0
"""
LEGEND = (
    "valid: proposals that the sandbox accepts; solved: attempts that are right. That falls while teachers ask "
    "harder problems; what was learnt is in the lines on held-out problems and the yardstick."
)
"""Said once, before the first line on a generation."""


WORDS = {"code_o": "output", "code_i": "input", "code_f": "function"}
"""Problem types as a line names them where there are several."""
MOST_LINES = 12  # generations of a run at a glance


@dataclass(frozen=True, slots=True)
class GenerationSummary:
    """A generation at a glance.

    Attributes:
        figures: its row of the view `figures_generation`.
        types: its rows of `figures_type`, by problem type.
        replaced: its rows of `evolutions`.
    """

    figures: Row
    types: Sequence[Row]
    replaced: Sequence[Row]


def generation_summaries(directory: Path, first: int, last: int) -> list[GenerationSummary]:
    """The generations of this range that have proposals, in order."""

    def by_generation(view: str) -> dict[int, list[Row]]:
        rows = catalogue.rows(f"FROM {view} WHERE generation BETWEEN ? AND ? ORDER BY ALL", [first, last])
        return {number: list(own) for number, own in groupby(rows, itemgetter("generation"))}

    with Catalogue(directory) as catalogue:
        figures, types, replaced = map(by_generation, ("figures_generation", "figures_type", "evolutions"))
    return [
        GenerationSummary(row, types[number], replaced.get(number, [])) for number, (row,) in figures.items()
    ]


def run_rows(directory: Path, sql: str, *parameters: object) -> list[Row]:
    """Rows that a query gives for a run."""
    with Catalogue(directory) as catalogue:
        return catalogue.rows(sql, parameters)


def generation_lines(directory: Path, generation: int, generations: int) -> list[str]:
    """Lines on a generation that has just ended, for a terminal and Prefect's log."""
    if generation == 0:
        told = [f"the population is founded: {_start(directory)}", LEGEND]
    else:
        summaries = generation_summaries(directory, generation, generation)
        told = [generation_line(summary, generations) for summary in summaries]
    marks = [f"guard: {fall}" for fall in falls(directory) if fall.now.generation == generation]
    return told + [f"    {line}" for line in (*score_lines(directory, generation), *marks)]


def _start(directory: Path) -> str:
    """Say what founders start from."""
    (row,) = run_rows(directory, FOUNDERS, OPERATOR)
    members, warm = row["members"], row["warm"]
    if not warm:
        return "every adapter starts as the base model"
    theirs = "an adapter of yours" if warm in (1, members) else "adapters of yours"
    if warm == members:
        return f"every member starts from {theirs}"
    start = "starts" if warm == 1 else "start"
    return f"{warm} of {members} members {start} from {theirs}, the others from the base model"


def generation_line(summary: GenerationSummary, generations: int) -> str:
    """One line for a person: valid proposals, solve rates, compute; below it a line per replacement."""

    def by_type(key: str) -> str:
        told = ["–" if row[key] is None else f"{row[key]:.0%}" for row in summary.types]
        if len(told) == 1:
            return told[0]
        names = (WORDS.get(row["problem_type"], row["problem_type"]) for row in summary.types)
        return "  ".join(f"{name} {share}" for name, share in zip(names, told, strict=True))

    figures = summary.figures
    parts = [
        f"generation {figures['generation']:>3}/{generations}  valid {by_type('valid')}",
        f"solved {by_type('solve_rate')}",
    ]
    if any(row["anchors"] for row in summary.types):
        parts.append(f"anchors solved {by_type('anchor_solve_rate')}")
    if figures["members"]:
        tokens = figures["trained_tokens"] / 1000
        parts.append(f"trained {tokens:.1f}k tokens, {tokens / figures['members']:.1f}k per member")
    replaced = [
        f"    {row['removed_id']} replaced by {row['child_id']}: {row['operator']} of {' + '.join(row['parent_ids'])}"
        for row in summary.replaced
    ]
    unheard = [
        f"    {row['problem_type']}: no proposal is valid, so no one learns this type yet; "
        'populora query RUN "SELECT verdict, detail FROM proposals" says why'
        for row in summary.types
        if row["valid"] == 0 and not row["anchors"]
    ]
    return "\n".join(["  │  ".join([*parts, f"{figures['wall_seconds']:.0f} s"]), *unheard, *replaced])
