"""A run directory of any size that no model played: one generation (`made_runs.scaled`), under other numbers.

32 teachers meet 32 students in every generation, a quarter of each role is replaced every tenth. Later generations
have ids, programs and cells of their own; texts, verdicts and ratings are those of the first, so that a generation
takes a fraction of a second. What is timed are questions, which read as many rows whatever they say.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from made_runs.filled import commit_stage, filled
from made_runs.scaled import ATTEMPTS as SAMPLES
from made_runs.scaled import GENERATION, TYPES, ScaledRun, adapter_rows
from populora_core.store.schema import to_table
from populora_core.support import ids

MEMBERS = 64
PROPOSED, VALID = 40, 26  # of one teacher and type; of these valid
ATTEMPTS = MEMBERS // 2 * len(TYPES) * VALID * SAMPLES  # of one generation
EVERY = 10  # generations between evolutions
CELLS = 400
WRITERS = 2  # threads that compress and write
OWNERS = ("member_id", "teacher_id", "student_id")


class SyntheticRun:
    """Writes generation after generation into a run directory.

    Args:
        pattern: the generation that is told again.
    """

    def __init__(self, run_dir: Path, pattern: ScaledRun) -> None:
        self._run_dir, self._tables = run_dir, pattern.tables
        self._draw = ids.generator(0, "analytics")
        self._living = pattern.rows("evolve", "population")  # in the order of the founders
        self._founders = pa.array([row["member_id"] for row in self._living])
        self._commits: list[Future[None]] = []

    def write(self, generations: int, say: Callable[[str], None] = lambda line: None) -> None:
        """Found the population and play the generations."""
        with ThreadPoolExecutor(WRITERS) as self._pool:
            self._commit(0, "found", {"population": self._population(0), "adapters": self._adapters(0)})
            for generation in range(1, generations + 1):
                before, self._commits = self._commits, []
                self._generation(generation)
                for commit in before:
                    commit.result()
                if generation % 50 == 0:
                    say(f"wrote generation {generation} of {generations}")
            for commit in self._commits:
                commit.result()

    def _generation(self, generation: int) -> None:
        told: dict[str, dict[str, pa.Table]] = {
            stage: {name: self._told(name, table, generation) for name, table in tables.items()}
            for stage, tables in self._tables.items()
        }
        told["update"]["adapters"] = self._adapters(generation)
        if generation % EVERY == 0:
            told["evolve"]["evolutions"] = to_table("evolutions", self._breed(generation))
            told["evolve"]["adapters"] = self._adapters(generation)
        told["evolve"]["population"] = self._population(generation)
        for stage, tables in told.items():
            self._commit(generation, stage, tables)

    def _told(self, name: str, table: pa.Table, generation: int) -> pa.Table:
        """The table under this generation's number, members and ids."""
        columns = dict(zip(table.column_names, table.columns, strict=True))
        if "generation" in columns:
            columns["generation"] = np.full(len(table), generation)
        living = pa.array([row["member_id"] for row in self._living])
        for column in columns:
            if column in OWNERS:
                columns[column] = living.take(pc.index_in(columns[column], self._founders))
            elif column.endswith("_id"):
                old, new = (f"-g{number:04d}" for number in (GENERATION, generation))
                columns[column] = pc.replace_substring(columns[column], old, new)
        if name == "problems":
            for column in ("program", "program_key"):
                columns[column] = _joined(columns[column], f" {generation}")
            cells = pa.array(np.minimum(self._draw.zipf(1.3, len(table)), CELLS))
            columns["cell"] = _joined("2-1-1-0-set", cells.cast(pa.string()))
        arrays = [
            pa.chunked_array([pa.array(each)]) if isinstance(each, np.ndarray) else each
            for each in columns.values()
        ]
        return pa.table(
            [each.cast(field.type) for each, field in zip(arrays, table.schema, strict=True)], table.schema
        )

    def _breed(self, generation: int) -> list[dict[str, Any]]:
        """A quarter of each role makes room for children of the others; the rows of `evolutions`."""
        rows = []
        for role in ("student", "teacher"):
            places = [place for place, row in enumerate(self._living) if row["role"] == role]
            leaving = set(self._draw.choice(places, len(places) // 4, replace=False).tolist())
            staying = [self._living[place]["member_id"] for place in places if place not in leaving]
            for place in sorted(leaving):
                old = self._living[place]
                parents = self._draw.choice(staying, int(self._draw.integers(1, 3)), replace=False).tolist()
                born = {
                    "member_id": ids.member_id(role, old["slot"], generation),
                    "born_generation": generation,
                    "parent_ids": parents,
                    "operator": "average" if len(parents) == 2 else "full_gaussian",
                }
                self._living[place] = old | born
                rows.append(
                    filled(
                        "evolutions",
                        generation=generation,
                        role=role,
                        removed_id=old["member_id"],
                        child_id=born["member_id"],
                        parent_ids=parents,
                        operator=born["operator"],
                        operator_parameters="{}",
                        removed_fitness=old["mu"] - 3.0 * old["sigma"],
                    )
                )
        return rows

    def _population(self, generation: int) -> pa.Table:
        return to_table("population", [row | {"generation": generation} for row in self._living])

    def _adapters(self, generation: int) -> pa.Table:
        return to_table("adapters", adapter_rows(self._living, generation))

    def _commit(self, generation: int, stage: str, tables: dict[str, pa.Table]) -> None:
        """Have a stage written."""
        seconds = {row["member_id"]: 0.5 for row in self._living}
        extra = {"member_seconds": seconds} if stage == "update" else None
        self._commits.append(self._pool.submit(commit_stage, self._run_dir, generation, stage, tables, extra))


def _joined(*parts: Any) -> Any:
    """Texts and columns of texts, put together row by row."""
    return pc.binary_join_element_wise(*parts, "")
