"""The context of a stage: its inputs, its settings, its random streams, and the services it may use."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from populora_core.compute.shards import Shards, towards
from populora_core.compute.work import Generate, Prompt, tokens_of
from populora_core.config.load import Config
from populora_core.planning.dealing import deal
from populora_core.population.islands import island_of_problem
from populora_core.population.member import Member
from populora_core.problems.archive import Graded
from populora_core.problems.buffer import Buffer
from populora_core.problems.coverage import Cell
from populora_core.problems.dialects import Dialect, seeds_of
from populora_core.problems.grading import RunJobs
from populora_core.problems.model import Problem
from populora_core.runs.session import Session
from populora_core.sampler.requests import Served
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.sandbox.verify import verify_or_raise
from populora_core.stages.plan import StagePlan
from populora_core.stages.table import file_name
from populora_core.store.adapters import MOMENTS, PROBE, STATE_FILES, WEIGHTS, state_intact
from populora_core.store.artifacts import StageWriter
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.store.rows import AdapterRow, ProblemRow, RetiredRow, RowReader
from populora_core.store.schema import to_table
from populora_core.support import ids
from populora_core.support.devices import CUDA
from populora_core.support.errors import ArtifactError, ProblemError

PROBLEM = ("problem_id", "problem_type", "program", "inputs", "outputs", "message")  # columns of a `Problem`


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

    def past(self, members: Collection[str]) -> dict[str, RetiredRow]:
        """member_id -> its row of `retired`, of past members; nothing is read if there are none."""
        if not members:
            return {}
        return {row["member_id"]: row for row in self.rows("retired") if row["member_id"] in members}

    def buffer(self, capacity: int, island: int = 0) -> Buffer:
        """The dialect's seeds and earlier generations' problems: references to show, keys to find duplicates by.

        Args:
            island: whose problems; there is one island unless the configuration says more.
        """
        buffer = Buffer(capacity)
        for problem_type in self.config.propose.types:
            for seed in seeds_of(self.dialect, problem_type):
                buffer.add(seed)
        for row in self.rows("problems", *PROBLEM, "program_key", "teacher_id"):
            if self._asked_on(row) == island:
                buffer.add(Problem.of(row), row["program_key"])
        return buffer

    def require_same(self, section: str, key: str, what: str) -> None:
        """A file to which somebody adds rows must not have a resume make a whole run again.

        Args:
            section, key: of the setting that counts by the file's content.

        Raises:
            ProblemError: the generation was made with another content.
        """
        manifest = read_manifest(stage_dir(self.session.run.directory, self.generation, self.plan.stage.name))
        now = self.plan.settings[section][key]
        before = manifest.config.get(section, {}).get(key) if manifest else None
        if before and before != now:
            raise ProblemError(
                f"the {what} has changed since generation {self.generation} was made; nothing was changed",
                expected=f"the file with sha256 {before}",
                got=f"sha256 {now}",
                fix="put that file back; or go on with the new one in a fork: populora fork --help",
            )

    def _asked_on(self, row: ProblemRow) -> int:
        """The island of a row of `problems`."""
        return island_of_problem(row["problem_id"], row["teacher_id"], self.config.population.islands)

    def graded(self, island: int = 0) -> list[Graded]:
        """An island's problems of all earlier generations that have a solve rate, oldest first."""
        rates = {
            row["problem_id"]: row["solve_rate"]
            for row in self.rows("problem_results", "problem_id", "solve_rate")
        }
        return [
            Graded(Problem.of(row), Cell.parse(row["cell"]), row["lines_of_code"], rate)
            for row in self.rows("problems", *PROBLEM, "cell", "lines_of_code", "teacher_id")
            if (rate := rates[row["problem_id"]]) is not None and self._asked_on(row) == island
        ]

    def problems(self) -> list[Problem]:
        """The generation's own."""
        return [Problem.of(row) for row in self.rows("problems", *PROBLEM, newest=1)]

    # Services

    def generate(self, prompts: Sequence[Prompt]) -> pa.Table | None:
        """Sample one completion a prompt, in order: the columns that `proposals` and `attempts` share.

        Returns:
            None without a prompt.

        Raises:
            AdapterNotServed: a sampler answers with something else than the members' adapters.
        """
        if not prompts:
            return None
        dealt = self._dealt(prompts)
        parts = []
        for number in range(max(dealt) + 1):
            share = [prompt for prompt, place in zip(prompts, dealt, strict=True) if place == number]
            owners = sorted({prompt.member_id for prompt in share if prompt.member_id})
            parts.append(Generate(adapters=list(self._served(owners).values()), prompts=share))
        done = self.shards.map(parts, towards(self.progress, len(prompts)))
        told = [
            {name.decode(): json.loads(text) for name, text in part.schema.metadata.items()} for part in done
        ]
        record = self.extra.setdefault("sampler", {"engine": told[0]["engine"], "probes": []})
        record["probes"] += [each["probe"] for each in told]
        for name, count in tokens_of(done).items():
            self.extra[name] = self.extra.get(name, 0) + count
        # A shard keeps the order of its prompts, so a stable sort by shard is the order in which rows came.
        came = np.argsort(dealt, kind="stable")
        return pa.concat_tables(part.replace_schema_metadata() for part in done).take(np.argsort(came))

    def _served(self, members: Collection[str]) -> dict[str, Served]:
        """The members' adapters as they were after the previous generation; a past one's as it was at its end."""
        run, newest = self.session.run, self.generation - 1
        rows = {row["member_id"]: row for row in self.rows("population")}
        past = self.past(set(members) - rows.keys())
        served = {}
        for name in members:
            if name in past:
                served[name] = self._served_again(past[name])
                continue
            row = rows[name]
            born_now = row["born_generation"] == newest
            before = row["parent_ids"] if born_now else [name]
            served[name] = Served(
                member_id=name,
                folder=run.adapter_folder(name, newest),
                sha256=row["adapter_sha256"],
                earlier=tuple(
                    run.adapter_folder(other, newest if born_now else newest - 1) / PROBE for other in before
                ),
            )
        return served

    def _served_again(self, row: RetiredRow) -> Served:
        """A past member's adapter as it was when it was removed, which pruning keeps; from a row of `retired`."""
        run, name, removed = self.session.run, row["member_id"], row["generation"]
        return Served(
            member_id=name,
            folder=run.adapter_folder(name, removed),
            sha256=row["adapter_sha256"],
            earlier=(run.adapter_folder(name, removed - 1) / PROBE,),
        )

    def member_folders(self) -> dict[str, Path]:
        """member_id -> the folder of the member as it was after the previous generation.

        Raises:
            ArtifactError: one is not what the population names.
        """
        rows = self.rows("population", "member_id", "adapter_sha256", "moments_sha256")
        return {
            row["member_id"]: self._whole(
                row["member_id"], self.generation - 1, row["adapter_sha256"], row["moments_sha256"]
            )
            for row in rows
        }

    def earlier_folders(self, members: Iterable[str]) -> dict[str, Path]:
        """member_id -> the folder of its version before the newest, where that is kept and rounding may hide a fault.

        In float32 the proof at load has shown everything, and nothing is compared again.
        """
        if self.config.base.dtype == "float32":
            return {}
        folders = {name: self.session.run.adapter_folder(name, self.generation - 2) for name in members}
        return {name: folder for name, folder in folders.items() if (folder / WEIGHTS).is_file()}

    def updated_folders(self, rows: Iterable[AdapterRow]) -> dict[str, Path]:
        """member_id -> the folder of the member as this generation's update wrote it, from rows of `adapters`.

        Raises:
            ArtifactError: one is not what the row names.
        """
        return {
            row["member_id"]: self._whole(
                row["member_id"], self.generation, row["sha256"], row["moments_sha256"]
            )
            for row in rows
        }

    def _whole(self, member: str, generation: int, adapter_sha256: str, moments_sha256: str) -> Path:
        folder = self.session.run.adapter_folder(member, generation)
        if not state_intact(folder, {WEIGHTS: adapter_sha256, MOMENTS: moments_sha256}):
            raise ArtifactError(
                f"{folder} does not hold {member} as generation {generation} left it",
                expected=" and ".join(STATE_FILES) + " with the recorded sha256",
                got="missing or other files",
                fix=f"populora resume {self.session.run.directory} makes a damaged member again",
            )
        return folder

    def _dealt(self, prompts: Sequence[Prompt]) -> list[int]:
        """The shard of each prompt.

        On a CPU whole members stay together: equality is promised there, and a token's bits follow from its batch. On
        GPUs, whose rounding no one repeats, requests are dealt, so that all of them sample whatever the roles.
        """
        if self.config.base.device == CUDA:
            return deal(
                [_expected(prompt) for prompt in prompts], min(self.config.compute.shards, len(prompts))
            )
        owners = self.shares({prompt.member_id: 1.0 for prompt in prompts if prompt.member_id})
        shard_of: dict[str | None, int] = {
            member: part for part, share in enumerate(owners) for member in share
        }
        return [shard_of[prompt.member_id] for prompt in prompts]

    def shares(self, members: Mapping[str, float]) -> list[list[str]]:
        """The members of each shard that has any.

        Args:
            members: member_id -> how much work it is; on GPUs the work is shared out evenly.
        """
        ordered = sorted(members)
        shards = self.config.compute.shards
        if self.config.base.device == CUDA:
            dealt = deal([members[member] for member in ordered], shards)
        else:
            dealt = [number % shards for number in range(len(ordered))]
        found = [
            [m for m, place in zip(ordered, dealt, strict=True) if place == shard] for shard in range(shards)
        ]
        return [share for share in found if share]

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


def _expected(prompt: Prompt) -> float:
    """Expected tokens of a prompt: a quarter of its letters to read, and of its limit to write."""
    return len(prompt.text) / 4 + prompt.max_tokens / 4
