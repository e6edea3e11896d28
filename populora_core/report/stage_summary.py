"""Summary of one stage as soon as it is committed: a sentence and a few small tables.

It asks the catalogue's views, so that its figures are those of the report, over this generation and the one before
alone: what they cost does not grow with the run, and nothing is published for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from populora_core.stages.table import typed_name
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import EVALUATION, Manifest, complete, read_manifest, stage_dir
from populora_core.store.sql import STEPS_TAKEN, text
from populora_core.support.errors import ArtifactError
from populora_core.support.visible import visible

_LENGTHS = """
SELECT {who}, count(*) AS {what}, avg(prompt_tokens) AS "tokens read", avg(completion_tokens) AS "tokens written",
       avg((finish_reason = 'stop')::INT) AS "share finished"
FROM {what} WHERE generation = $generation GROUP BY 1 ORDER BY 1
"""
_VERDICTS = """
WITH judged AS (SELECT generation, sum({what}_judged) AS judged FROM figures_type GROUP BY generation),
counted AS (
    SELECT generation, verdict, count(*) AS n,
           CASE WHEN verdict <> 'infrastructure' THEN count(*) / any_value(judged) END AS share
    FROM {what} JOIN judged USING (generation) GROUP BY generation, verdict
)
SELECT now.verdict, now.n AS {what}, now.share,
       CASE WHEN EXISTS (FROM counted WHERE generation = $generation - 1) THEN now.share - coalesce(past.share, 0) END
           AS "change since last generation"
FROM counted now LEFT JOIN counted past ON past.verdict = now.verdict AND past.generation = now.generation - 1
WHERE now.generation = $generation ORDER BY now.n DESC, now.verdict
"""
_HEADLINE = """
SELECT coalesce(sum({right} * {what}_judged), 0)::INT || ' of ' || sum({what}_judged) || ' {what} {outcome}'
       || CASE WHEN sum({what}) > sum({what}_judged)
               THEN ', ' || sum({what} - {what}_judged) || ' met a failing sandbox' ELSE '' END
FROM figures_type WHERE generation = $generation
"""
_STANDING = """
SELECT now.member_id AS member, now.role, now.mu, now.sigma, now.mu - 3 * now.sigma AS fitness,
       now.mu - 3 * now.sigma - (past.mu - 3 * past.sigma) AS "change since last generation"{also}
FROM {table} now LEFT JOIN tables.population past
    ON past.member_id = now.member_id AND past.generation = $generation - 1
WHERE now.generation = $generation ORDER BY now.role, fitness DESC, member
"""


@dataclass(frozen=True, slots=True)
class _Query:
    """The queries for one stage: `headline` gives one text, each of `parts` the rows of a titled table."""

    headline: str
    parts: Mapping[str, str]


def _scores(of: str) -> _Query:
    """The queries for scores of a suite."""
    rows = f"FROM tables.evaluations WHERE generation = $generation AND {of}"
    return _Query(
        f"""SELECT CASE WHEN count(*) = 0 THEN 'no evaluation is due'
           ELSE count(DISTINCT member_id) FILTER (member_id <> 'base') || ' members are measured on '
           || string_agg(DISTINCT suite, ', ') END {rows}""",
        {
            "scores": f"""SELECT member_id AS member, suite, benchmark, metric, temperature, n, score, low, high,
                delta AS "over the base" {rows}
                ORDER BY suite, benchmark = 'all' DESC, benchmark, metric, temperature, score DESC, member"""
        },
    )


_QUERIES = {
    "found": _Query(
        "SELECT count(*) || ' members are founded' FROM tables.population WHERE generation = $generation",
        {
            "population": """SELECT member_id AS member, role, operator AS "made by", mu, sigma
                FROM tables.population WHERE generation = $generation ORDER BY role, member"""
        },
    ),
    "match": _Query(
        "SELECT count(*) || ' matches' FROM matches WHERE generation = $generation",
        {
            "who meets whom": """SELECT teacher_id AS teacher, student_id AS student,
                p_student_win AS "student's chance", weight AS "drawn with"
                FROM matches WHERE generation = $generation ORDER BY match_id"""
        },
    ),
    "propose": _Query(
        """SELECT count(*) || ' proposals, ' || sum(completion_tokens) || ' tokens'
        FROM proposals WHERE generation = $generation""",
        {
            "by type": _LENGTHS.format(what="proposals", who="problem_type AS type"),
            "by teacher": _LENGTHS.format(what="proposals", who="teacher_id AS teacher"),
        },
    ),
    "verify": _Query(
        _HEADLINE.format(what="proposals", right="valid", outcome="became problems"),
        {
            "verdicts": _VERDICTS.format(what="proposals"),
            "problems": """SELECT problem_type AS type, problems, lines_of_code AS "mean lines",
                cyclomatic_complexity AS "mean complexity", novelty AS "mean novelty"
                FROM figures_type WHERE generation = $generation AND problems > 0 ORDER BY 1""",
            "anchors": """SELECT verdict, count(*) AS anchors FROM tables.proposal_checks
                WHERE starts_with(proposal_id, printf('prop-g%04d-anchor-', $generation)) GROUP BY 1 ORDER BY 2 DESC""",
        },
    ),
    "solve": _Query(
        """SELECT count(*) || ' attempts, ' || coalesce(sum(completion_tokens), 0) || ' tokens'
        FROM attempts WHERE generation = $generation""",
        {"by student": _LENGTHS.format(what="attempts", who="student_id AS student")},
    ),
    "grade": _Query(
        _HEADLINE.format(what="attempts", right="correct", outcome="are correct"),
        {
            "ratings": _STANDING.format(table="ratings", also=", eligible"),
            "solve rates": """SELECT now.problem_type AS type, now.problems, now.solve_rate AS "solve rate",
                now.solve_rate - past.solve_rate AS "change since last generation",
                now.learnable AS "share solved at times"
                FROM figures_type now LEFT JOIN figures_type past
                    ON past.problem_type = now.problem_type AND past.generation = now.generation - 1
                WHERE now.generation = $generation AND now.problems > 0 ORDER BY 1""",
            "verdicts": _VERDICTS.format(what="attempts"),
            "members": """SELECT member_id AS member, role, completions_judged AS judged, success AS "share right",
                reward FROM figures_member WHERE generation = $generation ORDER BY role DESC, member""",
            "matches": """SELECT teacher_id AS teacher, student_id AS student, outcome,
                solve_rate_where_solved AS "solve rate where solved at all", p_student_win AS "student's chance before"
                FROM matches WHERE generation = $generation ORDER BY match_id""",
        },
    ),
    "update": _Query(
        f"""SELECT count(DISTINCT member_id) FILTER ({STEPS_TAKEN} > 0) || ' members learned from '
        || sum(tokens) || ' tokens' || (
            SELECT CASE WHEN count(*) > 0 THEN ', ' || count(*) || ' were averaged' ELSE '' END
            FROM averages WHERE generation = $generation
        ) FROM updates WHERE generation = $generation""",
        {
            "steps": """SELECT member_id AS member, role, n_rows AS completions, tokens, loss,
                grad_norm AS "gradient norm", entropy, clip_fraction AS "share clipped",
                logprob_mismatch AS "mismatch with the sampler"
                FROM updates WHERE generation = $generation ORDER BY 1, 2""",
            "averaged": """SELECT member_id AS member, share AS "share of the way", distance AS "moved by",
                energy_kept AS "energy kept"
                FROM averages WHERE generation = $generation ORDER BY 1""",
        },
    ),
    "evaluate": _scores("part = 'validation'"),
    "evolve": _Query(
        """SELECT CASE WHEN count(*) = 0 THEN 'no one is replaced' ELSE count(*) || ' members are replaced' END
        FROM evolutions WHERE generation = $generation""",
        {
            "replaced": """SELECT removed_id AS removed, removed_fitness AS fitness, child_id AS child,
                operator AS "made by", array_to_string(parent_ids, ', ') AS parents
                FROM evolutions WHERE generation = $generation ORDER BY 1""",
            "population": _STANDING.format(table="tables.population", also=', now.operator AS "made by"'),
            "hyperparameters": """SELECT member_id AS member, learning_rate AS "learning rate", temperature,
                replay AS "replay weight", teacher_reward AS payment
                FROM hyperparameters WHERE generation = $generation ORDER BY 1""",
        },
    ),
}


@dataclass(frozen=True, slots=True)
class StageSummary:
    """The summary of a stage: one sentence, and titled tables without the empty ones."""

    headline: str
    tables: Mapping[str, list[dict[str, Any]]]


def stage_summary(directory: Path, generation: int, stage: str) -> StageSummary:
    """Summarise a committed stage.

    Raises:
        ArtifactError: one of its files is missing or damaged.
    """
    folder = stage_dir(directory, generation, stage)
    manifest = read_manifest(folder)
    if manifest is None or not complete(folder, manifest):
        raise ArtifactError(
            f"{stage} of generation {generation} cannot be summarised",
            expected="a committed stage with all its files",
            got=str(folder),
            fix="populora resume makes damaged stages again",
        )
    recorded = {"recorded": found} if (found := recorded_rows(manifest)) else {}
    suite = stage.removeprefix(EVALUATION)
    if suite == stage and stage not in _QUERIES:  # a plug-in's, whose word may be a stranger's
        return StageSummary(visible(manifest.extra.get("summary", f"{typed_name(stage)} is made")), recorded)
    query = _QUERIES[stage] if suite == stage else _scores(f"part = 'test' AND suite = {text(suite)}")
    asked = "; ".join((query.headline, *query.parts.values()))
    with Catalogue(directory, generations=(generation - 1, generation), asked=asked) as catalogue:

        def rows(sql: str) -> list[dict[str, Any]]:
            return catalogue.rows(sql, {"generation": generation})

        headline = next(iter(rows(query.headline)[0].values()))
        tables = {title: found for title, sql in query.parts.items() if (found := rows(sql))}
    if proved := proof_rows(manifest):
        tables["whether the sampler serves them"] = proved
    return StageSummary(headline, tables | recorded)


def proof_rows(manifest: Manifest) -> list[dict[str, Any]]:
    """Rows on each member's sampler, from an update's tokens; none in float32, where the load has proved all."""
    return [
        {
            "member": member,
            "sampler": told["told"],
            "tokens compared": told["tokens"],
            "mean difference": told["mean"],
            "99 % below": told["p99"],
            "cannot be told from": ", ".join(told["alike"]),
        }
        for member, told in sorted(manifest.extra.get("proof", {}).items())
    ]


def recorded_rows(manifest: Manifest) -> list[dict[str, Any]]:
    """Rows of the figures that the stage recorded beside its tables."""
    return [
        {"stage": manifest.stage, "figure": name, "value": value}
        for name, value in manifest.extra.get("metrics", {}).items()
    ]
