"""Evaluating: every player answers every problem of one half of a suite, all players in one multi-LoRA batch.

The work is cut into shards of some problems of one benchmark, all players together. A finished shard is one
Parquet file whose name holds the key of all that decides its content, so a kill loses one shard at most.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from populora_core.benchmarks.benchmark import Benchmark, Item, Response, benchmark
from populora_core.benchmarks.items import suite_items
from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Entry, Part, Suite
from populora_core.compute.shards import Shards, towards
from populora_core.compute.work import Generate, Prompt, tokens_of
from populora_core.problems.dialects import dialect, stops_of
from populora_core.runs.session import Session
from populora_core.sampler.requests import Served
from populora_core.sandbox.jobs import Limits, Sandbox
from populora_core.stages.decisive import shard_plan
from populora_core.store.adapters import PROBE
from populora_core.store.rows import EvaluationItemRow, SampledRow
from populora_core.store.schema import to_table
from populora_core.support import durable, ids
from populora_core.support.finish import FinishReason

SHARD_COMPLETIONS = 512
ITEMS = "evaluation_items"
ANSWERED: tuple[str, ...] = ("prompt", "completion", "completion_tokens", "finish_reason")


SuiteItems = Sequence[tuple[Entry, Sequence[Item]]]
"""Entries of a suite, each with its problems."""


@dataclass(frozen=True, slots=True)
class Player:
    """A member, or the base, that answers.

    Attributes:
        adapter_sha256: of the member's weights; None is the base model without an adapter.
        folder: where they lie; None for the member's own folder in the run.
    """

    member_id: str
    adapter_sha256: str | None = None
    folder: Path | None = None


BASE_PLAYER = Player(BASE)


@dataclass(frozen=True, slots=True)
class SuiteShard:
    """Some problems of one benchmark.

    Attributes:
        key: sha256 over all that decides what the players answer and how it is judged.
    """

    entry: Entry
    benchmark: Benchmark
    items: tuple[Item, ...]
    number: int
    key: str

    @property
    def file_name(self) -> str:
        return f"{self.entry.benchmark.replace(':', '.')}-{self.number:03d}-{self.key[:24]}.parquet"


class Evaluation:
    """One half of a suite, to be answered by some players as they are after a generation.

    Args:
        finished: folder of the finished shards; it may hold some of an earlier, killed evaluation.
        problems: of each benchmark; None for those that the suite names.

    Attributes:
        records: who sampled what, of the shards that were not done yet (see `compute.shards.Shards`).
        tokens: of these (see `compute.work.tokens_of`).
    """

    kept = ANSWERED  # of a completion

    def __init__(
        self,
        session: Session,
        suite: Suite,
        part: Part,
        players: Sequence[Player],
        generation: int,
        finished: Path,
        problems: SuiteItems | None = None,
    ) -> None:
        self.session, self.suite, self.part, self.players = session, suite, part, tuple(players)
        self.generation, self.finished, self._problems = generation, finished, problems
        self.records: list[dict[str, Any]] = []
        self.tokens: Counter[str] = Counter()
        self.family = session.run.config.base.dialect

    @cached_property
    def shards(self) -> list[SuiteShard]:
        """The work, in order.

        Raises:
            BenchmarkError: a benchmark's rows are missing or wrong, or it has no template for the model family.
        """
        shards = []
        given = suite_items(self.suite, self.part) if self._problems is None else self._problems
        for entry, items in given:
            known = benchmark(entry.benchmark)
            size = max(1, SHARD_COMPLETIONS // (len(self.players) * entry.attempts))
            for start in range(0, len(items), size):
                chosen = tuple(items[start : start + size])
                key = self._key(entry, known, chosen)
                shards.append(SuiteShard(entry, known, chosen, start // size, key))
        return shards

    @property
    def key(self) -> str:
        """sha256 over all that decides the result."""
        parts = [self.suite.suite, str(self.part), *(shard.key for shard in self.shards)]
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    @property
    def completions(self) -> int:
        """Number of completions over all shards."""
        return sum(map(self._completions, self.shards))

    @property
    def most_tokens(self) -> int:
        """Largest number of tokens that can be sampled."""
        return sum(self._completions(shard) * shard.entry.max_tokens for shard in self.shards)

    @property
    def done(self) -> int:
        """Number of completions that have a file already; `run` reads it, and makes a damaged one again."""
        return sum(
            self._completions(shard) for shard in self.shards if (self.finished / shard.file_name).is_file()
        )

    def run(self, progress: Callable[[int, int], None]) -> pa.Table:
        """Answer and judge what is not done yet; every completion, as the table `evaluation_items`.

        Args:
            progress: called with the completions done and all of them.

        Raises:
            SandboxUnavailable: the sandbox went down for good. Shards that were finished stay.
            ArtifactError: a finished shard could not be written.
        """
        with durable.writing(self.finished):
            self.finished.mkdir(parents=True, exist_ok=True)
            durable.sweep(self.finished)
        tables, done = [], 0
        for shard in self.shards:
            table = self._read(shard)
            if table is None:
                sampling = self.session.shards(shard.key, self.finished / shard.key[:24])
                table = self._answer(shard, sampling, towards(progress, self.completions, done))
                self._write(shard, table)
                sampling.release()
                self.records += sampling.records
            tables.append(table)
            done += self._completions(shard)
            progress(done, self.completions)
        return pa.concat_tables(tables)

    def clear(self) -> None:
        """Remove the finished shards, once the result is committed."""
        shutil.rmtree(self.finished, ignore_errors=True)

    def _completions(self, shard: SuiteShard) -> int:
        return len(shard.items) * len(self.players) * shard.entry.attempts

    def _answer(self, shard: SuiteShard, sampling: Shards, progress: Callable[[int], None]) -> pa.Table:
        asked = [
            (item, player, sample)
            for item in shard.items
            for player in self.players
            for sample in range(shard.entry.attempts)
        ]
        completions = self._sample(shard, asked, sampling, progress)
        responses = [Response(row["completion"], FinishReason(row["finish_reason"])) for row in completions]
        with self._sandbox(shard.benchmark.limits) as sandbox:
            scores = shard.benchmark.grade([item for item, _, _ in asked], responses, self.family, sandbox)
        template = shard.benchmark.template(self.family)
        rows: list[EvaluationItemRow] = []
        for (item, player, sample), row, score in zip(asked, completions, scores, strict=True):
            rows.append(
                {
                    "generation": self.generation,
                    "member_id": player.member_id,
                    "suite": self.suite.suite,
                    "part": self.part,
                    "benchmark": shard.entry.benchmark,
                    "item_id": item.item_id,
                    "stratum": item.stratum,
                    "sample_index": sample,
                    "temperature": shard.entry.temperature,
                    "template": template,
                    "prompt": row["prompt"],
                    "completion": row["completion"],
                    "completion_tokens": row["completion_tokens"],
                    "finish_reason": row["finish_reason"],
                    "answer": score.answer,
                    "verdict": score.verdict,
                    "correct": score.correct,
                    "detail": score.detail,
                }
            )
        return self._table(rows, completions)

    def _table(self, rows: Sequence[EvaluationItemRow], completions: Sequence[SampledRow]) -> pa.Table:
        """The table of a shard as it is stored: its rows, each of a completion."""
        return to_table(ITEMS, rows)

    @property
    def _served(self) -> list[Served]:
        """The adapters of the players that are members, as they were after the generation."""
        folder = self.session.run.adapter_folder
        return [
            Served(
                member_id=player.member_id,
                folder=player.folder or folder(player.member_id, self.generation),
                sha256=player.adapter_sha256,
                earlier=(folder(player.member_id, self.generation - 1) / PROBE,),
            )
            for player in self.players
            if player.adapter_sha256
        ]

    def _sample(
        self,
        shard: SuiteShard,
        asked: Sequence[tuple[Item, Player, int]],
        sampling: Shards,
        progress: Callable[[int], None],
    ) -> list[SampledRow]:
        """One completion for each, in order; the workers share the problems, each has every player."""
        entry, workers = shard.entry, self.session.run.config.compute.shards
        by_dialect = getattr(shard.benchmark, "by_dialect", False)
        text = {item.item_id: shard.benchmark.prompt(item, self.family) for item in shard.items}
        place = {item.item_id: number % workers for number, item in enumerate(shard.items)}
        shares: list[list[Prompt]] = [[] for _ in range(workers)]
        for item, player, sample in asked:
            shares[place[item.item_id]].append(
                Prompt(
                    member_id=player.member_id if player.adapter_sha256 else None,
                    text=text[item.item_id],
                    # Common to all players: what they draw differs by their policies alone.
                    seed=ids.draw_seed(self.suite.seed, entry.benchmark, item.item_id, sample),
                    temperature=entry.temperature,
                    top_p=entry.top_p,
                    max_tokens=entry.max_tokens,
                )
            )
        done = sampling.map(
            [Generate(self._served, share, by_dialect) for share in shares if share], progress
        )
        self.tokens.update(tokens_of(done))
        answers = [iter(part.select(list(self.kept)).to_pylist()) for part in done]
        return [next(answers[place[item.item_id]]) for item, _, _ in asked]

    @contextmanager
    def _sandbox(self, limits: Limits | None) -> Iterator[Sandbox]:
        """The run's sandbox, or one with the limits that a benchmark asks for."""
        if limits is None:
            yield self.session.sandbox
            return
        with self.session.open_sandbox(limits, hash_seed=0) as sandbox:
            yield sandbox

    def _key(self, entry: Entry, known: Benchmark, items: Sequence[Item]) -> str:
        session, spec = self.session, self.session.model_spec
        limits = known.limits
        document = {
            "part": self.part,
            "seed": self.suite.seed,
            "entry": entry.model_dump(mode="json"),
            "benchmark": [known.version, known.template(self.family), *self._stops(known, items)],
            # By hash, one after the other: the tests of a benchmark's items can be gigabytes of text.
            "items": [_sha256([item.item_id, item.fields]) for item in items],
            "players": [(player.member_id, player.adapter_sha256) for player in self.players],
            "generation": self.generation,
            "base": [
                spec.digest,
                spec.base.numbers,
                spec.base.device,
                spec.adapters.rank,
                spec.adapters.alpha,
            ],
            "compute": shard_plan(session.run.config.compute),
            "sampler": spec.sampler.engine,
            "sandbox": [session.sandbox.identity, repr(limits or session.sandbox.limits)],
        }
        return _sha256(document)

    def _stops(self, known: Benchmark, items: Sequence[Item]) -> list[str]:
        """Texts of the dialect that end an answer to one of the items."""
        if not getattr(known, "by_dialect", False):
            return []
        spoken = dialect(self.family)
        return sorted({text for item in items for text in stops_of(spoken, known.prompt(item, self.family))})

    def _read(self, shard: SuiteShard) -> pa.Table | None:
        """The finished shard; None where there is none, or it is damaged."""
        try:
            file = pq.ParquetFile(self.finished / shard.file_name, page_checksum_verification=True)
            return file.read().cast(self._table([], []).schema)
        except (OSError, pa.ArrowException, ValueError):
            return None

    def _write(self, shard: SuiteShard, table: pa.Table) -> None:
        with durable.replacing(self.finished / shard.file_name) as temporary:
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def seeded(suite: Suite, seed: int | None) -> Suite:
    """The suite with another seed for its draws; None leaves it."""
    return suite if seed is None else suite.model_copy(update={"seed": seed})


def players_of(adapters: Mapping[str, str]) -> list[Player]:
    """The members in the order of their ids, from member_id -> sha256 of its weights."""
    return [Player(member_id, adapters[member_id]) for member_id in sorted(adapters)]


def _sha256(document: object) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
