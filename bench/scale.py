"""Work of one machine for a population of 8 to 1,000 members, beside models and sandbox.

    populora bench scale --json

Half of the members teach, half are taught. A generation of a teacher is 12 proposals, of which 9 become problems, and
8 attempts at each: 6,000 proposals, 4,500 problems and 36,000 attempts for 1,000 members. The rows are made by rule
(`made_runs.scaled`), what is timed is the project's own code on them. Seconds are those of the wall, since they are
waited for; ratios are of process CPU seconds, which other work on the machine changes less; `cpu_seconds.<part>` says
how much of the wall they are:

    match       the stage: predictions for all pairs, the draw, its commit
    grade       the stage: answers read and judged, rewards, outcomes, ratings, its commit; what the sandbox
                found is given
    ratings     the matches folded into ratings, alone
    selection   fitness, who goes and who breeds in both sub-populations, every fourth member replaced
    catalogue   publishing it, then each question of docs/analytics.md once
    store       all stages' tables committed with their manifests, and every member's adapter folder put in its place

`growth_8_to_1000` is seconds per member at 1,000 over those at 8, for the part that grows most: above 1, cost
grows faster than linearly. What a part costs whatever the members makes it smaller, so `marginal.<part>` leaves that
out: seconds of a further member between 250 and 1,000, over seconds of a further member between 8 and 250. There 1 is
linear, and 4.8 would be quadratic.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.analytics import questions
from bench.harness import BenchRow, Taken, Timed, median, single, timed
from made_runs.filled import commit_stage
from made_runs.scaled import GENERATION, ScaledRun
from populora_core.config.sections import RatingSection
from populora_core.population.fitness import fitness_of
from populora_core.population.member import Member, Role
from populora_core.population.rating import Match, Outcome, lower_bound, rate
from populora_core.population.replacement import plan_evolution
from populora_core.runs.run import Run
from populora_core.sandbox.policy import refuse_program
from populora_core.stages.engine import run_stage
from populora_core.stages.table import STAGES
from populora_core.store.adapters import ADAPTER_FILES, MOMENTS, PROBE, WEIGHTS
from populora_core.store.catalogue import Catalogue, publish
from populora_core.support import ids
from populora_core.support.aliases import Say

MEMBERS = (8, 64, 250, 1000)
ADAPTER_BYTES = 4096  # of each file of an adapter's folder, which is renamed, never copied
LIMIT = 5.0  # seconds per generation at the largest size


def run(samples: int, say: Say) -> list[BenchRow]:
    """The members' rows, and two nodes where Ray is installed."""
    return [*members(max(3, samples // 5), say), *_nodes(samples, say)]


def members(samples: int, say: Say, sizes: tuple[int, ...] = MEMBERS) -> list[BenchRow]:
    """Seconds of each part at the largest size, how they grow, and seconds at the smaller sizes."""
    taken = {size: measure(size, samples, say) for size in sizes}
    middle = {
        size: {part: statistics.median(each.cpu for each in found) for part, found in taken[size].items()}
        for size in sizes
    }
    few, some, many = sizes[0], sizes[-2], sizes[-1]
    parts = list(middle[many])
    growth = {part: (middle[many][part] / many) / (middle[few][part] / few) for part in parts}
    marginal = {part: _slope(middle, part, some, many) / _slope(middle, part, few, some) for part in parts}
    worst = f"growth_{few}_to_{many}"
    return [
        *(median(f"seconds.{part}", _wall(taken[many][part]), "s", f"<= {LIMIT:g}") for part in parts),
        single(worst, max(growth.values()), "ratio", "<= 1"),
        *(single(f"{worst}.{part}", value, "ratio", "<= 1") for part, value in growth.items()),
        *(single(f"marginal.{part}", value, "ratio") for part, value in marginal.items()),
        *(
            median(f"seconds.{part}.{size}_members", _wall(taken[size][part]), "s")
            for size in sizes[:-1]
            for part in parts
        ),
        *(single(f"cpu_seconds.{part}", value, "s") for part, value in middle[many].items()),
    ]


def measure(size: int, samples: int, say: Say) -> dict[str, list[Taken]]:
    """Measure each part, once warm, for a population of `size`."""
    with tempfile.TemporaryDirectory(prefix="populora-scale-") as folder:
        say(f"writing a generation of {size} members")
        scaled = ScaledRun(Path(folder, "run"), size)
        try:
            parts = Parts(scaled, Path(folder))
            work: dict[str, Timed] = {
                "match": lambda: parts.stage("match"),
                "grade": lambda: parts.stage("grade"),
                "ratings": parts.ratings,
                "selection": parts.selection,
                "catalogue": parts.catalogue,
            }
            seconds: dict[str, list[Taken]] = {name: [] for name in (*work, "store")}
            for sample in range(samples + 1):
                say(f"{size} members, round {sample} of {samples}")
                found = {name: timed(each) for name, each in work.items()}
                with parts.storing() as store:
                    found["store"] = timed(store)
                if sample:  # the first round compiles, loads and fills caches
                    for name, value in found.items():
                        seconds[name].append(value)
            return seconds
        finally:
            scaled.close()


@dataclass(frozen=True, slots=True)
class Parts:
    """The timed parts, over one run."""

    scaled: ScaledRun
    folder: Path

    def stage(self, name: str) -> None:
        refuse_program.cache_clear()  # another generation has other programs
        run_stage(self.scaled.session, GENERATION, STAGES[name], force=True)

    def ratings(self) -> None:
        outcomes = {row["match_id"]: row["outcome"] for row in self.scaled.rows("grade", "match_results")}
        matches = [
            Match(row["teacher_id"], row["student_id"], Outcome(outcomes[row["match_id"]]))
            for row in self.scaled.rows("match", "matches")
        ]
        rated = rate(matches, {m.member_id: m.rating for m in self._members()}, RatingSection())
        list(map(lower_bound, rated.values()))

    def selection(self) -> None:
        settings = self.scaled.run.config.evolve
        rules = settings.model_copy(update={"every": 1})
        living = self._members()
        for role in (Role.TEACHER, Role.STUDENT):
            own = [member for member in living if member.role is role]
            fitness = fitness_of(settings, own, {})
            eligible = {member.member_id: True for member in own}
            plan_evolution(GENERATION, own, fitness, eligible, rules, ids.generator(0, role))

    def catalogue(self) -> None:
        publish(self.scaled.run.directory)
        for sql in questions().values():
            with Catalogue(self.scaled.run.directory) as catalogue:
                catalogue.query(sql).arrow()

    @contextmanager
    def storing(self) -> Iterator[Timed]:
        """Commits the generation to a run directory that is new, beside adapters that shards have written."""
        run = Run(self.folder / "stored", self.scaled.run.config, self.scaled.run.record)
        adapters = {
            row["path"]: {WEIGHTS: row["sha256"], MOMENTS: row["moments_sha256"]}
            for row in self.scaled.rows("update", "adapters")
        }
        staged = self.folder / "staged"
        for path in adapters:
            own = staged / Path(path).parent.name
            own.mkdir(parents=True)
            for name in (*ADAPTER_FILES, MOMENTS, PROBE):
                (own / name).write_bytes(bytes(ADAPTER_BYTES))

        def store() -> None:
            extra = {"adapters": adapters}
            for stage, tables in self.scaled.tables.items():
                if stage == "update":
                    commit_stage(run.directory, GENERATION, stage, tables, extra, staged)
                else:
                    commit_stage(run.directory, GENERATION, stage, tables)

        try:
            yield store
        finally:
            shutil.rmtree(run.directory)

    def _members(self) -> list[Member]:
        return [Member.of(row) for row in self.scaled.rows("evolve", "population")]


def _slope(middle: dict[int, dict[str, float]], part: str, few: int, many: int) -> float:
    return (middle[many][part] - middle[few][part]) / (many - few)


def _wall(taken: Sequence[Taken]) -> list[float]:
    return [each.wall for each in taken]


def _nodes(samples: int, say: Say) -> list[BenchRow]:
    """Gain of two nodes over two processes, where Ray is installed."""
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("bench.scale_nodes") is None:
        say("two nodes are not measured: Ray is not installed")
        return []
    rows: list[BenchRow] = importlib.import_module("bench.scale_nodes").rows(samples, say)
    return rows
