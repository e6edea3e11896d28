"""The verified problems of runs as a data set in the hub's layout: problems, right answers, preference pairs, a card.

    OUT/README.md                        the card, whose header names the configurations
    OUT/problems/train.parquet           a row per problem, with solve rates and lineage
    OUT/supervised/train.parquet         prompts with correct, verified answers, thought included
    OUT/preferences/train.parquet        prompts with a right and a wrong answer of the same problem
    OUT/*/test.parquet                   the same of a share of the programs; no file where a split has no row

``datasets.load_dataset(OUT)`` loads the problems, a second argument another configuration, and so does any reader of
Parquet. Which split a program is in follows from the program alone: two data sets of one `--test-share` never disagree.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from duckdb import DuckDBPyConnection

from populora_core.benchmarks.heldout import HeldOut, held_out, kept_out
from populora_core.config.load import Config
from populora_core.problems.dialects import DIALECTS, Dialect, dialect, thought_of
from populora_core.problems.model import Problem
from populora_core.problems.normal import program_key
from populora_core.problems.parsing import ProgramSyntaxError
from populora_core.problems.types import PROBLEM_TYPES, AnswerForm
from populora_core.report.model_card import license_of
from populora_core.runs.run import Run, suites
from populora_core.sandbox.jobs import Limits
from populora_core.store.catalogue import Catalogue, run_labels
from populora_core.store.sql import refusal_told
from populora_core.support.aliases import Row
from populora_core.support.durable import new_folder, require_free
from populora_core.support.errors import RunDirectoryError
from populora_core.support.trust import VARIABLE, is_trusted
from populora_plugins.harvest.curriculum_card import card

CARD = "README.md"
TRAIN, TEST = SPLITS = ("train", "test")
TESTED = 0.1
"""Share of the programs that are kept for the split `test`."""

# Of problems with one type, program and inputs, in one run or in several, the first stands for all. What a fork took
# over counts where it was made, or if that run is not among these, in one of its forks.
COPIES = """
WITH elsewhere AS (
    SELECT run, generation, coalesce(generation <= forked_generation, false) AS taken_over
    FROM stages JOIN runs USING (run) WHERE stage = 'solve'
    QUALIFY taken_over AND row_number() OVER (PARTITION BY generation, key, started_at ORDER BY taken_over, run) > 1
)
SELECT run, problem_id, first_value(run) OVER same AS first_run, first_value(problem_id) OVER same AS first_id
FROM problems JOIN keyed USING (program) ANTI JOIN elsewhere USING (run, generation) WHERE n_attempts > 0
WINDOW same AS (PARTITION BY problem_type, key, inputs ORDER BY run, generation, problem_id)
"""
# Problems that pass the filters; a rate counts the attempts at every copy.
PROBLEMS = """
WITH judged AS (
    SELECT c.first_run AS run, c.first_id AS problem_id, a.run AS played_in, a.student_id, a.generation,
           count(*) FILTER (verdict = 'correct') AS correct, count(*) AS n
    FROM attempts a JOIN copies c USING (run, problem_id) WHERE verdict <> 'infrastructure' GROUP BY ALL
), by_student AS (
    SELECT run, problem_id, sum(correct) / sum(n) AS solve_rate, sum(n)::INTEGER AS n_attempts,
           list({run: played_in, student_id: student_id, generation: generation, solve_rate: correct / n, attempts: n}
                ORDER BY played_in, generation, student_id) AS students
    FROM judged GROUP BY ALL
), copied AS (SELECT first_run AS run, first_id AS problem_id, count(*)::INTEGER AS copies FROM copies GROUP BY ALL)
SELECT p.run, p.problem_id, p.generation, p.problem_type, p.program, p.inputs, p.outputs, p.message,
       round(p.level, 6) AS level, p.slack, p.lines_of_code, p.ast_depth, p.cyclomatic_complexity, p.chance, p.novelty,
       s.solve_rate, s.n_attempts, s.students, c.copies,
       p.teacher_id, m.parent_ids AS teacher_parents, m.operator AS teacher_operator, k.key AS program_key,
       nullif(regexp_extract(v.sandbox, '-python(.+)$', 1), '') AS python
FROM problems p JOIN by_student s USING (run, problem_id) JOIN copied c USING (run, problem_id)
JOIN keyed k USING (program)
LEFT JOIN members m ON m.run = p.run AND m.member_id = p.teacher_id
LEFT JOIN stages v ON v.run = p.run AND v.generation = p.generation AND v.stage = 'verify'
WHERE s.solve_rate BETWEEN $least AND $most AND p.lines_of_code BETWEEN $shortest AND $longest
      AND round(p.level, 6) BETWEEN $lowest AND $highest AND p.novelty >= $novelty
ORDER BY p.run, p.generation, p.problem_id
"""
# Answers to the problems that were taken, each wording once.
_ANSWERS = """
    SELECT c.first_run AS run, c.first_id AS problem_id, chosen.split, a.prompt, a.completion, a.verdict,
           min((a.run, a.generation, a.attempt_id)) AS place,
           first(a.answer ORDER BY a.run, a.generation, a.attempt_id) AS answer,
           first(a.student_id ORDER BY a.run, a.generation, a.attempt_id) AS student_id,
           first(a.run ORDER BY a.run, a.generation, a.attempt_id) AS student_run
    FROM attempts a JOIN copies c USING (run, problem_id)
    JOIN chosen ON chosen.run = c.first_run AND chosen.problem_id = c.first_id
    WHERE a.verdict IN ('correct', 'wrong') GROUP BY ALL
"""
SUPERVISED = f"""
SELECT run, problem_id, prompt, completion, answer, student_id, student_run, split FROM ({_ANSWERS})
WHERE verdict = 'correct' ORDER BY run, problem_id, place
"""
# Paired in order, as far as the fewer of both go.
PREFERENCES = f"""
WITH told AS (
    SELECT *, verdict = 'correct' AS good,
           row_number() OVER (PARTITION BY run, problem_id, prompt, verdict ORDER BY place) AS number
    FROM ({_ANSWERS})
)
SELECT r.run, r.problem_id, r.prompt, r.completion AS chosen, w.completion AS rejected, r.split
FROM told r JOIN told w USING (run, problem_id, prompt, number) WHERE r.good AND NOT w.good
ORDER BY r.run, r.problem_id, r.prompt, number
"""
MEMBERS = "SELECT run, member_id, parent_ids, operator, born_generation FROM members"
EXAMPLE = pa.struct([("input", pa.string()), ("output", pa.string())])
ANCESTOR = pa.struct(
    [
        ("member_id", pa.string()),
        ("parent_ids", pa.list_(pa.string())),
        ("operator", pa.string()),
        ("born_generation", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True)
class Filters:
    """Bounds that a problem must meet to be taken.

    Attributes:
        least, most: solve rates, over all attempts at the problem.
        shortest, longest: statements of the program.
        novelty: least share of its n-grams that no earlier program had.
        lowest, highest: levels, that is statements beside `def` and `return` that matter.
    """

    least: float = 0.0
    most: float = 1.0
    shortest: int = 0
    longest: int = 1_000_000
    novelty: float = 0.0
    lowest: float = 0.0
    highest: float = 1e6


@dataclass(frozen=True, slots=True)
class Curriculum:
    """A written data set: its folder, and the rows of each configuration over all splits."""

    folder: Path
    rows: dict[str, int]
    held_out: int


def write_curriculum(
    runs: Sequence[Path], to: Path, filters: Filters = Filters(), tested: float = TESTED
) -> Curriculum:
    """Write the problems of runs to a new folder: whole, or not at all.

    Problems of the bundled suites, and CRUXEval's in the runs' own, are never among them: the verifier refuses those
    that its run knows, and here all are looked for again.

    Args:
        tested: share of the programs that are in the split `test`.

    Raises:
        RunDirectoryError: no problem passes the filters.
        ArtifactError: `to` is not free, or could not be written.
    """
    require_free(to)
    tables, left_out = curriculum_tables(runs, filters, tested)
    rows = {name: table.num_rows for name, table in tables.items()}
    with new_folder(to) as new:
        for name, table in tables.items():
            (new / name).mkdir()
            for split in SPLITS:
                part = table.filter(pc.equal(table["split"], split)).drop_columns("split")
                if part.num_rows:  # the library of data sets cannot read a file without rows
                    pq.write_table(part, new / name / f"{split}.parquet", compression="zstd")
        opened = [Run.open(run) for run in runs]
        licences = {license_of(run) for run in opened}
        dialects = {run.config.base.dialect for run in opened}
        bounds = asdict(filters), asdict(Filters())
        told = card(tables, SPLITS, tested, *bounds, limits_of(runs), left_out, licences, dialects)
        (new / CARD).write_text(told, encoding="utf-8")
    return Curriculum(to, rows, left_out)


def curriculum_tables(
    runs: Sequence[Path], filters: Filters, tested: float = 0.0
) -> tuple[dict[str, pa.Table], int]:
    """The configurations, `split` the last column of each; and how many problems a suite holds, so that they are out.

    Raises:
        RunDirectoryError: no problem passes the filters.
    """
    directories = list(dict.fromkeys(run.resolve() for run in runs))
    configured = [Run.open(directory).config for directory in directories]
    labels = run_labels(directories) if len(directories) > 1 else [directories[0].name]  # as views show them
    spoken = {label: _spoken(label, config) for label, config in zip(labels, configured, strict=True)}
    with Catalogue(*directories) as catalogue, refusal_told("the problems could not be read"):
        connection = catalogue.connect()
        connection.register("keyed", _keyed(connection))
        connection.register("copies", connection.sql(COPIES).to_arrow_table())
        found = connection.sql(PROBLEMS, params=asdict(filters)).to_arrow_table()
        asked = {_asked(label, config) for label, config in zip(labels, configured, strict=True)}
        kept = [_is_free(row, asked) for row in found.to_pylist()]
        problems = found.filter(pa.array(kept, pa.bool_()))
        if not problems.num_rows:
            raise RunDirectoryError(
                "no problem is left",
                expected="a judged problem that passes the filters",
                got=", ".join(f"{name} = {value}" for name, value in asdict(filters).items()),
                fix="widen --solve-rate, --level, --statements or --novelty; populora inspect shows what there is",
            )
        problems = _with_lineage(_with_examples(problems, spoken), connection)
        split = [split_of(key, tested) for key in problems["program_key"].to_pylist()]
        problems = problems.append_column("split", pa.array(split, pa.string()))
        connection.register("chosen", problems.select(["run", "problem_id", "split"]))
        tables = {
            "problems": problems,
            "supervised": _with_thoughts(connection.sql(SUPERVISED).to_arrow_table(), spoken),
            "preferences": connection.sql(PREFERENCES).to_arrow_table(),
        }
    return tables, kept.count(False)


def limits_of(runs: Iterable[Path]) -> Limits:
    """The smallest limits within which every problem of these runs was verified."""
    each = [Run.open(run).limits for run in runs]
    return Limits(
        cpu_seconds=max(limits.cpu_seconds for limits in each),
        wall_seconds=max(limits.wall_seconds for limits in each),
        memory_bytes=max(limits.memory_bytes for limits in each),
        output_bytes=max(limits.output_bytes for limits in each),
    )


class NotRead(UserWarning):
    """A part of a data set is left empty: it needs code or a file that is not here, or that the user has not named."""


def _asked(label: str, config: Config) -> HeldOut:
    """The problems that suites ask: the bundled ones, and the run's own where the user named that."""
    if unnamed := [own for own in suites(config) if not is_trusted(own)]:
        warnings.warn(
            f"the suite of {label} is not read, since you have not named {unnamed[0]}: what it asks is not left out; "
            f"if you know it, set {VARIABLE}={unnamed[0]}",
            NotRead,
            stacklevel=2,
        )
        return held_out()
    return held_out(kept_out(config))


def _spoken(label: str, config: Config) -> Dialect | None:
    name = config.base.dialect
    if DIALECTS.known(name) is not None:
        return dialect(name, config.propose.inputs)
    warnings.warn(
        f"the dialect {name} of {label} is not installed here, or you have not named it: thoughts, and the examples of "
        "code_f, are left empty",
        NotRead,
        stacklevel=2,
    )
    return None


def _is_free(row: Row, asked: Iterable[HeldOut]) -> bool:
    """True if none of the suites asks a problem. Also False for a program that this Python cannot parse."""
    try:
        return not any(known.holds(row["program"], row["inputs"]) for known in asked)
    except ProgramSyntaxError:
        return False


def _keyed(connection: DuckDBPyConnection) -> pa.Table:
    """The key of each program by today's normal form: the stored one is by that of the version which played the run."""
    found = connection.sql("SELECT DISTINCT program FROM problems WHERE n_attempts > 0").to_arrow_table()
    keys = [_key(program) for program in found["program"].to_pylist()]
    return found.append_column("key", pa.array(keys, pa.string()))


def _key(program: str) -> str:
    try:
        return program_key(program)
    except ProgramSyntaxError:  # it is left out later
        return hashlib.sha256(program.encode()).hexdigest()


def split_of(key: str, tested: float) -> str:
    """The split that a program belongs to, whatever the run and the type."""
    return TEST if int(key[:8], 16) < tested * 16**8 else TRAIN


def _with_examples(problems: pa.Table, spoken: Mapping[str, Dialect | None]) -> pa.Table:
    """Add the examples that a student sees where the answer is a program; all other pairs judge it."""
    column: list[list[dict[str, str]]] = []
    kinds = {name: PROBLEM_TYPES.known(name) for name in problems["problem_type"].unique().to_pylist()}
    for name in sorted(name for name, kind in kinds.items() if kind is None):
        told = f"the problem type {name} is not installed here, or you have not named it: its examples are left empty"
        warnings.warn(told, NotRead, stacklevel=2)
    for row in problems.to_pylist():
        problem, kind, speech = Problem.of(row), kinds[row["problem_type"]], spoken[row["run"]]
        if kind is None or speech is None:
            column.append([])
            continue
        shown = kind.shown(problem, speech.rules)
        pairs = [{"input": problem.inputs[place], "output": problem.outputs[place]} for place in shown]
        column.append(pairs if kind.answer_form is AnswerForm.PROGRAM else [])
    place = problems.column_names.index("outputs") + 1
    return problems.add_column(place, "examples", pa.array(column, pa.list_(EXAMPLE)))


def _with_lineage(problems: pa.Table, connection: DuckDBPyConnection) -> pa.Table:
    """Add the proposer and all that it descends from, nearest first; empty for an anchor."""
    rows = connection.sql(MEMBERS).to_arrow_table().to_pylist()
    members = {(row.pop("run"), row["member_id"]): row for row in rows}
    lines = {key: list(_line(members, *key)) for key in members}
    keys = zip(problems["run"].to_pylist(), problems["teacher_id"].to_pylist(), strict=True)
    column = pa.array([lines.get(key, []) for key in keys], pa.list_(ANCESTOR))
    return problems.append_column("teacher_lineage", column)


def _line(members: Mapping[tuple[str, str], Row], run: str, member_id: str) -> Iterator[Row]:
    waiting, seen = [member_id], {member_id}
    while waiting:
        member = members.get((run, waiting.pop(0)))
        if member is not None:
            yield member
            waiting += [parent for parent in member["parent_ids"] if parent not in seen]
            seen |= {*member["parent_ids"]}


def _with_thoughts(answers: pa.Table, spoken: Mapping[str, Dialect | None]) -> pa.Table:
    """Add each answer's thought before its result, as the dialect of its run reads it."""
    told = zip(answers["completion"].to_pylist(), answers["student_run"].to_pylist(), strict=True)
    thoughts = pa.array(
        [
            "" if (speech := spoken[run]) is None else thought_of(speech, completion)
            for completion, run in told
        ],
        pa.string(),
    )
    return answers.add_column(answers.column_names.index("answer"), "thought", thoughts)
