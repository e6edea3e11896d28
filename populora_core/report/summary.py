"""The figures of one generation and of a whole run, from the catalogue's views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from populora_core.store.catalogue import Catalogue

BY_TYPE = """
SELECT p.problem_type,
       avg((p.verdict = 'valid')::DOUBLE) AS valid,
       count(q.problem_id) AS problems,
       avg(q.solve_rate) AS solve_rate,
       avg((q.solve_rate > 0 AND q.solve_rate < 1)::DOUBLE) AS learnable
FROM proposals p LEFT JOIN problems q USING (problem_id)
WHERE p.generation = {generation}
GROUP BY 1 ORDER BY 1
"""
REPLACED = """
SELECT removed_id, child_id, operator, parent_ids FROM evolutions WHERE generation = {generation} ORDER BY 1
"""
TOKENS = """
SELECT count(DISTINCT member_id) AS members, coalesce(sum(trained_tokens), 0)::BIGINT AS trained
FROM tokens WHERE generation = {generation}
"""
MEMBER_TOKENS = """
SELECT coalesce(member_id, 'all') AS member, coalesce(role, '') AS "role played",
       sum(prompt_tokens)::BIGINT AS read, sum(generated_tokens)::BIGINT AS written,
       sum(trained_tokens)::BIGINT AS trained, sum(updates)::BIGINT AS updates,
       sum(cumulative_trained_tokens)::BIGINT AS "trained so far"
FROM tokens WHERE generation = ?
GROUP BY GROUPING SETS ((member_id, role), ()) HAVING count(*) > 0
ORDER BY grouping(member_id), member_id, role DESC
"""
POPULATION = """
SELECT p.member_id, p.role, p.mu, p.sigma, p.mu - 3 * p.sigma AS fitness, coalesce(r.eligible, true) AS eligible,
       p.born_generation, p.operator
FROM tables.population p LEFT JOIN ratings r USING (member_id, generation)
WHERE p.generation = (SELECT max(generation) FROM tables.population)
ORDER BY p.role, eligible DESC, fitness DESC, p.member_id
"""
COVERAGE = """
SELECT problem_type, generation, new_cells, cumulative_cells, cumulative_construct_sets, mean_novelty,
       mean_lines_of_code
FROM coverage QUALIFY generation = max(generation) OVER (PARTITION BY problem_type) ORDER BY problem_type
"""
OVERALL = """
SELECT (SELECT count(*) FROM proposals) AS proposals,
       (SELECT count(*) FROM problems) AS problems,
       (SELECT count(*) FROM attempts) AS attempts,
       (SELECT count(*) FROM evolutions) AS replacements,
       (SELECT coalesce(sum(seconds), 0) FROM stages) AS seconds
"""


@dataclass(frozen=True, slots=True)
class TypeFigures:
    """One problem type in one generation; shares in [0, 1], None where there was nothing to measure."""

    problem_type: str
    valid: float
    problems: int
    solve_rate: float | None
    learnable: float | None


@dataclass(frozen=True, slots=True)
class GenerationSummary:
    """What a person wants to know of a generation at a glance.

    Attributes:
        members: those that were trained; 0 before the update.
        trained_tokens: of all of them together.
    """

    generation: int
    types: tuple[TypeFigures, ...]
    replaced: tuple[Mapping[str, Any], ...]
    members: int
    trained_tokens: int
    seconds: float


def generation_summary(directory: Path, generation: int) -> GenerationSummary:
    with Catalogue(directory) as catalogue:
        types = catalogue.rows(BY_TYPE.format(generation=generation))
        replaced = catalogue.rows(REPLACED.format(generation=generation))
        tokens = catalogue.rows(TOKENS.format(generation=generation))[0]
        seconds = catalogue.rows(
            f"SELECT coalesce(sum(seconds), 0) AS s FROM stages WHERE generation = {generation}"
        )[0]["s"]
    return GenerationSummary(
        generation,
        tuple(TypeFigures(**row) for row in types),
        tuple(replaced),
        members=tokens["members"],
        trained_tokens=tokens["trained"],
        seconds=seconds,
    )


def token_rows(directory: Path, generation: int) -> list[dict[str, Any]]:
    """Tokens that each member read, wrote and trained on in each role, and all of them together at the end."""
    with Catalogue(directory) as catalogue:
        return catalogue.rows(MEMBER_TOKENS, [generation])


def population_rows(directory: Path) -> list[dict[str, Any]]:
    """The living members, the fittest of each role first; newborns stand at their starting rating."""
    with Catalogue(directory) as catalogue:
        return catalogue.rows(POPULATION)


def coverage_rows(directory: Path) -> list[dict[str, Any]]:
    """The newest row of the view `coverage` for each problem type."""
    with Catalogue(directory) as catalogue:
        return catalogue.rows(COVERAGE)


def overall(directory: Path) -> dict[str, Any]:
    """Totals of the whole run; seconds are those spent in stages."""
    with Catalogue(directory) as catalogue:
        return catalogue.rows(OVERALL)[0]
