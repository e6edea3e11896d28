"""What a report reads of a run: few, narrow queries over the views of the data contract, nothing else.

Rows are grouped by generation and whatever else a plot or a note tells apart; sums and counts rather than means, so
that they add up over generations, types and roles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from populora_core.runs.run import Run
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
    "problems": """
        SELECT generation, problem_type, count(*) AS n, count(solve_rate) AS solved_n,
               coalesce(sum(solve_rate), 0) AS solved_sum, coalesce(sum(solve_rate * solve_rate), 0) AS solved_squares,
               count(*) FILTER (solve_rate > 0 AND solve_rate < 1) AS learnable,
               count(*) FILTER (solve_rate = 0) AS never, count(*) FILTER (solve_rate = 1) AS always,
               sum(ast_depth)::BIGINT AS ast_depth, sum(cyclomatic_complexity)::BIGINT AS cyclomatic_complexity,
               sum(lines_of_code)::BIGINT AS lines_of_code, sum(variable_count)::BIGINT AS variable_count,
               sum(novelty) AS novelty
        FROM problems WHERE generation <= $last GROUP BY ALL ORDER BY ALL
    """,
    "coverage": """
        WITH first_seen AS (
            SELECT cell, min(generation) AS generation FROM problems WHERE generation <= $last GROUP BY cell
        ), fresh AS (SELECT generation, count(*) AS new_cells FROM first_seen GROUP BY generation)
        SELECT p.generation, count(*) AS n, count(DISTINCT program) AS programs, count(DISTINCT cell) AS cells,
               coalesce(any_value(f.new_cells), 0) AS new_cells
        FROM problems p LEFT JOIN fresh f USING (generation) WHERE p.generation <= $last GROUP BY ALL ORDER BY ALL
    """,
    "proposals": """
        SELECT generation, problem_type, verdict, count(*) AS n, count(reward) AS paid,
               coalesce(sum(reward), 0) AS reward, sum(prompt_tokens)::BIGINT AS prompt_tokens,
               sum(completion_tokens)::BIGINT AS completion_tokens
        FROM proposals WHERE generation <= $last GROUP BY ALL ORDER BY ALL
    """,
    "attempts": """
        SELECT a.generation, p.problem_type, p.teacher_id, a.student_id, a.verdict, count(*) AS n,
               count(a.reward) AS paid, coalesce(sum(a.reward), 0) AS reward,
               sum(a.prompt_tokens)::BIGINT AS prompt_tokens, sum(a.completion_tokens)::BIGINT AS completion_tokens
        FROM attempts a JOIN problems p USING (problem_id) WHERE a.generation <= $last GROUP BY ALL ORDER BY ALL
    """,
    "matches": """
        SELECT teacher_id, student_id, count(*) AS n, count(*) FILTER (outcome = 'student') AS students,
               count(*) FILTER (outcome = 'teacher') AS teachers
        FROM matches WHERE generation <= $last GROUP BY ALL ORDER BY ALL
    """,
    "updates": """
        SELECT generation, role, avg(entropy) AS entropy, min(entropy) AS lowest, max(entropy) AS highest,
               sum(tokens)::BIGINT AS tokens, avg(grad_norm) AS grad_norm, avg(clip_fraction) AS clip_fraction,
               avg(loss) AS loss
        FROM updates WHERE generation <= $last GROUP BY ALL ORDER BY ALL
    """,
    "evolutions": """
        SELECT generation, role, removed_id, child_id, parent_ids, operator, operator_parameters, removed_fitness
        FROM evolutions WHERE generation <= $last ORDER BY ALL
    """,
    "evaluations": """
        SELECT e.generation, e.suite, concat_ws(', ', e.benchmark, e.metric,
               CASE WHEN e.temperature > 0 THEN 'T ' || e.temperature END, e.part) AS benchmark, m.role,
               count(*) AS members, avg(e.score) AS score, min(e.score) AS lowest, max(e.score) AS highest
        FROM evaluations e LEFT JOIN members m USING (member_id)
        WHERE e.generation <= $last GROUP BY ALL ORDER BY ALL
    """,
    "stages": """
        SELECT generation, stage, max(started_at) AS started_at, sum(seconds) AS seconds, max(key) AS key
        FROM stages WHERE generation <= $last GROUP BY ALL ORDER BY generation, started_at
    """,
}

# Of every type the newest problem of each difficulty, among the last three generations.
SAMPLED = """
    WITH recent AS (
        SELECT problem_id, generation, problem_type, solve_rate, n_attempts,
               CASE WHEN solve_rate = 0 THEN 'never solved' WHEN solve_rate = 1 THEN 'always solved'
                    WHEN solve_rate <= 0.25 THEN 'hard' ELSE 'sometimes solved' END AS difficulty,
               row_number() OVER (PARTITION BY problem_type, difficulty
                                  ORDER BY generation DESC, novelty DESC, problem_id) AS place
        FROM problems WHERE generation BETWEEN $last - 2 AND $last AND solve_rate IS NOT NULL
    )
    SELECT problem_id, difficulty FROM recent WHERE place = 1 ORDER BY problem_type, solve_rate
"""
PROPOSED = """
    SELECT q.problem_id, q.generation, q.teacher_id, q.problem_type, q.program, q.inputs, q.outputs, q.message,
           q.solve_rate, q.n_attempts, q.novelty, p.prompt, p.completion, p.reward
    FROM problems q JOIN proposals p USING (proposal_id)
    WHERE q.generation BETWEEN $last - 2 AND $last AND list_contains($ids, q.problem_id)
"""
ATTEMPTED = """
    SELECT problem_id, attempt_id, student_id, prompt, completion, answer, verdict, reward
    FROM attempts WHERE generation BETWEEN $last - 2 AND $last AND list_contains($ids, problem_id) ORDER BY attempt_id
"""


@dataclass(frozen=True, slots=True)
class SampleProblem:
    """A problem with the proposal that it came from and every attempt at it."""

    difficulty: str
    problem: Row
    attempts: Rows


@dataclass(frozen=True, slots=True)
class Figures:
    """One run's rows, by the names of `QUERIES`, up to its last whole generation.

    Attributes:
        last: the last generation whose members have learnt; 0 before the first.
        samples: empty where they were not asked for.
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
    def target(self) -> int:
        """The generation count that the run goes on to."""
        return max(self.run.config.run.generations, self.last)

    def types(self) -> list[str]:
        """The problem types that were proposed, in the order of the configuration."""
        seen = {row["problem_type"] for row in self["proposals"]}
        order = self.run.config.propose.types
        return sorted(seen, key=lambda name: (order.index(name) if name in order else len(order), name))

    def roles(self) -> list[str]:
        """The roles that members have, teachers first."""
        return sorted({row["role"] for row in self["members"]}, reverse=True)

    def learners(self) -> list[str]:
        """The roles in which members learn, teachers first; a solo member learns in both."""
        return sorted({row["role"] for row in self["updates"]}, reverse=True)


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
