"""Figures of a report: few, narrow queries over the views of the data contract, nothing else.

The views `figures_*` define what a figure means; the other queries count, or list what a plot draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from populora_core.runs.run import Run
from populora_core.stages.table import stages_of
from populora_core.store.catalogue import Catalogue
from populora_core.support.aliases import Row

Rows = Sequence[Row]

LAST = "SELECT coalesce(max(generation), 0) AS last FROM updates"  # the last generation whose members have learnt
QUERIES = {
    "members": """
        SELECT member_id, role, slot, born_generation, died_generation, parent_ids, operator
        FROM members WHERE born_generation <= $last ORDER BY role, slot, born_generation
    """,
    "ratings": """
        SELECT r.generation, r.member_id, m.role, m.slot, r.mu, r.sigma, r.fitness, r.eligible
        FROM ratings r JOIN members m USING (member_id) WHERE r.generation <= $last ORDER BY ALL
    """,
    **{
        view: f"SELECT * FROM {view} WHERE generation <= $last ORDER BY ALL"
        for view in ("figures_generation", "figures_type", "figures_member")
    },
    "verdicts": """
        SELECT 'proposals' AS what, generation, problem_type, verdict, count(*) AS n
        FROM proposals WHERE generation <= $last GROUP BY ALL
        UNION ALL
        SELECT 'attempts', generation, problem_type, verdict, count(*)
        FROM attempts JOIN (SELECT generation, problem_id, problem_type FROM problems) USING (generation, problem_id)
        WHERE generation <= $last GROUP BY ALL
        ORDER BY ALL
    """,
    "matches": """
        WITH played AS (
            SELECT match_id, sum(n_attempts) AS judged, sum(solve_rate * n_attempts) AS correct
            FROM problems JOIN (SELECT proposal_id, match_id FROM proposals) USING (proposal_id) GROUP BY ALL
        )
        SELECT teacher_id, student_id, count(*) AS n, count(*) FILTER (outcome = 'student') AS students,
               count(*) FILTER (outcome = 'teacher') AS teachers,
               coalesce(sum(judged), 0)::BIGINT AS judged, coalesce(sum(correct), 0) AS correct
        FROM matches LEFT JOIN played USING (match_id) WHERE generation <= $last GROUP BY ALL ORDER BY ALL
    """,
    "evolutions": """
        SELECT generation, role, removed_id, child_id, parent_ids, operator, removed_fitness
        FROM evolutions WHERE generation <= $last ORDER BY ALL
    """,
    "averages": """
        SELECT generation, role, count(*) AS members, any_value(share) AS share, avg(distance) AS distance,
               avg(energy_kept) AS energy_kept
        FROM averages WHERE generation <= $last GROUP BY ALL ORDER BY ALL
    """,
    "hyperparameters": """
        SELECT generation, role, name, exp(avg(ln(value))) AS typical, min(value) AS lowest, max(value) AS highest
        FROM (UNPIVOT (
            SELECT h.generation, m.role, h.learning_rate, h.temperature, h.replay
            FROM hyperparameters h JOIN members m USING (member_id) WHERE h.generation <= $last
        ) ON learning_rate, temperature, replay INTO NAME name VALUE value)
        GROUP BY ALL ORDER BY ALL
    """,
    # A role has a score where all of it was scored: those that lived after the generation, or those that played in it.
    "evaluations": """
        WITH living AS (
            SELECT generation, member_id, count(*) OVER (PARTITION BY generation, role) AS n FROM tables.population
        ), played AS (
            SELECT generation, member_id, count(*) OVER (PARTITION BY generation, role) AS n FROM tables.ratings
        )
        SELECT e.generation, e.suite, concat_ws(', ', e.benchmark, e.metric,
               CASE WHEN e.temperature > 0 THEN 'T ' || e.temperature END, e.part) AS benchmark, m.role,
               avg(e.score) AS score, min(e.score) AS lowest, max(e.score) AS highest
        FROM tables.evaluations e LEFT JOIN members m USING (member_id)
        LEFT JOIN living l USING (generation, member_id) LEFT JOIN played p USING (generation, member_id)
        WHERE e.generation <= $last GROUP BY ALL
        HAVING m.role IS NULL OR count(l.n) = any_value(l.n) OR count(p.n) = any_value(p.n)
        ORDER BY ALL
    """,
    "stages": """
        SELECT generation, stage, max(started_at) AS started_at, sum(seconds) AS seconds,
               coalesce(sum(seconds_before), 0) AS before, max(key) AS key
        FROM stages WHERE generation <= $last GROUP BY ALL ORDER BY generation, started_at
    """,
    "metrics": "SELECT generation, stage, name, value FROM tables.metrics WHERE generation <= $last ORDER BY ALL",
}

# Of every type the newest problem of each difficulty, among the last three generations.
SAMPLED = """
    WITH recent AS (
        SELECT problem_id, generation, problem_type, solve_rate, n_attempts,
               CASE WHEN solve_rate = 0 THEN 'never solved' WHEN solve_rate = 1 THEN 'always solved'
                    WHEN solve_rate <= 0.25 THEN 'hard' ELSE 'sometimes solved' END AS difficulty,
               row_number() OVER (PARTITION BY problem_type, difficulty
                                  ORDER BY generation DESC, novelty DESC, problem_id) AS place
        FROM problems WHERE generation BETWEEN $last - 2 AND $last AND solve_rate IS NOT NULL AND teacher_id <> 'anchor'
    )
    SELECT problem_id, difficulty FROM recent WHERE place = 1 ORDER BY problem_type, solve_rate
"""
PROPOSED = """
    SELECT q.problem_id, q.teacher_id, q.problem_type, q.program, q.inputs, q.outputs, q.message,
           q.solve_rate, q.n_attempts, p.prompt, p.completion, p.reward
    FROM problems q JOIN proposals p USING (proposal_id)
    WHERE q.generation BETWEEN $last - 2 AND $last AND list_contains($ids, q.problem_id)
"""
ATTEMPTED = """
    SELECT problem_id, attempt_id, student_id, prompt, completion, verdict, reward
    FROM attempts WHERE generation BETWEEN $last - 2 AND $last AND list_contains($ids, problem_id) ORDER BY attempt_id
"""


@dataclass(frozen=True, slots=True)
class SampleProblem:
    """A problem with its proposal and every attempt at it."""

    difficulty: str
    problem: Row
    attempts: Rows


@dataclass(frozen=True, slots=True)
class Figures:
    """One run's rows, by the names of `QUERIES`, up to its last whole generation.

    Attributes:
        last: the last generation whose members have learnt; 0 before the first.
        samples: empty unless requested.
    """

    run: Run
    last: int
    rows: Mapping[str, Rows]
    samples: tuple[SampleProblem, ...] = ()

    def __getitem__(self, name: str) -> Rows:
        return self.rows[name]

    @property
    def generations(self) -> range:
        """The generations that were played."""
        return range(1, self.last + 1)

    @property
    def done(self) -> int:
        """The number of generations whose last stage was made: a killed run may have learnt in one more."""
        last_stage = {"generation": self.last, "stage": stages_of(self.last)[-1].name}
        ended = any(last_stage.items() <= row.items() for row in self["stages"])
        return self.last if ended else max(self.last - 1, 0)

    @property
    def target(self) -> int:
        """The generation count that the run goes on to."""
        return max(self.run.config.run.generations, self.last)

    def types(self) -> list[str]:
        """The problem types that were proposed, in the order of the configuration."""
        seen = {row["problem_type"] for row in self["figures_type"]}
        order = self.run.config.propose.types
        return sorted(seen, key=lambda name: (order.index(name) if name in order else len(order), name))

    def roles(self) -> list[str]:
        """The roles that members have, teachers first."""
        return sorted({row["role"] for row in self["members"]}, reverse=True)

    def learners(self) -> list[str]:
        """The roles in which members play, teachers first; a solo member plays both."""
        return sorted({row["role"] for row in self["figures_member"]}, reverse=True)


def read_figures(directory: Path, samples: bool = True) -> Figures:
    """Read what a report of the run shows.

    Raises:
        RunDirectoryError: it is not a run directory.
        ArtifactError: its catalogue cannot be built.
    """
    run = Run.open(directory)
    with Catalogue(run.directory) as catalogue:
        last = catalogue.rows(LAST)[0]["last"]
        rows = {name: catalogue.rows(sql, {"last": last}) for name, sql in QUERIES.items()}
        return Figures(run, last, rows, _samples(catalogue, last) if samples else ())


def _samples(catalogue: Catalogue, last: int) -> tuple[SampleProblem, ...]:
    chosen = {row["problem_id"]: row["difficulty"] for row in catalogue.rows(SAMPLED, {"last": last})}
    which = {"last": last, "ids": list(chosen)}
    problems = {row["problem_id"]: row for row in catalogue.rows(PROPOSED, which)}
    attempts: dict[str, list[Row]] = {problem_id: [] for problem_id in chosen}
    for row in catalogue.rows(ATTEMPTED, which):
        attempts[row["problem_id"]].append(row)
    return tuple(
        SampleProblem(difficulty, problems[key], attempts[key]) for key, difficulty in chosen.items()
    )
