"""Solvers beside the frozen base on the same problems, read from a run's evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

from pydantic import ValidationError

from populora_core.benchmarks.metrics import CONFIDENCE, Interval, mean_interval
from populora_core.benchmarks.scores import (
    BASE,
    Pairs,
    by_problem,
    difference,
    headlines,
    shared_scores,
    tells_nothing,
)
from populora_core.benchmarks.strata import by_stratum, level_of
from populora_core.benchmarks.suite import OWN, VALIDITY, YARDSTICK, Suite, load_suite
from populora_core.config.load import Config
from populora_core.runs.run import Run, suites
from populora_core.stages.measure import SELECTION
from populora_core.store.manifest import (
    EVALUATION,
    Manifest,
    complete,
    read_manifest,
    stage_dir,
    stage_folder_names,
)
from populora_core.store.rows import EvaluationItemRow, StageTables
from populora_core.support import ids
from populora_core.support.errors import PopuloraError
from populora_core.support.trust import is_trusted

ITEMS, TEST, TEACHERS = "evaluation_items", "test", "teacher-"
WHOLE = ("all", "solvers", "teachers")
"""Selections that are whole groups, not members that a person chose."""
HALF = 0.5  # what the base solves of a level that counts as hard
# What is read of the answers behind a score.
COLUMNS = (
    *("generation", "member_id", "suite", "part", "benchmark", "item_id", "stratum", "sample_index"),
    *("temperature", "answer", "verdict", "correct"),
)


@dataclass(frozen=True)
class Scored:
    """Solvers and base on the same problems, after one generation.

    Attributes:
        pairs: of each benchmark, the solvers' mean scores and the base's, problem by problem.
        seed: of the suite, which the intervals are drawn from.
        own: whether it is the suite that the run's configuration names.
        everyone: whether all solvers answered, not some that a person chose.
        nothing: whether base and members all score at the floor (`benchmarks.scores.tells_nothing`).
        strata: the pairs within each stratum of the suite.
        rules: by which the answers were drawn and judged, and of which problems.
    """

    generation: int
    suite: str
    pairs: Sequence[Pairs]
    seed: int
    own: bool = True
    everyone: bool = True
    nothing: bool = False
    strata: Mapping[str, Sequence[Pairs]] = field(default_factory=dict)
    rules: tuple[object, ...] = ()

    @property
    def problems(self) -> int:
        """Number of problems that all of them answered."""
        return sum(len(own) for own, _ in self.pairs)

    @cached_property
    def by_benchmark(self) -> tuple[Scored, ...]:
        """The same on each benchmark alone, in the order of the suite."""
        return tuple(Scored(self.generation, self.suite, [pairs], self.seed) for pairs in self.pairs)

    @cached_property
    def by_stratum(self) -> dict[str, Scored]:
        """The same within each stratum of the suite; empty where it has none."""
        return {
            name: Scored(self.generation, self.suite, pairs, self.seed) for name, pairs in self.strata.items()
        }

    def first_hard_level(self) -> str | None:
        """The first level that the base solves less than half of, whatever the solvers do; None without levels."""
        levels = {name: of for name, of in self.by_stratum.items() if level_of(name) is not None}
        return next((name for name, of in levels.items() if of.base.value < HALF), None)

    @cached_property
    def solvers(self) -> Interval:
        """The solvers' mean score."""
        return self._mean("solvers", [own for own, _ in self.pairs])

    @cached_property
    def base(self) -> Interval:
        """The base's mean score."""
        return self._mean("base", [own for _, own in self.pairs])

    @property
    def gain(self) -> Interval:
        """Solvers minus base, paired over problems; a bootstrap, so only of what is shown."""
        return self.gain_within(CONFIDENCE)

    def gain_within(self, confidence: float) -> Interval:
        """The gain with the interval of another confidence."""
        if confidence not in self._gains:
            found = difference(self.pairs, self.seed, "solvers", confidence=confidence)
            assert found is not None, "every benchmark has a problem that all answered"
            self._gains[confidence] = found
        return self._gains[confidence]

    @cached_property
    def _gains(self) -> dict[float, Interval]:
        return {}

    def _mean(self, who: str, scores: Sequence[Sequence[float]]) -> Interval:
        return mean_interval(scores, ids.generator(self.seed, "mean", who))


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Solvers and base on the first problems of a run and on the newest, after one generation."""

    generation: int
    first: Scored
    newest: Scored

    def harder(self) -> Interval:
        """The base on the newest problems minus the base on the first: how much easier they became.

        The two are different problems, so the interval is that of a difference of independent means, from
        theirs (MOVER; Zou and Donner 2008, Statistics in Medicine 27, 1693-1702, section 2).
        """
        now, before = self.newest.base, self.first.base
        value = now.value - before.value
        below = math.hypot(now.value - now.low, before.high - before.value)
        above = math.hypot(now.high - now.value, before.value - before.low)
        return Interval(value, value - below, value + above)


def scored(directory: Path, generation: int | None = None) -> list[Scored]:
    """The evaluations on a held-out suite that hold solvers and base, oldest first.

    The suite is the run's own where it was evaluated, else the one evaluated last. One that tells nothing is left out,
    and so are scores by other rules than the newest: a course through both would show the rules, not the solvers.

    Args:
        generation: this one alone; None for all.
    """
    found = [item for item in _read(directory, None) if not item.nothing]
    found = [item for item in found if item.everyone] or found
    if not found:
        return []
    newest = max(found, key=lambda item: (item.own, item.generation))
    alike = [item for item in found if (item.suite, item.rules) == (newest.suite, newest.rules)]
    return [item for item in alike if generation in (None, item.generation)]


def telling_nothing(directory: Path) -> list[str]:
    """The held-out suites on which base and members all score at the floor, as last evaluated."""
    newest = {item.suite: item.nothing for item in _read(directory, None)}
    return [suite for suite, nothing in newest.items() if nothing]


def yardsticks(directory: Path, generation: int | None = None) -> list[Yardstick]:
    """The yardstick's results, oldest first."""
    found = _read(directory, generation, YARDSTICK)
    return [Yardstick(item.generation, *item.by_benchmark[:2]) for item in found]


def validities(directory: Path, generation: int | None = None) -> list[Scored]:
    """Valid proposals of the teachers, in place of solvers, and of the base with the same references, oldest first."""
    return _read(directory, generation, VALIDITY)


def answers(directory: Path, item: Scored) -> list[EvaluationItemRow]:
    """The answers of solvers and base behind the scores of an evaluation, without their texts."""
    return _answers(stage_dir(directory, item.generation, EVALUATION + item.suite), item.suite)


def _answers(folder: Path, suite: str) -> list[EvaluationItemRow]:
    rows = StageTables(folder).rows("evaluation_items", *COLUMNS)
    return _counting([row for row in rows if row["part"] == TEST], suite)


def _counting(rows: Sequence[EvaluationItemRow], suite: str) -> list[EvaluationItemRow]:
    """The rows without those of teachers, where a suite asks for solutions."""
    return [row for row in rows if suite == VALIDITY or not row["member_id"].startswith(TEACHERS)]


def _read(directory: Path, generation: int | None, of: str | None = None) -> list[Scored]:
    """The evaluations on a suite of the run's own, or where none is named on all others, oldest first."""
    found = []
    own = frozenset(_own_names(Run.open(directory).config))
    for path in stage_folder_names(directory, None if generation is None else [generation]):
        stage = path.rpartition("/")[2]
        suite = stage.removeprefix(EVALUATION)
        if suite == stage or (suite if suite in OWN else None) != of:
            continue
        folder = Path(path)
        manifest = read_manifest(folder)
        if manifest is None or f"{ITEMS}.parquet" not in manifest.contents or not complete(folder, manifest):
            continue
        item = _evaluation(folder, manifest.key, tuple(manifest.contents.values()), own)
        found += [] if item is None else [item]
    return found


@lru_cache(maxsize=1 << 10)
def _evaluation(folder: Path, key: str, contents: tuple[str, ...], own: frozenset[str]) -> Scored | None:
    """Score an evaluation once: a report comes back to it in every generation. None where its suite cannot be read.

    Args:
        key, contents: from its manifest: they change with what it says.
        own: names of the suite of the run's configuration.
    """
    manifest = read_manifest(folder)
    assert manifest is not None
    try:
        suite = Suite.model_validate(manifest.config.get("suite"))
    except ValidationError:
        return None
    asked = _answers(folder, suite.suite)
    if BASE not in {row["member_id"] for row in asked}:
        return None
    item = _scored(manifest.generation, suite, asked)
    if item is None:
        return None
    rows = StageTables(folder).rows("evaluations")
    nothing = suite.suite not in OWN and tells_nothing([row for row in rows if row["part"] == TEST], suite)
    return replace(
        item,
        own=any(_is(suite.suite, name) for name in own),
        everyone=manifest.extra.get(SELECTION, "all") in WHOLE,
        nothing=nothing,
        rules=_rules(manifest, suite),
    )


def _rules(evaluation: Manifest, suite: Suite) -> tuple[object, ...]:
    """The digest of problems and of how they are judged, and how answers to each benchmark are drawn."""
    drawn = [
        (entry.attempts, entry.k[0], entry.temperature, entry.top_p, entry.max_tokens)
        for entry in suite.benchmarks
    ]
    return evaluation.config.get("problems"), *drawn


def _own_names(config: Config) -> set[str]:
    """Names of the suite that the configuration names: by its file, and by itself where that may be read."""
    file, named = config.evaluate.file(), set[str]()
    with suppress(PopuloraError):
        if all(map(is_trusted, suites(config))):
            named = {load_suite(file).suite}
    return named | {file.stem}


def _is(suite: str, name: str) -> bool:
    """True if a suite, or a sample of it, has this name."""
    whole, _, number = suite.rpartition("-")
    alike = {suite, whole if whole and number.isdigit() else suite}
    return name.replace("-", "_") in {each.replace("-", "_") for each in alike}


def of_items(generation: int, suite: Suite, rows: Sequence[EvaluationItemRow]) -> Scored | None:
    """Solvers and base by the rows of an evaluation; None where either did not answer. Teachers are left out."""
    return _scored(generation, suite, _counting(rows, suite.suite))


def _scored(generation: int, suite: Suite, rows: Sequence[EvaluationItemRow]) -> Scored | None:
    solvers = sorted({row["member_id"] for row in rows} - {BASE})
    pairs = []
    for metric in headlines(suite):
        own = by_problem(rows, metric)
        if BASE not in own or not solvers:
            return None
        pairs.append(shared_scores([own[member].scores for member in solvers], [own[BASE].scores]))
    if not all(solved for solved, _ in pairs):
        return None
    return Scored(generation, suite.suite, pairs, suite.seed, strata=by_stratum(rows, suite, solvers))
