"""The summary of one finished run: a small Parquet file that says what was measured, and what it was made by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from populora_core.config.load import Config
from populora_core.stages.decisive import deciding_keys, decisive, rules
from populora_core.stages.drift import moved_settings
from populora_core.stages.table import STAGES
from populora_core.support import durable
from populora_core.support.errors import ArtifactError
from populora_core.support.received import parse_json, read_json

ALL = "all"
HELD_OUT, AVERAGE = "held_out", "average"
COPIES, INHERITS, FRESH = "copies", "inherits", "fresh"
"""Score of members that were copied, and the rules by which copies came by their optimisers."""

VERSION = 3
"""Version of the measures, to raise whenever equal runs would be measured differently."""

MOST_BYTES = 300_000
SCHEMA = pa.schema(
    [
        ("generation", pa.int32()),
        ("measure", pa.dictionary(pa.int32(), pa.string())),
        ("part", pa.dictionary(pa.int32(), pa.string())),
        ("value", pa.float64()),
    ]
)
SUMMARIES = "*-seed-*.parquet"
RECORD = "record.json"
"""File beside the summaries of a finished study that names the code that made them."""
_METADATA = b"populora_study"
# Compared otherwise (generations by number, the base by its digest), or without effect on results.
_FREE = frozenset({"run.generations", "base.path", "sandbox.workers", "sandbox.backend"})
_AUTO = "auto"
_FILES = (("anchors", "parameters"), ("update", "corpus"))
"""Settings that may name a file, of which the maker of stages knows the sha256."""


class Value(NamedTuple):
    """One figure of one generation."""

    generation: int
    measure: str
    part: str
    value: float


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a summary: the configuration and code that made it.

    Attributes:
        config: the arm's resolved configuration with this seed, as JSON.
        stage_versions: of every stage, of the summary itself, and of the rules that the run followed; older summaries
            do not know the rules.
        suite: digest of the held-out suite, with that of its sample and who answered where these were set.
        code_revisions: of every code that made a stage of the run.
        seconds: wall time in stages and evaluations.
        evaluation_seconds: of it, in evaluations.
        contents: setting that names a file to play or learn from -> its sha256.
    """

    arm: str
    seed: int
    config: dict[str, Any]
    stage_versions: dict[str, int]
    base_digest: str
    suite: str
    evaluate_every: int
    code_revisions: tuple[str, ...] = ()
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    contents: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return run_name(self.arm, self.seed)

    def stale(self, now: Origin) -> str | None:
        """The reason why a run of this origin does not count beside one of origin `now`; None if it does.

        It is what moved, as the maker of stages says it. A setting that only `now` knows must be at its default,
        which is what was done before; one that only the older knows is passed over, as are those that one of them
        leaves to the machine.
        """
        moved = [
            f"version of {stage} {version} → {now.stage_versions[stage]}"
            for stage, version in self.stage_versions.items()
            if now.stage_versions.get(stage, version) != version
        ]
        if self.config["run"]["generations"] != now.config["run"]["generations"]:
            moved.append("it has another number of generations")
        moved += [f"{name} is new, and not at its default" for name in self._added(now)]
        compared = list(self._compared(now))
        moved += moved_settings(_chosen(self.config, compared), _chosen(now.config, compared))
        moved += [
            f"content of {setting}"
            for setting, sha256 in self.contents.items()
            if now.contents.get(setting, sha256) != sha256
        ]
        if self.base_digest != now.base_digest:
            moved.append("the base model is another")
        if (self.suite, self.evaluate_every) != (now.suite, now.evaluate_every):
            moved.append("it was evaluated on another suite or at other generations")
        return "; ".join(moved) or None

    def _compared(self, now: Origin) -> Iterator[tuple[str, str]]:
        """(section, key) of the deciding settings that both know."""
        for section in [section for section in self.config if section in now.config]:
            old, new = self.config[section], now.config[section]
            deciding = {*deciding_keys(section, old), *deciding_keys(section, new)}
            for key in sorted(deciding & old.keys() & new.keys()):
                if f"{section}.{key}" not in _FREE and _AUTO not in (old[key], new[key]):
                    yield section, key

    def _added(self, now: Origin) -> Iterator[str]:
        """Deciding settings that came since and say something else than what was done before."""
        for section, defaults in Config().as_json().items():
            old, new = self.config.get(section, {}), now.config.get(section, {})
            for key in sorted(set(deciding_keys(section, new)) - old.keys() if new else ()):
                if f"{section}.{key}" not in _FREE and new.get(key) not in (defaults.get(key), _AUTO):
                    yield f"{section}.{key}"


def _chosen(config: Mapping[str, Any], keys: Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    chosen: dict[str, dict[str, Any]] = {}
    for section, key in keys:
        chosen.setdefault(section, {})[key] = config[section][key]
    return chosen


@dataclass(frozen=True)
class Summary:
    """One finished run, measured.

    Attributes:
        values: in order of generation, measure and part.
    """

    origin: Origin
    values: tuple[Value, ...] = field(repr=False)

    @cached_property
    def _series(self) -> Mapping[tuple[str, str], dict[int, float]]:
        found: dict[tuple[str, str], dict[int, float]] = {}
        for generation, measure, part, value in self.values:
            found.setdefault((measure, part), {})[generation] = value
        return found

    def series(self, measure: str, part: str) -> dict[int, float]:
        """generation -> value; empty where nothing was measured."""
        return self._series.get((measure, part), {})

    def parts(self, measure: str) -> list[str]:
        return sorted(part for name, part in self._series if name == measure)

    def solvers(self, measure: str) -> list[str]:
        """The slots of students and of the single agent that have the measure."""
        return [part for part in self.parts(measure) if part.startswith(("student-", "solo-"))]


def run_name(arm: str, seed: int) -> str:
    return f"{arm}-seed-{seed:04d}"


def stage_versions() -> dict[str, int]:
    """Versions of every stage as the code is now, and of the summary."""
    return {name: stage.version for name, stage in STAGES.items()} | {"summary": VERSION}


def versions_of(config: Config) -> dict[str, int]:
    """The versions that a run of this configuration would have if made now."""
    return stage_versions() | rules(config)


def origin_of(
    arm: str, seed: int, config: Config, base_digest: str, suite: str, evaluate_every: int
) -> Origin:
    """The origin that a run of this arm and seed would have if made now.

    Raises:
        ProblemError: a file to play or learn from is missing.
    """
    chosen = decisive(config, [section for section, _ in _FILES])
    contents = {
        f"{section}.{key}": named
        for section, key in _FILES
        if isinstance(named := chosen.get(section, {}).get(key), str) and named
    }
    return Origin(
        arm,
        seed,
        config.as_json(),
        versions_of(config),
        base_digest,
        suite,
        evaluate_every,
        contents=contents,
    )


def recorded_by(folder: Path) -> str | None:
    """The code revision that made these results, if they are a record, which no later code voids or makes again."""
    path = folder / RECORD
    return read_json(path)["code_revision"] if path.exists() else None


def write_summary(path: Path, origin: Origin, values: Iterable[Value]) -> Summary:
    """Write a summary in place of an older one.

    Raises:
        ArtifactError: it could not be written, or is larger than `MOST_BYTES`.
    """
    ordered = tuple(sorted(values))
    metadata = {_METADATA: json.dumps(asdict(origin), sort_keys=True).encode()}
    rows = [dict(zip(SCHEMA.names, value, strict=True)) for value in ordered]
    table = pa.Table.from_pylist(rows, SCHEMA.with_metadata(metadata))
    path.parent.mkdir(parents=True, exist_ok=True)
    with durable.replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
        size = temporary.stat().st_size
        if size > MOST_BYTES:
            raise ArtifactError(
                f"the summary {path} is too large to be kept with the code",
                expected=f"at most {MOST_BYTES} bytes",
                got=f"{size} bytes",
                fix="measure fewer parts",
            )
    return Summary(origin, ordered)


def read_summary(path: Path) -> Summary:
    """Read a summary back.

    Raises:
        ArtifactError: it is missing, damaged, or no summary.
    """
    try:
        table = pq.read_table(path)
        found = parse_json(table.schema.metadata[_METADATA], path)
        origin = Origin(**found | {"code_revisions": tuple(found["code_revisions"])})
        return Summary(origin, tuple(Value(**row) for row in table.select(SCHEMA.names).to_pylist()))
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise ArtifactError(
            f"{path} is no summary of a study's run",
            got=str(error),
            fix="remove it; populora study makes it again",
        ) from error


def why_void(path: Path, now: Origin) -> str | None:
    """The reason why a summary does not count: "" if there is none; None if it counts."""
    if not path.exists():
        return ""
    try:
        return read_summary(path).origin.stale(now)
    except ArtifactError as error:
        return error.problem


def read_summaries(folder: Path) -> list[Summary]:
    """Every summary in a folder of results, by arm and seed.

    Raises:
        ArtifactError: one cannot be read, or is of another run than its name says: a copy would count twice.
    """
    found = []
    for path in sorted(folder.glob(SUMMARIES)):
        summary = read_summary(path)
        if summary.origin.name != path.stem:
            raise ArtifactError(
                f"{path} is the summary of another run",
                expected=path.stem,
                got=summary.origin.name,
                fix="remove it, or give it the name of its run",
            )
        found.append(summary)
    return sorted(found, key=lambda summary: (summary.origin.arm, summary.origin.seed))
