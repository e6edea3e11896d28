"""The verified problems of runs as a data set in the hub's layout: problems, right answers, preference pairs, a card.

    OUT/README.md                  the card, whose header names the configurations
    OUT/problems/train.parquet     a row per problem, with solve rates and lineage
    OUT/supervised/train.parquet   prompts with correct, verified answers, thought included
    OUT/preferences/train.parquet  prompts with a right and a wrong answer of the same problem

``datasets.load_dataset(OUT, "problems")`` loads it, and so does any reader of Parquet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from populora_core.benchmarks.heldout import held_out
from populora_core.store.catalogue import Catalogue
from populora_core.support.aliases import Row
from populora_core.support.durable import new_folder, require_free
from populora_core.support.errors import RunDirectoryError
from populora_core.support.ids import ANCHOR

CARD = "README.md"
SPLIT = "train.parquet"
# Problems that pass the filters; of those with one type, program and inputs, the first by run and generation.
PROBLEMS = """
WITH judged AS (
    SELECT run, problem_id, student_id, count(*) FILTER (verdict = 'correct') / count(*) AS rate, count(*) AS n
    FROM attempts WHERE verdict <> 'infrastructure' GROUP BY ALL
), by_student AS (
    SELECT run, problem_id,
           list({student_id: student_id, solve_rate: rate, attempts: n} ORDER BY student_id) AS students
    FROM judged GROUP BY ALL
)
SELECT p.run, p.problem_id, p.generation, p.problem_type, p.program, p.inputs, p.outputs, p.message,
       p.lines_of_code, p.ast_depth, p.cyclomatic_complexity, p.novelty, p.solve_rate, p.n_attempts, s.students,
       p.teacher_id, m.parent_ids AS teacher_parents, m.operator AS teacher_operator, p.program_key
FROM problems p JOIN by_student s USING (run, problem_id)
LEFT JOIN members m ON m.run = p.run AND m.member_id = p.teacher_id
WHERE p.solve_rate BETWEEN $least AND $most AND p.lines_of_code BETWEEN $shortest AND $longest
      AND p.novelty >= $novelty
QUALIFY row_number() OVER (PARTITION BY p.problem_type, p.program_key, p.inputs
                           ORDER BY p.run, p.generation, p.problem_id) = 1
ORDER BY p.run, p.generation, p.problem_id
"""
# One correct answer of every wording per problem.
SUPERVISED = """
SELECT run, problem_id, prompt, completion, first(student_id ORDER BY attempt_id) AS student_id
FROM attempts SEMI JOIN chosen USING (run, problem_id) WHERE verdict = 'correct'
GROUP BY run, problem_id, prompt, completion ORDER BY run, problem_id, completion
"""
# Right and wrong answers of one problem, paired in order, as far as the fewer of both go.
PREFERENCES = """
WITH told AS (
    SELECT run, problem_id, prompt, completion, verdict = 'correct' AS right,
           row_number() OVER (PARTITION BY run, problem_id, verdict = 'correct' ORDER BY min(attempt_id)) AS place
    FROM attempts SEMI JOIN chosen USING (run, problem_id)
    WHERE verdict IN ('correct', 'wrong') GROUP BY run, problem_id, prompt, completion, verdict
)
SELECT r.run, r.problem_id, r.prompt, r.completion AS chosen, w.completion AS rejected
FROM told r JOIN told w USING (run, problem_id, prompt, place) WHERE r.right AND NOT w.right
ORDER BY r.run, r.problem_id, place
"""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which problems are taken.

    Attributes:
        least, most: solve rates.
        shortest, longest: statements of the program.
        novelty: least share of its n-grams that no earlier program had.
    """

    least: float = 0.0
    most: float = 1.0
    shortest: int = 0
    longest: int = 10**9
    novelty: float = 0.0


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Where a data set lies, and how many rows each configuration has."""

    folder: Path
    rows: dict[str, int]
    held_out: int


def write_curriculum(runs: Sequence[Path], to: Path, filters: Filters = Filters()) -> Curriculum:
    """Write the problems of runs to a new folder: whole, or not at all.

    Problems of the bundled suites are never among them: the verifier refuses them, and here they are looked for again.

    Raises:
        RunDirectoryError: no problem passes the filters.
        ArtifactError: `to` is not free, or could not be written.
    """
    to = to.expanduser()
    require_free(to)
    tables, left_out = curriculum_tables(runs, filters)
    rows = {name: table.num_rows for name, table in tables.items()}
    with new_folder(to) as new:
        for name, table in tables.items():
            (new / name).mkdir()
            pq.write_table(table, new / name / SPLIT, compression="zstd")
        (new / CARD).write_text(card(tables, [run.name for run in runs], filters, left_out), encoding="utf-8")
    return Curriculum(to, rows, left_out)


def curriculum_tables(runs: Sequence[Path], filters: Filters) -> tuple[dict[str, pa.Table], int]:
    """The configurations, and how many problems are left out because a suite holds them.

    Raises:
        RunDirectoryError: no problem passes the filters.
    """
    with Catalogue(*runs) as catalogue:
        connection = catalogue.connect()
        found = connection.sql(PROBLEMS, params=asdict(filters)).to_arrow_table()
        known = held_out()
        kept = [not known.holds(row["program"], row["inputs"]) for row in found.to_pylist()]
        problems = found.filter(pa.array(kept, pa.bool_()))
        connection.register("chosen", problems.select(["run", "problem_id"]))
        tables = {
            "problems": problems,
            "supervised": connection.sql(SUPERVISED).to_arrow_table(),
            "preferences": connection.sql(PREFERENCES).to_arrow_table(),
        }
    if not problems.num_rows:
        raise RunDirectoryError(
            "no problem is left",
            expected="a judged problem that passes the filters",
            came=", ".join(f"{name} = {value}" for name, value in asdict(filters).items()),
            remedy="widen --solve-rate, --statements or --novelty; populora inspect RUN shows what there is",
        )
    return tables, kept.count(False)


def card(tables: dict[str, pa.Table], runs: Sequence[str], filters: Filters, left_out: int) -> str:
    """The data card; every figure is counted from the tables."""
    problems = tables["problems"].to_pylist()
    header = ["---", "license: apache-2.0", "tags: [populora, self-play, code]", "configs:"]
    for name in tables:
        header += [f"- config_name: {name}", "  data_files:", "  - split: train", f"    path: {name}/{SPLIT}"]
    header += ["---", ""]
    types = sorted({row["problem_type"] for row in problems})
    lines = [
        "# Problems that a population set itself",
        "",
        f"From {', '.join(runs)}. A sandbox ran every problem twice, with the same result. Its solve rate is that",
        "of the students that it was matched with. Duplicates over runs are taken once. "
        f"{left_out} problems were left out because a held-out suite has them.",
        *_anchors_line(problems),
        "",
        "| configuration | rows |",
        "| --- | --- |",
        *(f"| `{name}` | {table.num_rows} |" for name, table in tables.items()),
        "",
        "| type | problems | mean solve rate | mean statements |",
        "| --- | --- | --- | --- |",
        *(_type_line(kind, [row for row in problems if row["problem_type"] == kind]) for kind in types),
        "",
        "Filters: " + ", ".join(f"{name} = {value}" for name, value in asdict(filters).items()) + ".",
        "",
    ]
    return "\n".join([*header, *lines])


def _anchors_line(problems: Sequence[Row]) -> list[str]:
    anchors = sum(row["teacher_id"] == ANCHOR for row in problems)
    return (
        [f"{anchors} are anchors (`teacher_id` is `{ANCHOR}`), under the terms of their source."]
        if anchors
        else []
    )


def _type_line(kind: str, rows: Sequence[Row]) -> str:
    def mean(name: str) -> Any:
        return sum(row[name] for row in rows) / len(rows)

    return f"| `{kind}` | {len(rows)} | {mean('solve_rate'):.2f} | {mean('lines_of_code'):.1f} |"
