"""The views of the data contract: which tables each one joins, and where each column comes from."""

from __future__ import annotations

from dataclasses import replace

from populora_core.store.columns import FLOAT, INT, LOGPROBS, LONG, TEXT, TOKENS, Column, View, ViewColumn
from populora_core.store.figure_views import FIGURES, OWN_PROBLEMS, RUNS, SPENT
from populora_core.store.manifest_tables import MANIFEST_TABLES
from populora_core.store.record_tables import RECORD_TABLES
from populora_core.store.sql import STEPS_TAKEN
from populora_core.store.tables import TABLES

_SOURCES = TABLES | MANIFEST_TABLES | RECORD_TABLES


def _of(table: str, names: str) -> tuple[ViewColumn, ...]:
    """Columns of the view's own table."""
    return tuple(ViewColumn(_SOURCES[table][name], f"{table}.{name}") for name in names.split())


def _joined(table: str, names: str) -> tuple[ViewColumn, ...]:
    """Columns of a later stage's table: null until that stage is committed."""
    return tuple(
        ViewColumn(replace(item.column, nullable=True), item.expression) for item in _of(table, names)
    )


def _over(name: str, meaning: str, first: tuple[ViewColumn, ...], base: str, **joins: str) -> View:
    """A view of a table and of those that join it, each by the given key.

    After the columns that are named it shows all others of these tables but token ids and log-probabilities.
    """
    parts = [f"LEFT JOIN tables.{table} AS {table} USING ({key})" for table, key in joins.items()]
    shown = {item.column.name: item for item in first}
    for table in (base, *joins):
        for column in _SOURCES[table]:
            if column.name not in shown and column.type not in (TOKENS, LOGPROBS):
                shown[column.name] = (_of if table == base else _joined)(table, column.name)[0]
    return View(name, meaning, " ".join([f"tables.{base} AS {base}", *parts]), tuple(shown.values()))


def _whole(table: str, *last: ViewColumn) -> View:
    """A view that shows one table as it is, and these columns at the end."""
    names = " ".join(column.name for column in _SOURCES[table])
    return _over(table, _SOURCES[table].meaning, (*_of(table, names), *last), table)


_MEMBERS = """(
    SELECT DISTINCT ON (member_id) * FROM tables.population ORDER BY member_id, generation
) AS population LEFT JOIN (
    SELECT removed_id AS member_id, min(generation) AS died_generation
    FROM tables.evolutions GROUP BY removed_id
) AS removals USING (member_id) LEFT JOIN (
    SELECT member_id, arg_max(path, generation) AS path, arg_max(sha256, generation) AS sha256
    FROM tables.adapters GROUP BY member_id
) AS newest USING (member_id)"""

_TOKENS = f"""(
    SELECT * FROM tables.updates FULL JOIN (
        SELECT generation, member_id, role, sum(prompt_tokens) AS prompt_tokens,
               sum(completion_tokens) AS generated_tokens
        FROM {SPENT} WHERE generation IN (SELECT generation FROM tables.updates) GROUP BY ALL
    ) USING (generation, member_id, role)
) AS updates JOIN (
    SELECT DISTINCT member_id, slot FROM tables.population
) AS population USING (member_id)"""


_COUNTS = (
    ("prompt_tokens", "Tokens of the prompts, one prompt for every completion.", "updates.prompt_tokens"),
    ("generated_tokens", "Tokens of the completions.", "updates.generated_tokens"),
    ("trained_tokens", "Tokens of the completions with an advantage.", "updates.tokens"),
    ("updates", "Policy-gradient steps: 0 where there was nothing to learn from.", STEPS_TAKEN),
)


def _count(name: str, meaning: str, expression: str) -> ViewColumn:
    """Declare a column with the sum over one generation, 0 where nothing was recorded."""
    return ViewColumn(Column(name, LONG, meaning), f"coalesce(({expression})::BIGINT, 0)")


def _cumulative(count: ViewColumn) -> ViewColumn:
    """The count since the first generation, of the slot: a child goes on where the member before it ended."""
    column = replace(
        count.column,
        name=f"cumulative_{count.column.name}",
        meaning=f"Sum of `{count.column.name}` of the slot in this role since the first generation.",
    )
    window = "PARTITION BY updates.role, population.slot ORDER BY updates.generation"
    return ViewColumn(column, f"(sum({count.expression}) OVER ({window}))::BIGINT")


_COVERAGE = f"""(
    SELECT generation, problem_type, count(*)::INTEGER AS problems,
           count(DISTINCT cell)::INTEGER AS cells,
           count(DISTINCT cell) FILTER (generation = cell_since)::INTEGER AS new_cells,
           count(DISTINCT constructs)::INTEGER AS construct_sets,
           count(DISTINCT constructs) FILTER (generation = constructs_since)::INTEGER AS new_construct_sets,
           avg(novelty) AS mean_novelty, avg(lines_of_code) AS mean_lines_of_code
    FROM (
        SELECT *, min(generation) OVER (PARTITION BY problem_type, cell) AS cell_since,
               min(generation) OVER (PARTITION BY problem_type, constructs) AS constructs_since
        FROM (SELECT *, string_split(cell, '-')[-1] AS constructs FROM {OWN_PROBLEMS})
    )
    GROUP BY generation, problem_type
) AS coverage"""


_LEVEL = "try_cast(regexp_extract({}, '^level (\\d+)$', 1) AS INTEGER)"

# The mean over a suite's benchmarks has a row of its own where there are several; where there is one, it is its own.
_EVALUATIONS = """(
    FROM tables.evaluations UNION ALL
    SELECT * REPLACE ('all' AS benchmark) FROM tables.evaluations WHERE (generation, suite, part) IN (
        SELECT (generation, suite, part) FROM tables.evaluations
        GROUP BY generation, suite, part HAVING count(DISTINCT benchmark) = 1
    ) AND benchmark <> 'all'
) AS evaluations"""


def _at_8(name: str, meaning: str, rule: str) -> ViewColumn:
    """Another metric's score of the same player, benchmark and temperature, on every row of these."""
    window = "PARTITION BY generation, member_id, suite, part, benchmark, temperature"
    return ViewColumn(
        Column(name, FLOAT, meaning, nullable=True),
        f"max(evaluations.score) FILTER ({rule}) OVER ({window})",
    )


_AT_8 = (
    _at_8(
        "mean_at_8",
        "Score by `pass@1` at this temperature where problems have eight completions or more; else null.",
        "evaluations.metric = 'pass@1' AND evaluations.attempts >= 8",
    ),
    _at_8(
        "pass_at_8",
        "Score by `pass@8` at this temperature; null where the suite does not ask for it.",
        "evaluations.metric = 'pass@8'",
    ),
)

_LEVEL_OF = ViewColumn(
    Column("level", INT, "Number of a stratum that is a level; null of any other.", nullable=True),
    _LEVEL.format("evaluation_items.stratum"),
)

_EVALUATION_STRATA = f"""(
    SELECT *, greatest(centre - 1.96 * sqrt(centre * (1 - centre) / (n + 4)), 0) AS low,
           least(centre + 1.96 * sqrt(centre * (1 - centre) / (n + 4)), 1) AS high
    FROM (
        SELECT generation, member_id, suite, part, benchmark, temperature, stratum,
               {_LEVEL.format("stratum")} AS level,
               count(*)::INTEGER AS n, avg(solved) AS score, (sum(solved) + 2) / (count(*) + 4) AS centre
        FROM (
            SELECT generation, member_id, suite, part, benchmark, temperature, stratum, item_id,
                   avg(correct::INTEGER) AS solved
            FROM tables.evaluation_items WHERE correct IS NOT NULL AND stratum <> '' GROUP BY ALL
        ) GROUP BY generation, member_id, suite, part, benchmark, temperature, stratum
    )
) AS strata"""


def _so_far(count: str) -> str:
    """The sum of a count over this and all earlier generations."""
    return f"sum(coverage.{count}) OVER (PARTITION BY problem_type ORDER BY generation)::INTEGER"


_DECLARED = (
    View(
        "members",
        "Every member that ever lived, with its newest adapter.",
        _MEMBERS,
        (
            *_of("population", "member_id role slot born_generation"),
            ViewColumn(
                Column(
                    "died_generation", INT, "Generation in which it was removed; null while it lives.", True
                ),
                "removals.died_generation",
            ),
            *_of("population", "parent_ids operator"),
            ViewColumn(
                Column(
                    "adapter_path", TEXT, "Its newest adapter folder, relative to the run directory.", True
                ),
                "newest.path",
            ),
            ViewColumn(
                Column("adapter_sha256", TEXT, "sha256 of that adapter's weights file.", True),
                "newest.sha256",
            ),
        ),
    ),
    _whole("adapters"),
    _over(
        "matches",
        "Matches and how they ended.",
        (
            *_of("matches", "generation match_id teacher_id student_id p_student_win weight"),
            *_joined("match_results", "outcome"),
            ViewColumn(
                Column(
                    "solve_rate",
                    FLOAT,
                    "Deprecated: the same as `solve_rate_where_solved`; `problems.solve_rate` counts all attempts.",
                    True,
                ),
                "match_results.solve_rate",
            ),
            *_joined("match_results", "n_problems"),
            ViewColumn(
                replace(TABLES["match_results"]["solve_rate"], name="solve_rate_where_solved"),
                "match_results.solve_rate",
            ),
        ),
        "matches",
        match_results="match_id",
    ),
    _over(
        "proposals",
        "Proposals with verdict, reward and advantage.",
        (
            *_of("proposals", "generation proposal_id match_id teacher_id problem_type reference_ids"),
            *_of("proposals", "prompt completion prompt_tokens completion_tokens"),
            *_joined("proposal_checks", "verdict problem_id"),
            *_joined("proposal_grades", "reward"),
            *_joined("proposal_advantages", "advantage"),
        ),
        "proposals",
        proposal_checks="proposal_id",
        proposal_grades="proposal_id",
        proposal_advantages="proposal_id",
    ),
    _over(
        "problems",
        "Problems and how they were solved.",
        (
            *_of(
                "problems", "problem_id generation proposal_id teacher_id problem_type program inputs outputs"
            ),
            *_of(
                "problems",
                "message ast_depth cyclomatic_complexity lines_of_code variable_count cell chance slack novelty",
            ),
            *_joined("problem_results", "solve_rate n_attempts"),
            *_of("problems", "program_key"),
            ViewColumn(
                Column(
                    "level",
                    FLOAT,
                    "Statements that matter, beside `def` and `return`: without the share that slack says can be left "
                    "out. Where slack was not measured, all count.",
                ),
                "greatest((problems.lines_of_code - 1) * (1 - coalesce(problems.slack, 0)) - 1, 0)",
            ),
        ),
        "problems",
        problem_results="problem_id",
    ),
    View(
        "coverage",
        "How much of the problem space each generation's teachers reach: cells also grow with mere length, sets of "
        "constructs and novelty do not.",
        _COVERAGE,
        (
            ViewColumn(TABLES["problems"]["generation"], "coverage.generation"),
            ViewColumn(TABLES["problems"]["problem_type"], "coverage.problem_type"),
            ViewColumn(Column("problems", INT, "Problems of the generation and type."), "coverage.problems"),
            ViewColumn(Column("cells", INT, "Different cells among them."), "coverage.cells"),
            ViewColumn(
                Column("new_cells", INT, "Of these, cells that no earlier problem of the type is in."),
                "coverage.new_cells",
            ),
            ViewColumn(
                Column("cumulative_cells", INT, "Cells of the type reached so far."), _so_far("new_cells")
            ),
            ViewColumn(
                Column("construct_sets", INT, "Different sets of constructs, whatever the size."),
                "coverage.construct_sets",
            ),
            ViewColumn(
                Column("cumulative_construct_sets", INT, "Sets of constructs of the type reached so far."),
                _so_far("new_construct_sets"),
            ),
            ViewColumn(Column("mean_novelty", FLOAT, "Mean of `problems.novelty`."), "coverage.mean_novelty"),
            ViewColumn(
                Column("mean_lines_of_code", FLOAT, "Mean of `problems.lines_of_code`."),
                "coverage.mean_lines_of_code",
            ),
        ),
    ),
    _over(
        "attempts",
        "Attempts with answer, verdict, reward and advantage.",
        (
            *_of(
                "attempts",
                "generation attempt_id problem_id match_id student_id sample_index prompt completion",
            ),
            *_joined("attempt_grades", "answer verdict reward"),
            *_joined("attempt_advantages", "advantage"),
            *_of("attempts", "completion_tokens prompt_tokens finish_reason"),
        ),
        "attempts",
        attempt_grades="attempt_id",
        attempt_advantages="attempt_id",
    ),
    _over(
        "updates",
        TABLES["updates"].meaning,
        (
            *_of(
                "updates",
                "generation member_id role tokens loss grad_norm entropy clip_fraction learning_rate",
            ),
            *_joined("member_seconds", "seconds"),
            *_of("updates", "n_rows logprob_mismatch largest_mismatch steps kl"),
        ),
        "updates",
        member_seconds="generation, member_id",
    ),
    View(
        "tokens",
        "What each member cost in each role that it played: tokens read, written and trained on.",
        _TOKENS,
        (
            *_of("updates", "generation member_id role"),
            *_of("population", "slot"),
            *(_count(*declared) for declared in _COUNTS),
            *(_cumulative(_count(*declared)) for declared in _COUNTS),
        ),
    ),
    _over(
        "ratings",
        TABLES["ratings"].meaning,
        (
            *_of("ratings", "generation member_id mu sigma fitness"),
            *_joined("external_fitness", "external_fitness"),
            *_of("ratings", "eligible role productive_generation"),
        ),
        "ratings",
        external_fitness="generation, member_id",
    ),
    _whole("averages"),
    _whole("hyperparameters"),
    _whole("evolutions"),
    View(
        "evaluations",
        TABLES["evaluations"].meaning
        + " Every suite has rows of the benchmark `all`: the mean over its benchmarks.",
        _EVALUATIONS,
        (*_of("evaluations", " ".join(column.name for column in TABLES["evaluations"])), *_AT_8),
    ),
    _whole("evaluation_items", _LEVEL_OF),
    View(
        "evaluation_strata",
        "Scores of every player by stratum of a suite: the share of its problems' answers that are right.",
        _EVALUATION_STRATA,
        (
            *(
                replace(item, expression=f"strata.{item.column.name}")
                for item in _of(
                    "evaluation_items", "generation member_id suite part benchmark temperature stratum"
                )
            ),
            replace(_LEVEL_OF, expression="strata.level"),
            ViewColumn(Column("n", INT, "Problems with a judged answer."), "strata.n"),
            ViewColumn(
                Column("score", FLOAT, "Mean over them of the share of right answers."), "strata.score"
            ),
            *(
                ViewColumn(
                    Column(name, FLOAT, f"{end} end of its 95 % interval, by the rule of Agresti and Coull."),
                    f"strata.{name}",
                )
                for name, end in (("low", "Lower"), ("high", "Upper"))
            ),
        ),
    ),
    _whole("stages"),
    *FIGURES,
    RUNS,
    _whole("settings"),
)

VIEWS: dict[str, View] = {view.name: view for view in _DECLARED}
