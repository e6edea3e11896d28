"""What an update is told to learn from: rows of the Parquet files that hold the completions, read where it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from populora_core.learner.rows import TrainingRow

TOKENS = ("prompt_ids", "completion_ids", "logprobs")


@dataclass(frozen=True, slots=True)
class Lesson:
    """A completion to learn from.

    Attributes:
        row: of the table that holds the completions of the role.
    """

    role: str
    row: int
    member_id: str
    advantage: float


class Sampled:
    """The tokens of the completions to learn from, read once per role."""

    def __init__(self, files: Mapping[str, Path], temperatures: Mapping[str, float]) -> None:
        self._temperatures = temperatures
        self._tables = {role: pq.ParquetFile(file).read(TOKENS) for role, file in files.items()}

    def training_row(self, lesson: Lesson) -> TrainingRow:
        table = self._tables[lesson.role]
        prompt, completion, logprobs = (tuple(table[name][lesson.row].as_py()) for name in TOKENS)
        temperature = self._temperatures[lesson.role]
        return TrainingRow(lesson.member_id, prompt, completion, logprobs, lesson.advantage, temperature)
