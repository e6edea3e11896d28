"""Evaluating a run: the stage `evaluate:SUITE` for members that a person chooses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from populora_core.benchmarks.benchmark import benchmark
from populora_core.benchmarks.contamination import Contamination, contamination, item_text
from populora_core.benchmarks.suite import Part, Suite
from populora_core.lifecycle.naming import BEST, member_named
from populora_core.lifecycle.standing import by_play, living
from populora_core.population.member import Role
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sandbox.jobs import python_of
from populora_core.stages.engine import StageResult, is_done, run_stage
from populora_core.stages.evaluation import BASE_PLAYER, Exam, SuiteItems, players_of
from populora_core.stages.following import newest_generation, population_folder
from populora_core.stages.measure import SANDBOX, SELECTION, measure
from populora_core.stages.table import BESIDE, Stage, file_name
from populora_core.store.artifacts import supersede
from populora_core.store.catalogue import publish
from populora_core.store.manifest import Manifest, generation_dir, read_manifest, stage_dir
from populora_core.store.rows import EvaluationItemRow, EvaluationRow, StageTables
from populora_core.support.errors import RunDirectoryError

SOLVERS, TEACHERS = "solvers", "teachers"
PLAYING = {SOLVERS: Role.STUDENT, TEACHERS: Role.TEACHER}
GROUPS = ("all", *PLAYING, BEST)
RunStage = Callable[..., StageResult]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A committed evaluation of a run.

    Attributes:
        rows: scores.
        exam: that was taken.
        made: of the stage; it says if the scores were there already.
    """

    folder: Path
    generation: int
    rows: list[EvaluationRow]
    exam: Exam
    made: StageResult

    @property
    def judged_in(self) -> str:
        """The sandbox and its Python: what programs come to can differ between them, as deep recursion does."""
        found = read_manifest(self.folder)
        identity = str(found.extra.get(SANDBOX, "")) if found else ""
        return (
            f"{identity.partition('-')[0]} with Python {python_of(identity)}"
            if python_of(identity)
            else "a sandbox that is not recorded"
        )

    def items(self) -> list[EvaluationItemRow]:
        """Every completion behind the scores."""
        return StageTables(self.folder).rows("evaluation_items")


class RunEvaluation:
    """The test half of a suite for members of a run.

    Args:
        members: `all`, `solvers`, `teachers`, `best` (the fittest of each role, by play), or a member's id.
        generation: after which; None for the newest that is complete.
        problems: of each benchmark; None for those that the suite names.
        base: whether the base answers too, and every member is compared with it.

    Raises:
        RunDirectoryError: no such generation, or no such member in it.
        BenchmarkError: the suite cannot be used with this run.
    """

    def __init__(
        self,
        session: Session,
        suite: Suite,
        members: str = "all",
        generation: int | None = None,
        problems: SuiteItems | None = None,
        base: bool = True,
    ) -> None:
        self.session = session
        run = session.run
        self.generation = newest_generation(run) if generation is None else generation
        chosen = chosen_members(run, self.generation, members)
        by_name = members if members in GROUPS else next(iter(chosen))
        self.members = "all" if len(chosen) == len(living(run, self.generation)) else by_name
        players = [*players_of(chosen), *([BASE_PLAYER] if base else [])]
        self.exam = Exam(suite, Part.TEST, players, problems)

    @cached_property
    def stage(self) -> Stage:
        return measure(self.session, self.exam, self.members)

    @property
    def is_done(self) -> bool:
        """True if it was committed before, from the same members by the same rules, and is whole."""
        return is_done(self.session, self.generation, [self.stage])

    def run(self, run_one: RunStage = run_stage) -> Evaluated:
        """Make it, unless it is done; what was there before goes to superseded/.

        Args:
            run_one: runs one stage; Prefect's tasks take its place.

        Raises:
            SandboxUnavailable: the sandbox went down; finished shards stay for the next time.
            ArtifactError: the result could not be written.
        """
        result = run_one(self.session, self.generation, self.stage)
        run = self.session.run
        if not result.reused:
            publish(run.directory)
        folder = stage_dir(run.directory, self.generation, self.stage.name)
        rows = StageTables(folder).rows("evaluations")
        return Evaluated(folder, self.generation, rows, self.exam, result)


def overlap(run: Run, problems: SuiteItems, generation: int) -> Contamination:
    """Overlap of the run's problems, up to a generation, with those of a suite."""
    return contamination(_texts(problems), _asked(run, generation))


def _asked(run: Run, generation: int) -> Iterator[str]:
    """The texts of the run's own problems, a generation at a time."""
    for number in range(1, generation + 1):
        folder = stage_dir(run.directory, number, "verify")
        for row in StageTables(folder).rows("problems", "program", "message"):
            yield f"{row['program']}\n{row['message']}"


def _texts(problems: SuiteItems) -> Iterator[str]:
    for entry, items in problems:
        columns = getattr(benchmark(entry.benchmark), "text_columns", None)
        yield from (item_text(item, columns) for item in items)


def selection(evaluation: Manifest) -> str:
    """The members of an evaluation: all, best, or a member's id."""
    return evaluation.extra.get(SELECTION, "all")


def stages_beside(run: Run, generation: int) -> Iterator[tuple[Path, Manifest]]:
    """The committed stages with a parameter of a generation: evaluations, and those of plug-ins."""
    for folder in sorted(generation_dir(run.directory, generation).glob(BESIDE)):
        manifest = read_manifest(folder)
        if manifest is not None:
            yield folder, manifest


def supersede_outdated(run: Run, generation: int) -> list[Path]:
    """Set aside what was measured of members that the generation no longer has; returns where it went."""
    population = read_manifest(population_folder(run, generation))
    content = population.contents[file_name("population")] if population else ""
    # Before evaluations were stages, they named the content itself.
    now = content, hashlib.sha256(content.encode()).hexdigest()
    outdated = [f for f, m in stages_beside(run, generation) if m.inputs.get("population", now[0]) not in now]
    return [supersede(run.directory, folder) for folder in outdated]


def chosen_members(run: Run, generation: int, members: str) -> dict[str, str]:
    """member_id -> sha256 of its weights, of the chosen members."""
    rows = living(run, generation)
    hashes = {row["member_id"]: row["adapter_sha256"] for row in rows}
    if members == "all":
        return hashes
    if members in PLAYING:
        return {
            row["member_id"]: row["adapter_sha256"]
            for row in rows
            if PLAYING[members] in Role(row["role"]).plays
        }
    if members == BEST:
        role = {row["member_id"]: row["role"] for row in rows}
        best: dict[str, str] = {}
        for member in by_play(run, generation):
            best.setdefault(role[member], member)
        return {member: hashes[member] for member in best.values()}
    try:
        name = member_named(members, hashes)
    except RunDirectoryError as error:
        raise RunDirectoryError(
            f"{members} does not live in generation {generation}",
            expected=f"{', '.join(GROUPS)}, or {error.expected}",
            got=members,
            fix="name the generation that it lived in with --generation",
        ) from error
    return {name: hashes[name]}
