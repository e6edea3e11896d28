"""Evaluating a run: its members after a generation and the base model beside them, on the half that is reported.

The result lies beside the stages of that generation, in `generations/0012/evaluate-SUITE`, committed as they are;
so it goes where the generation goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from populora_core.benchmarks.contamination import Contamination, contamination
from populora_core.benchmarks.items import suite_items
from populora_core.benchmarks.scores import BASE, score_rows
from populora_core.benchmarks.suite import Part, Suite
from populora_core.lifecycle.naming import BEST, member_named
from populora_core.lifecycle.standing import by_play, living, newest_generation, population_folder
from populora_core.population.member import Role
from populora_core.runs.run import Run, code_revision
from populora_core.runs.session import Session
from populora_core.sandbox.jobs import python_of
from populora_core.stages.evaluation import BASE_PLAYER, ITEMS, Evaluation, SuiteItems, players_of
from populora_core.stages.table import file_name
from populora_core.store.artifacts import StageWriter, intact, read_manifest, stage_dir, supersede
from populora_core.store.catalogue import publish
from populora_core.store.manifest import EVALUATION, Manifest, generation_dir, shards_dir
from populora_core.store.rows import EvaluationItemRow, EvaluationRow, StageTables
from populora_core.store.schema import to_table
from populora_core.support.errors import RunDirectoryError

VERSION = 1
SELECTION, SANDBOX = "members", "sandbox"
SOLVERS = "solvers"
GROUPS = ("all", SOLVERS, BEST)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A committed evaluation of a run.

    Attributes:
        reused: it was there already, and nothing had to be done.
    """

    folder: Path
    generation: int
    rows: list[EvaluationRow]
    reused: bool

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
        members: `all`, `solvers`, `best` (the fittest of each role, by play), or a member's id.
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
        self.session, self.suite, self._base = session, suite, base
        run = session.run
        self.generation = newest_generation(run) if generation is None else generation
        self._folder = stage_dir(run.directory, self.generation, EVALUATION + suite.suite)
        finished = shards_dir(run.directory, self.generation, self._folder.name)
        chosen = chosen_members(run, self.generation, members)
        by_name = members if members in GROUPS else next(iter(chosen))
        self._selection = "all" if len(chosen) == len(living(run, self.generation)) else by_name
        self.evaluation = Evaluation(
            session,
            suite,
            Part.TEST,
            [*players_of(chosen), *([BASE_PLAYER] if base else [])],
            self.generation,
            finished,
            problems,
        )

    @property
    def is_done(self) -> bool:
        """True if it was committed before, from the same members by the same rules, and is whole."""
        found = read_manifest(self._folder)
        return found is not None and found.key == self.evaluation.key and intact(self._folder, found)

    def run(self, progress: Callable[[int, int], None] = lambda done, total: None) -> Evaluated:
        """Make it, unless it is done; what was there before goes to superseded/.

        Raises:
            SandboxUnavailable: the sandbox went down; finished shards stay for the next time.
            ArtifactError: the result could not be written.
        """
        run = self.session.run
        if self.is_done:
            return Evaluated(
                self._folder, self.generation, StageTables(self._folder).rows("evaluations"), True
            )
        self.session.heartbeat.at(self.generation, self._folder.name)
        started = time.time()
        with StageWriter(run.directory, self.generation, self._folder.name) as writer:
            items = self.evaluation.run(progress)
            rows = score_rows(items.to_pylist(), self.suite, base=BASE if self._base else None)
            writer.write_table(ITEMS, items)
            writer.write_table("evaluations", to_table("evaluations", rows))
            writer.commit(
                writer.draft(
                    key=self.evaluation.key,
                    stage_version=VERSION,
                    seed=self.suite.seed,
                    config={"suite": self.suite.model_dump(mode="json")},
                    inputs=_inputs(run, self.generation),
                    started=started,
                    seconds=time.time() - started,
                    code_revision=code_revision(),
                    extra={SELECTION: self._selection, SANDBOX: self.session.sandbox.identity}
                    | self.session.since_stage(started),
                )
            )
        self.evaluation.clear()
        self.session.stage_ended = time.time()
        publish(run.directory)
        return Evaluated(self._folder, self.generation, rows, False)


def overlap(run: Run, suite: Suite, generation: int) -> Contamination:
    """Overlap of the run's problems, up to a generation, with the suite's reported half."""
    items = [item for _, own in suite_items(suite, Part.TEST) for item in own]
    texts = []
    for number in range(1, generation + 1):
        problems = StageTables(stage_dir(run.directory, number, "verify")).rows("problems")
        texts += [f"{row['program']}\n{row['message']}" for row in problems]
    return contamination(items, texts)


def is_current(run: Run, suite: Suite, members: str = "all") -> bool:
    """True if these of the newest generation's members, as they are now, were evaluated by this very suite.

    Args:
        members: all, best, or a member's id.

    Raises:
        RunDirectoryError: the run has no complete generation yet.
    """
    newest = newest_generation(run)
    return any(
        manifest.inputs == _inputs(run, newest)
        and manifest.config.get("suite") == suite.model_dump(mode="json")
        and selection(manifest) in ("all", members)
        and intact(folder, manifest)
        for folder, manifest in evaluations_of(run, newest)
    )


def selection(evaluation: Manifest) -> str:
    """The members of an evaluation: all, best, or a member's id."""
    return evaluation.extra.get(SELECTION, "all")


def evaluations_of(run: Run, generation: int) -> Iterator[tuple[Path, Manifest]]:
    """The committed evaluations of the members after a generation."""
    for folder in sorted(generation_dir(run.directory, generation).glob(f"{EVALUATION}*")):
        manifest = read_manifest(folder)
        if manifest is not None:
            yield folder, manifest


def supersede_outdated(run: Run, generation: int) -> list[Path]:
    """Set aside evaluations of members that the generation no longer has; returns where they went."""
    outdated = [f for f, m in evaluations_of(run, generation) if m.inputs != _inputs(run, generation)]
    return [supersede(run.directory, folder) for folder in outdated]


def _inputs(run: Run, generation: int) -> dict[str, str]:
    manifest = read_manifest(population_folder(run, generation))
    if manifest is None:
        return {}
    return {"population": manifest.contents[file_name("population")]}


def chosen_members(run: Run, generation: int, members: str) -> dict[str, str]:
    """member_id -> sha256 of its weights, of the chosen members."""
    source = population_folder(run, generation)
    manifest = read_manifest(source)
    if manifest is None or not intact(source, manifest):
        raise RunDirectoryError(
            f"{run.directory} has no complete generation {generation}",
            expected=f"a generation up to {newest_generation(run)}",
            got="damaged files" if manifest else "nothing",
            fix=f"populora resume {run.directory} makes what is missing",
        )
    rows = living(run, generation)
    hashes = {row["member_id"]: row["adapter_sha256"] for row in rows}
    if members == "all":
        return hashes
    if members == SOLVERS:
        return {
            row["member_id"]: row["adapter_sha256"] for row in rows if Role.STUDENT in Role(row["role"]).plays
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
            expected=f"all, solvers, best, or {error.expected}",
            got=members,
            fix="name the generation that it lived in with --generation",
        ) from error
    return {name: hashes[name]}
