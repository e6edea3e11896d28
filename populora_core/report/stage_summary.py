"""What one stage did, in a sentence and a few small tables, read from its own files as soon as they are committed.

The catalogue follows at the end of a generation; a stage that has just ended is not in it yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from populora_core.stages.table import file_name, giver, stages_of
from populora_core.store.manifest import stage_dir
from populora_core.store.sql import parquet, refusal_told
from populora_core.store.tables import TABLES

BEFORE = "_before"

_LENGTHS = """count(*) AS {what}, avg(prompt_tokens) AS "tokens read", avg(completion_tokens) AS "tokens written",
       avg((finish_reason = 'stop')::INT) AS "share finished" """
_SHARES = """
WITH now AS (SELECT verdict, count(*) AS n, n / sum(n) OVER () AS share FROM {{{table}}} GROUP BY 1),
     past AS (SELECT verdict, count(*) / sum(count(*)) OVER () AS share FROM {{{table}_before}} GROUP BY 1)
SELECT verdict, now.n AS {what}, now.share,
       CASE WHEN EXISTS (FROM past) THEN now.share - coalesce(past.share, 0) END AS "change since last generation"
FROM now LEFT JOIN past USING (verdict) ORDER BY n DESC, verdict
"""
_STANDING = """
SELECT member_id AS member, now.role, now.mu, now.sigma, now.mu - 3 * now.sigma AS fitness,
       fitness - (past.mu - 3 * past.sigma) AS "change since last generation"{also}
FROM {{{table}}} now LEFT JOIN {{population_before}} past USING (member_id) ORDER BY now.role, fitness DESC, member
"""


@dataclass(frozen=True, slots=True)
class _Query:
    """What is asked of a stage: `headline` gives one text, each of `parts` the rows of a titled table.

    `{name}` stands for a table of this generation, `{name_before}` for that of the one before: empty where
    there is none.
    """

    headline: str
    parts: Mapping[str, str]


_QUERIES = {
    "found": _Query(
        "SELECT count(*) || ' members are founded' FROM {population}",
        {
            "population": """SELECT member_id AS member, role, operator AS "made by", mu, sigma
                FROM {population} ORDER BY role, member"""
        },
    ),
    "match": _Query(
        "SELECT count(*) || ' matches' FROM {matches}",
        {
            "who meets whom": """SELECT teacher_id AS teacher, student_id AS student,
                p_student_win AS "student's chance", weight AS "drawn with" FROM {matches} ORDER BY match_id"""
        },
    ),
    "propose": _Query(
        "SELECT count(*) || ' proposals, ' || sum(completion_tokens) || ' tokens' FROM {proposals}",
        {
            "by type": "SELECT problem_type AS type, "
            + _LENGTHS.format(what="proposals")
            + "FROM {proposals} GROUP BY 1 ORDER BY 1",
            "by teacher": "SELECT teacher_id AS teacher, "
            + _LENGTHS.format(what="proposals")
            + "FROM {proposals} GROUP BY 1 ORDER BY 1",
        },
    ),
    "verify": _Query(
        """SELECT count(*) FILTER (verdict = 'valid') || ' of ' || count(*) || ' proposals became problems'
        FROM {proposal_checks}""",
        {
            "verdicts": _SHARES.format(table="proposal_checks", what="proposals"),
            "problems": """SELECT problem_type AS type, count(*) AS problems, avg(lines_of_code) AS "mean lines",
                avg(cyclomatic_complexity) AS "mean complexity", avg(novelty) AS "mean novelty"
                FROM {problems} GROUP BY 1 ORDER BY 1""",
        },
    ),
    "solve": _Query(
        "SELECT count(*) || ' attempts, ' || coalesce(sum(completion_tokens), 0) || ' tokens' FROM {attempts}",
        {
            "by student": "SELECT student_id AS student, "
            + _LENGTHS.format(what="attempts")
            + "FROM {attempts} GROUP BY 1 ORDER BY 1"
        },
    ),
    "grade": _Query(
        """SELECT count(*) FILTER (verdict = 'correct') || ' of ' || count(*) || ' attempts are correct'
        FROM {attempt_grades}""",
        {
            "ratings": _STANDING.format(table="ratings", also=", eligible"),
            "solve rates": """
                WITH rates AS (SELECT problem_type, problem_id, solve_rate FROM {problem_results}
                               JOIN {problems} USING (problem_id)),
                     past AS (SELECT problem_type, avg(solve_rate) AS rate FROM {problem_results_before}
                              JOIN {problems_before} USING (problem_id) GROUP BY 1)
                SELECT problem_type AS type, count(*) AS problems, avg(solve_rate) AS "solve rate",
                       avg(solve_rate) - any_value(past.rate) AS "change since last generation",
                       avg((solve_rate > 0 AND solve_rate < 1)::INT) AS "share solved at times"
                FROM rates LEFT JOIN past USING (problem_type) GROUP BY 1 ORDER BY 1""",
            "verdicts": _SHARES.format(table="attempt_grades", what="attempts"),
            "matches": """SELECT teacher_id AS teacher, student_id AS student, outcome, solve_rate AS "solve rate",
                p_student_win AS "student's chance before" FROM {match_results} JOIN {matches} USING (match_id)
                ORDER BY match_id""",
        },
    ),
    "update": _Query(
        "SELECT count(DISTINCT member_id) || ' members learned from ' || sum(tokens) || ' tokens' FROM {updates}",
        {
            "steps": """SELECT member_id AS member, role, n_rows AS completions, tokens, loss,
                grad_norm AS "gradient norm", entropy, clip_fraction AS "share clipped",
                logprob_mismatch AS "mismatch with the sampler" FROM {updates} ORDER BY 1, 2"""
        },
    ),
    "evaluate": _Query(
        """SELECT CASE WHEN count(*) = 0 THEN 'no evaluation is due'
           ELSE count(DISTINCT member_id) || ' members are measured on ' || any_value(suite) END
        FROM {evaluations}""",
        {
            "scores": """SELECT member_id AS member, benchmark, n, score, low, high, delta AS "over the base"
                FROM {evaluations} ORDER BY benchmark = 'all' DESC, benchmark, score DESC, member"""
        },
    ),
    "evolve": _Query(
        """SELECT CASE WHEN count(*) = 0 THEN 'nobody is replaced' ELSE count(*) || ' members are replaced' END
        FROM {evolutions}""",
        {
            "replaced": """SELECT removed_id AS removed, removed_fitness AS fitness, child_id AS child,
                operator AS "made by", array_to_string(parent_ids, ', ') AS parents FROM {evolutions} ORDER BY 1""",
            "population": _STANDING.format(table="population", also=', now.operator AS "made by"'),
        },
    ),
}


@dataclass(frozen=True, slots=True)
class StageSummary:
    """What a stage did: one sentence, and titled tables without the empty ones."""

    headline: str
    tables: Mapping[str, list[dict[str, Any]]]


def stage_summary(directory: Path, generation: int, stage: str) -> StageSummary:
    """Summarise a committed stage.

    Raises:
        ArtifactError: one of its files is missing or damaged.
    """
    query = _QUERIES[stage]
    with (
        refusal_told(f"{stage} of generation {generation} cannot be summarised"),
        duckdb.connect() as connection,
    ):

        def rows(sql: str) -> list[dict[str, Any]]:
            found = connection.execute(
                re.sub(r"{(\w+)}", lambda m: _source(directory, generation, m[1]), sql)
            )
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

        headline = next(iter(rows(query.headline)[0].values()))
        tables = {title: found for title, sql in query.parts.items() if (found := rows(sql))}
    return StageSummary(headline, tables)


def _source(directory: Path, generation: int, name: str) -> str:
    """The SQL of a table, named as in `_Query`."""
    table = name.removesuffix(BEFORE)
    if table == name:
        files = _files(directory, generation, table)
    else:
        files = [file for file in _files(directory, generation - 1, table) if file.is_file()]
    return f"({parquet(TABLES[table], files)})"


def _files(directory: Path, generation: int, table: str) -> list[Path]:
    """Where a table of a generation lies; nowhere where no stage of it gives one."""
    stages = stages_of(generation)
    if not any(table in stage.gives for stage in stages):
        return []
    return [stage_dir(directory, generation, giver(table, stages).name) / file_name(table)]
