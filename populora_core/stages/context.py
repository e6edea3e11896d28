"""The context of a stage: its inputs, its settings, its random streams, and the services it may use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from populora_core.compute.shards import Shards
from populora_core.config.load import Config
from populora_core.population.member import Member
from populora_core.population.pbt import Hyperparameters
from populora_core.problems.dialects import Dialect
from populora_core.problems.grading import RunJobs
from populora_core.runs.session import Session
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.sandbox.verify import verify_or_raise
from populora_core.stages.plan import StagePlan
from populora_core.stages.table import file_name
from populora_core.store.adapters import MOMENTS, WEIGHTS
from populora_core.store.artifacts import StageWriter
from populora_core.store.manifest import METRIC_NAME, read_manifest, stage_dir
from populora_core.store.rows import RowReader
from populora_core.store.schema import to_table
from populora_core.support import ids
from populora_core.support.errors import ArtifactError, ProblemError


@dataclass(slots=True)
class StageContext(RowReader):
    """One execution of one stage.

    Attributes:
        extra: goes into the manifest: times, paths and what else is not content.
        shards: runs shards; those that are finished outlive a kill, and go once the stage is committed.
    """

    session: Session
    plan: StagePlan
    writer: StageWriter
    shards: Shards
    progress: Callable[[int, int], None]
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def generation(self) -> int:
        return self.plan.generation

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def config(self) -> Config:
        return self.session.run.config

    @property
    def dialect(self) -> Dialect:
        return self.session.dialect

    def rng(self, *names: object) -> np.random.Generator:
        """The random stream of this stage for the named purpose."""
        return ids.generator(self.seed, *names)

    # Inputs

    def folders(self, name: str) -> Sequence[Path]:
        """The folders of the input table, a generation each; `rows` reads them."""
        return self.plan.sources[name]

    def input_file(self, name: str) -> Path:
        """The Parquet file of an input table."""
        return self.plan.sources[name][-1] / file_name(name)

    def members(self) -> list[Member]:
        """The living members before this stage, in the order of their ids."""
        return [Member.of(row) for row in self.rows("population")]

    def hyperparameters(self) -> Mapping[str, Hyperparameters]:
        """Hyperparameters of the living members before this stage; empty where they are not inherited."""
        if not self.config.pbt.on:
            return {}
        return {row["member_id"]: Hyperparameters.of(row) for row in self.rows("hyperparameters")}

    def require_same(self, section: str, key: str, what: str) -> None:
        """A file to which somebody adds rows must not have a resume make a whole run again.

        What a fork took over is made again only for who asks, and then with the fork's file.

        Args:
            section, key: of the setting that counts by the file's content.

        Raises:
            ProblemError: the generation was made with another content.
        """
        run = self.session.run
        if self.generation <= run.settled:
            return
        manifest = read_manifest(stage_dir(run.directory, self.generation, self.plan.stage.name))
        now = self.plan.settings[section][key]
        before = manifest.config.get(section, {}).get(key) if manifest else None
        if before and before != now:
            raise ProblemError(
                f"the {what} has changed since generation {self.generation} was made; nothing was changed",
                expected=f"the file with sha256 {before}",
                got=f"sha256 {now}",
                fix="put that file back; or go on with the new one in a fork: populora fork --help",
            )

    # Services

    def sandbox_runner(self, determinism: bool, alone: bool = True) -> RunJobs:
        """Runs jobs in the sandbox, results in order; with `determinism` twice, under different hash seeds.

        With `alone`, what came near its time limit is tried once more by itself.

        A sandbox that goes down for good is an error of the stage, which can be resumed, and no result.
        """
        sandbox = self.session.sandbox

        def run_jobs(jobs: Sequence[Job]) -> list[JobResult]:
            results = verify_or_raise(
                sandbox,
                jobs,
                determinism=determinism,
                alone=alone,
                progress=lambda done: self.progress(done, len(jobs)),
            )
            # A sandbox that is spread over machines has records.
            records: list[dict[str, Any]] = getattr(sandbox, "records", [])
            self.shards.records += records
            records.clear()
            return results

        return run_jobs

    # Outputs

    def write(self, name: str, rows: Iterable[Mapping[str, Any]], beside: pa.Table | None = None) -> None:
        """Write a declared table; `beside` holds further columns of the same rows."""
        self.writer.write_table(name, to_table(name, rows, beside))

    def record_metric(self, name: str, value: float) -> None:
        """Record a figure that needs no column: people and trackers see it, and nothing follows from it.

        Args:
            name: a plain word; of two values under one name the later stays.

        Raises:
            ArtifactError: the name is no plain word, or the value no finite number.
        """
        if not re.fullmatch(METRIC_NAME, name) or not isinstance(value, Real) or not isfinite(value):
            raise ArtifactError(
                f"{self.plan.stage.name} cannot record the figure {name!r}",
                expected="a name of small letters, digits and _, with a letter first, and a finite number",
                got=f"{name!r}: {value!r}",
                fix="correct the call of record_metric",
            )
        self.extra.setdefault("metrics", {})[name] = float(value)

    def write_adapters(self, hashes: Mapping[str, Mapping[str, str]]) -> None:
        """Record the members that this stage wrote to `shards.files`.

        Args:
            hashes: member_id -> file name -> sha256.
        """
        run = self.session.run
        paths = {
            member: run.adapter_folder(member, self.generation).relative_to(run.directory).as_posix()
            for member in sorted(hashes)
        }
        rows = [
            {
                "generation": self.generation,
                "member_id": member,
                "path": path,
                "sha256": hashes[member][WEIGHTS],
                "moments_sha256": hashes[member][MOMENTS],
            }
            for member, path in paths.items()
        ]
        self.write("adapters", rows)
        self.extra["adapters"] = {path: dict(hashes[member]) for member, path in paths.items()}


def hash_columns(hashes: Mapping[str, str]) -> dict[str, str]:
    """The columns of `population` that name a member's files, from file name -> sha256."""
    return {"adapter_sha256": hashes[WEIGHTS], "moments_sha256": hashes[MOMENTS]}
