"""A type for the rows of each table that code reads, and readers that know it by the table's name.

Rendered from `tables.py` by `make docs`; a test fails where this module and the declarations differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, overload

from populora_core.store.artifacts import read_table


class SampledRow(TypedDict):
    prompt: str
    completion: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]


class PopulationRow(TypedDict):
    generation: int
    member_id: str
    role: str
    slot: int
    born_generation: int
    parent_ids: list[str]
    operator: str
    mu: float
    sigma: float
    productive_generation: int
    adapter_sha256: str
    moments_sha256: str


class AdapterRow(TypedDict):
    generation: int
    member_id: str
    path: str
    sha256: str
    moments_sha256: str


class MatchRow(TypedDict):
    generation: int
    match_id: str
    teacher_id: str
    student_id: str
    p_student_win: float
    weight: float


class ProposalRow(SampledRow):
    generation: int
    proposal_id: str
    match_id: str
    teacher_id: str
    problem_type: str
    reference_ids: list[str]


class ProposalCheckRow(TypedDict):
    proposal_id: str
    verdict: str
    detail: str | None
    problem_id: str | None


class ProblemRow(TypedDict):
    problem_id: str
    generation: int
    proposal_id: str
    teacher_id: str
    problem_type: str
    program: str
    inputs: list[str]
    outputs: list[str]
    message: str
    ast_depth: int
    cyclomatic_complexity: int
    lines_of_code: int
    variable_count: int
    cell: str
    chance: float
    slack: float | None
    novelty: float
    program_key: str


class AttemptRow(SampledRow):
    generation: int
    attempt_id: str
    problem_id: str
    match_id: str
    student_id: str
    sample_index: int


class AttemptGradeRow(TypedDict):
    attempt_id: str
    answer: str | None
    verdict: str
    reward: float | None


class ProposalGradeRow(TypedDict):
    proposal_id: str
    reward: float | None


class ProblemResultRow(TypedDict):
    problem_id: str
    n_attempts: int
    solve_rate: float | None


class MatchResultRow(TypedDict):
    match_id: str
    outcome: str
    solve_rate: float | None
    n_problems: int


class RatingRow(TypedDict):
    generation: int
    member_id: str
    role: str
    mu: float
    sigma: float
    fitness: float
    eligible: bool
    productive_generation: int


class HyperparameterRow(TypedDict):
    generation: int
    member_id: str
    learning_rate: float | None
    temperature: float | None
    replay: float | None
    teacher_reward: str | None


class EvolutionRow(TypedDict):
    generation: int
    role: str
    removed_id: str
    child_id: str
    parent_ids: list[str]
    operator: str
    operator_parameters: str
    removed_fitness: float


class RetiredRow(TypedDict):
    generation: int
    member_id: str
    role: str
    mu: float
    sigma: float
    adapter_sha256: str


class ExternalFitnessRow(TypedDict):
    generation: int
    member_id: str
    external_fitness: float


class EvaluationRow(TypedDict):
    generation: int
    member_id: str
    suite: str
    benchmark: str
    n: int
    n_correct: int
    score: float
    low: float
    high: float
    part: str
    metric: str
    attempts: int | None
    temperature: float | None
    template: str | None
    n_infrastructure: int
    delta: float | None
    delta_low: float | None
    delta_high: float | None


class EvaluationItemRow(TypedDict):
    generation: int
    member_id: str
    suite: str
    part: str
    benchmark: str
    item_id: str
    stratum: str
    sample_index: int
    temperature: float | None
    template: str | None
    prompt: str
    completion: str
    completion_tokens: int
    finish_reason: str
    answer: str | None
    verdict: str
    correct: bool | None
    detail: str


class RowReader(ABC):
    """A reader of rows from the stage folders that hold a table."""

    __slots__ = ()

    @abstractmethod
    def folders(self, name: str) -> Sequence[Path]:
        """The folders that hold this table, oldest first."""

    @overload
    def rows(self, name: Literal["population"], *columns: str, newest: int = 0) -> list[PopulationRow]: ...
    @overload
    def rows(self, name: Literal["adapters"], *columns: str, newest: int = 0) -> list[AdapterRow]: ...
    @overload
    def rows(self, name: Literal["matches"], *columns: str, newest: int = 0) -> list[MatchRow]: ...
    @overload
    def rows(self, name: Literal["proposals"], *columns: str, newest: int = 0) -> list[ProposalRow]: ...
    @overload
    def rows(
        self, name: Literal["proposal_checks"], *columns: str, newest: int = 0
    ) -> list[ProposalCheckRow]: ...
    @overload
    def rows(self, name: Literal["problems"], *columns: str, newest: int = 0) -> list[ProblemRow]: ...
    @overload
    def rows(self, name: Literal["attempts"], *columns: str, newest: int = 0) -> list[AttemptRow]: ...
    @overload
    def rows(
        self, name: Literal["attempt_grades"], *columns: str, newest: int = 0
    ) -> list[AttemptGradeRow]: ...
    @overload
    def rows(
        self, name: Literal["proposal_grades"], *columns: str, newest: int = 0
    ) -> list[ProposalGradeRow]: ...
    @overload
    def rows(
        self, name: Literal["problem_results"], *columns: str, newest: int = 0
    ) -> list[ProblemResultRow]: ...
    @overload
    def rows(
        self, name: Literal["match_results"], *columns: str, newest: int = 0
    ) -> list[MatchResultRow]: ...
    @overload
    def rows(self, name: Literal["ratings"], *columns: str, newest: int = 0) -> list[RatingRow]: ...
    @overload
    def rows(
        self, name: Literal["hyperparameters"], *columns: str, newest: int = 0
    ) -> list[HyperparameterRow]: ...
    @overload
    def rows(self, name: Literal["evolutions"], *columns: str, newest: int = 0) -> list[EvolutionRow]: ...
    @overload
    def rows(self, name: Literal["retired"], *columns: str, newest: int = 0) -> list[RetiredRow]: ...
    @overload
    def rows(
        self, name: Literal["external_fitness"], *columns: str, newest: int = 0
    ) -> list[ExternalFitnessRow]: ...
    @overload
    def rows(self, name: Literal["evaluations"], *columns: str, newest: int = 0) -> list[EvaluationRow]: ...
    @overload
    def rows(
        self, name: Literal["evaluation_items"], *columns: str, newest: int = 0
    ) -> list[EvaluationItemRow]: ...

    def rows(self, name: str, *columns: str, newest: int = 0) -> list[Any]:
        """The rows of a table with these columns, or all; of several folders in order.

        Args:
            newest: how many of the folders are read, the last ones; 0 for all.

        Raises:
            ArtifactError: a file is missing, damaged, or has other columns.
        """
        tables = (read_table(folder, name, columns) for folder in self.folders(name)[-newest:])
        return [row for table in tables for row in table.to_pylist()]


class StageTables(RowReader):
    """The tables of one committed stage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folders(self, name: str) -> Sequence[Path]:
        return (self._folder,)
