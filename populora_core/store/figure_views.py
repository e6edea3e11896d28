"""The figures of a run, each defined once: of a generation, of its problem types, of its members, and of the whole.

Whoever shows a figure reads it here. A row whose verdict is `infrastructure` says nothing about anyone: counts of rows
and of tokens hold it, means and shares leave it out, and so does the number of judged rows that they are taken over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from populora_core.store.columns import FLOAT, INT, LONG, TEXT, Column, View, ViewColumn
from populora_core.store.manifest import EVALUATION
from populora_core.store.record_tables import RECORD_TABLES
from populora_core.store.shared_columns import GENERATION, MEMBER_ID, PLAYED, PROBLEM_TYPE
from populora_core.store.sql import STEPS_TAKEN
from populora_core.store.tables import TABLES
from populora_core.support.ids import ANCHOR

SPENT = """(
    SELECT generation, teacher_id AS member_id, 'teacher' AS role, verdict, reward, prompt_tokens, completion_tokens
    FROM proposals
    UNION ALL
    SELECT generation, student_id, 'student', verdict, reward, prompt_tokens, completion_tokens FROM attempts
)"""
"""Every completion by the role in which the member wrote it."""

OWN_PROBLEMS = f"(SELECT * FROM problems WHERE teacher_id <> '{ANCHOR}')"
"""The teachers' proposals that became problems: figures of problems leave anchors out."""

_JUDGED = "verdict <> 'infrastructure'"  # null, which no FILTER takes, before the verifier has looked
_COUNT, _COUNT_JUDGED = "count(*)", f"count(*) FILTER ({_JUDGED})"
_LENGTH = f"avg(completion_tokens) FILTER ({_JUDGED})"


def _share(condition: str) -> str:
    """The share of the judged rows for which the condition holds."""
    return f"avg(({condition})::INT) FILTER ({_JUDGED})"


_Figure = tuple[str, pa.DataType, str, str]


@dataclass(frozen=True, slots=True)
class _Part:
    """Figures that are aggregates over the same rows: (name, type, meaning, SQL) of each.

    Counts are whole numbers, 0 without a row; means and shares are floats, null where there is nothing to average.
    """

    name: str
    rows: str
    figures: tuple[_Figure, ...]

    def by(self, keys: str) -> str:
        """The subquery with one row for each value of the keys."""
        found = ", ".join(f"{sql} AS {name}" for name, _, _, sql in self.figures)
        return f"(SELECT {keys}, {found} FROM {self.rows} GROUP BY {keys}) AS {self.name}"

    def __iter__(self) -> Iterator[ViewColumn]:
        """The figures as a view shows them."""
        for name, kind, meaning, _ in self.figures:
            column, value = Column(name, kind, meaning, nullable=kind is FLOAT), f"{self.name}.{name}"
            yield ViewColumn(column, value if kind is FLOAT else f"coalesce({value}, 0)::{column.sql_type}")


def _part(name: str, rows: str, *figures: _Figure) -> _Part:
    return _Part(name, rows, figures)


_PROPOSED = _part(
    "proposed",
    "proposals",
    ("proposals", INT, "Proposals.", _COUNT),
    ("proposals_judged", INT, "Those whose verdict is not `infrastructure`.", _COUNT_JUDGED),
    ("valid", FLOAT, "Share of the judged proposals that became problems.", _share("verdict = 'valid'")),
    (
        "duplicates",
        FLOAT,
        "Share of them that repeat an earlier problem.",
        _share("verdict = 'duplicate'"),
    ),
    ("teacher_reward", FLOAT, "Mean reward of the proposals that have one.", "avg(reward)"),
    ("proposal_length", FLOAT, "Mean tokens of the judged proposals.", _LENGTH),
    ("proposal_prompt_tokens", LONG, "Tokens of the proposals' prompts.", "sum(prompt_tokens)"),
    ("proposal_tokens", LONG, "Tokens of the proposals.", "sum(completion_tokens)"),
)
_SOLVED = _part(
    "solved",
    OWN_PROBLEMS,
    ("problems", INT, "Problems of teachers.", _COUNT),
    ("problems_judged", INT, "Problems with a judged attempt.", "count(solve_rate)"),
    ("solve_rate", FLOAT, "Mean of `problems.solve_rate` over these.", "avg(solve_rate)"),
    ("solve_rate_spread", FLOAT, "Its standard deviation over these.", "stddev_pop(solve_rate)"),
    (
        "learnable",
        FLOAT,
        "Share of these that were solved sometimes but not always.",
        "avg((solve_rate > 0 AND solve_rate < 1)::INT)",
    ),
    ("never_solved", FLOAT, "Share of these that no attempt solved.", "avg((solve_rate = 0)::INT)"),
    ("always_solved", FLOAT, "Share of these that every attempt solved.", "avg((solve_rate = 1)::INT)"),
    *(
        (name, FLOAT, f"Mean of `problems.{name}`.", f"avg({name})")
        for name in ("ast_depth", "cyclomatic_complexity", "lines_of_code", "variable_count", "novelty")
    ),
    ("distinct_programs", INT, "Programs that differ in normal form.", "count(DISTINCT program_key)"),
)
_ANCHORED = _part(
    "anchored",
    f"(SELECT * FROM problems WHERE teacher_id = '{ANCHOR}')",
    ("anchors", INT, "Anchors: problems from outside the population, or asked again.", _COUNT),
    (
        "anchor_solve_rate",
        FLOAT,
        "Mean of `problems.solve_rate` over those with a judged attempt.",
        "avg(solve_rate)",
    ),
)
_ATTEMPTED = _part(
    "attempted",
    "attempts",
    ("attempts", INT, "Attempts, those at anchors too.", _COUNT),
    ("attempts_judged", INT, "Those whose verdict is not `infrastructure`.", _COUNT_JUDGED),
    ("correct", FLOAT, "Share of the judged attempts that are correct.", _share("verdict = 'correct'")),
    ("student_reward", FLOAT, "Mean reward of the attempts that have one.", "avg(reward)"),
    ("attempt_length", FLOAT, "Mean tokens of the judged attempts.", _LENGTH),
    (
        "tokens_per_correct",
        FLOAT,
        "Tokens of the judged attempts for each correct one.",
        f"sum(completion_tokens) FILTER ({_JUDGED}) / nullif(count(*) FILTER (verdict = 'correct'), 0)",
    ),
    ("attempt_prompt_tokens", LONG, "Tokens of the attempts' prompts.", "sum(prompt_tokens)"),
    ("attempt_tokens", LONG, "Tokens of the attempts.", "sum(completion_tokens)"),
)
_ATTEMPTED_BY_TYPE = replace(
    _ATTEMPTED,
    rows="attempts JOIN (SELECT generation, problem_id, problem_type FROM problems) USING (generation, problem_id)",
)
_REACHED = _part(
    "reached",
    # Generations without a problem too, so that what was reached so far is known in each.
    "(SELECT DISTINCT generation FROM tables.matches) LEFT JOIN coverage USING (generation)",
    ("cells", INT, "Different cells of each type, summed over types.", "sum(coalesce(cells, 0))"),
    ("new_cells", INT, "Those that no earlier problem of the type is in.", "sum(coalesce(new_cells, 0))"),
    (
        "cumulative_cells",
        INT,
        "Sum of `new_cells` since the first generation.",
        "sum(sum(coalesce(new_cells, 0))) OVER (ORDER BY generation)",
    ),
)
_TRAINED = _part(
    "trained",
    "tables.updates",
    (
        "members",
        INT,
        "Members that learnt: those that made a step.",
        f"count(DISTINCT member_id) FILTER ({STEPS_TAKEN} > 0)",
    ),
    ("updates", INT, "Policy-gradient steps, of all members and roles.", f"sum({STEPS_TAKEN})"),
    ("trained_tokens", LONG, "Tokens trained on, of all members and roles.", "sum(tokens)"),
)
_TOOK = _part(
    "took",
    # The name of a stage beside the loop has a dash, no other. It may be made days after its generation.
    "(FROM tables.stages WHERE NOT contains(stage, '-'))",
    (
        "seconds",
        FLOAT,
        "Wall-clock seconds in its stages, without those beside the loop, such as `evaluate:SUITE`.",
        "sum(seconds)",
    ),
    (
        "wall_seconds",
        FLOAT,
        "The same with those before each of them: what a clock shows from the end of the generation before, less what "
        "was done beside the loop.",
        "sum(seconds + coalesce(seconds_before, 0))",
    ),
)
_WROTE = _part(
    "wrote",
    SPENT,
    ("completions", INT, "Proposals, or attempts, by the role.", _COUNT),
    ("completions_judged", INT, "Those whose verdict is not `infrastructure`.", _COUNT_JUDGED),
    (
        "success",
        FLOAT,
        "Share of these that are valid, or correct.",
        _share("verdict IN ('valid', 'correct')"),
    ),
    ("reward", FLOAT, "Mean reward of the completions that have one.", "avg(reward)"),
    ("length", FLOAT, "Mean tokens of the judged completions.", _LENGTH),
)

_OF_TYPE = (_PROPOSED, _SOLVED, _ATTEMPTED, _ANCHORED)
_OF_GENERATION = (*_OF_TYPE, _REACHED, _TRAINED, _TOOK)
_SAMPLED = ("proposal_prompt_tokens", "proposal_tokens", "attempt_prompt_tokens", "attempt_tokens")
_PLAYING = """(
    SELECT generation, teacher_id AS member_id, 'teacher' AS role FROM tables.matches
    UNION SELECT generation, student_id, 'student' FROM tables.matches
) AS playing"""


def _joined(keys: str, first: _Part, *others: _Part) -> str:
    joins = [f"LEFT JOIN {part.by(keys)} USING ({keys})" for part in others]
    return " ".join([first.by(keys), *joins])


def _of(table: str, names: str) -> tuple[ViewColumn, ...]:
    """Columns of a later stage's table: null until that stage is committed."""
    return tuple(
        ViewColumn(replace(TABLES[table][name], nullable=True), f"{table}.{name}") for name in names.split()
    )


def _of_steps(item: ViewColumn) -> ViewColumn:
    """The column of `updates` without the zeros of members that made no step."""
    meaning = f"{item.column.meaning} Null for a member that made no step."
    return ViewColumn(
        replace(item.column, meaning=meaning), f"CASE WHEN {STEPS_TAKEN} > 0 THEN {item.expression} END"
    )


FIGURES = (
    View(
        "figures_generation",
        "What each generation came to, over all problem types.",
        _joined("generation", *_OF_GENERATION),
        (
            ViewColumn(GENERATION, "proposed.generation"),
            *chain.from_iterable(_OF_GENERATION),
            ViewColumn(
                Column("sampled_tokens", LONG, "Tokens read and written, of all proposals and attempts."),
                f"({' + '.join(f'coalesce({column}, 0)' for column in _SAMPLED)})::BIGINT",
            ),
        ),
    ),
    View(
        "figures_type",
        "What each problem type came to in a generation.",
        _joined("generation, problem_type", _PROPOSED, _SOLVED, _ATTEMPTED_BY_TYPE, _ANCHORED),
        (
            ViewColumn(GENERATION, "proposed.generation"),
            ViewColumn(PROBLEM_TYPE, "proposed.problem_type"),
            *chain.from_iterable(_OF_TYPE),
        ),
    ),
    View(
        "figures_member",
        "How each member that played a match in a generation did, in each of its roles.",
        f"{_PLAYING} LEFT JOIN {_WROTE.by('generation, member_id, role')} USING (generation, member_id, role) "
        "LEFT JOIN tables.updates AS updates USING (generation, member_id, role) "
        "LEFT JOIN (SELECT * EXCLUDE (role) FROM tables.ratings) AS ratings USING (generation, member_id)",
        (
            ViewColumn(GENERATION, "playing.generation"),
            ViewColumn(MEMBER_ID, "playing.member_id"),
            ViewColumn(PLAYED, "playing.role"),
            *_WROTE,
            *map(_of_steps, _of("updates", "loss grad_norm")),
            *_of("updates", "entropy"),
            *_of("ratings", "mu sigma fitness eligible"),
        ),
    ),
)
"""Views over the views of proposals, problems and attempts, so they are declared after these."""

# Scores are of the base and of every living member that solves, else of neither.
_RUNS = f"""tables.runs AS runs CROSS JOIN (
    SELECT coalesce(max(generation), 0) AS played FROM tables.updates
) AS playing CROSS JOIN (
    SELECT coalesce(sum(seconds), 0) AS seconds FROM tables.stages
) AS took LEFT JOIN (
    SELECT generation, suite, avg(score) FILTER (member_id = 'base') AS base_score,
           avg(score) FILTER (solvers IS NOT NULL) AS solvers_score
    FROM evaluations LEFT JOIN (
        SELECT generation, member_id, count(*) OVER (PARTITION BY generation) AS solvers
        FROM tables.population WHERE role <> 'teacher'
    ) USING (generation, member_id) LEFT JOIN (
        SELECT generation, substr(stage, {len(EVALUATION) + 1}) AS suite, started_at
        FROM tables.stages WHERE starts_with(stage, '{EVALUATION}')
    ) USING (generation, suite)
    WHERE part = 'test' AND benchmark = 'all' AND suite NOT IN ('yardstick', 'validity')
    GROUP BY generation, suite, metric, temperature
    HAVING bool_or(member_id = 'base') AND count(solvers) = any_value(solvers)
    ORDER BY generation DESC, max(started_at) DESC, suite,
             metric NOT LIKE 'pass@%', length(metric), metric, temperature LIMIT 1
) AS scored ON true"""


def _of_run(name: str, kind: pa.DataType, meaning: str, expression: str, nullable: bool = True) -> ViewColumn:
    return ViewColumn(Column(name, kind, meaning, nullable), expression)


RUNS = View(
    "runs",
    "What the run is, and what it came to.",
    _RUNS,
    (
        *(ViewColumn(column, f"runs.{column.name}") for column in RECORD_TABLES["runs"]),
        _of_run("played", INT, "The last generation whose members have learnt.", "playing.played", False),
        _of_run("seconds", FLOAT, "Wall-clock seconds in all its stages.", "took.seconds", False),
        _of_run(
            "suite",
            TEXT,
            "The held-out suite on which the base and every living member that solves were scored after the newest "
            "generation; of several the one begun last; null for none.",
            "scored.suite",
        ),
        _of_run("scored_generation", INT, "After which generation.", "scored.generation"),
        _of_run(
            "base_score",
            FLOAT,
            "Score of the base there: `pass@k` with the smallest k, at the lowest temperature.",
            "scored.base_score",
        ),
        _of_run(
            "solvers_score",
            FLOAT,
            "Mean score of those members, by the same metric.",
            "scored.solvers_score",
        ),
    ),
)
