"""Evaluating: every player answers every problem of one half of a suite, all players in one multi-LoRA batch.

The work is cut into blocks of some problems of one benchmark, all players together. A block's answers are shards, so
a kill loses one block at most.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from populora_core.benchmarks.benchmark import Benchmark, Item, Response, benchmark, ends_of
from populora_core.benchmarks.items import require_problems, suite_items
from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Entry, Part, Suite
from populora_core.compute.shards import Shards, towards
from populora_core.compute.work import Generate, Prompt, tokens_of
from populora_core.problems.dialects import dialect, stops_of
from populora_core.runs.session import Session
from populora_core.sampler.requests import Served
from populora_core.sandbox.jobs import Limits, Sandbox
from populora_core.store.adapters import PROBE
from populora_core.store.rows import EvaluationItemRow, SampledRow
from populora_core.store.schema import to_table
from populora_core.support import ids
from populora_core.support.finish import FinishReason

BLOCK_COMPLETIONS = 512
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
class ExamBlock:
    """Some problems of one benchmark."""

    entry: Entry
    benchmark: Benchmark
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Exam:
    """One half of a suite, and the players that answer it.

    Attributes:
        chosen: problems of each benchmark; None for those that the suite names.
    """

    suite: Suite
    part: Part
    players: Sequence[Player]
    chosen: SuiteItems | None = None

    @cached_property
    def problems(self) -> SuiteItems:
        """The problems of each benchmark.

        Raises:
            BenchmarkError: a benchmark's rows are missing or wrong, or it has no problem in this half.
        """
        if self.chosen is not None:
            return self.chosen
        return require_problems(self.suite, self.part, suite_items(self.suite, self.part))

    @property
    def blocks(self) -> Iterator[ExamBlock]:
        """The work, in order."""
        for entry, items in self.problems:
            size = max(1, BLOCK_COMPLETIONS // (len(self.players) * entry.attempts))
            for start in range(0, len(items), size):
                yield ExamBlock(entry, benchmark(entry.benchmark), tuple(items[start : start + size]))

    @property
    def completions(self) -> int:
        """Number of completions over all problems."""
        return sum(len(items) * len(self.players) * entry.attempts for entry, items in self.problems)

    @property
    def most_tokens(self) -> int:
        """Largest number of tokens that can be sampled."""
        return sum(
            len(items) * len(self.players) * entry.attempts * entry.max_tokens
            for entry, items in self.problems
        )

    def decides(self, session: Session) -> dict[str, Any]:
        """The part of a key that says who is asked what, and by which rules it is judged; the suite by itself.

        Raises:
            BenchmarkError: a benchmark has no template for the model family, or what grades it is not installed.
        """
        family = session.run.config.base.dialect
        return {
            "suite": self.suite.model_dump(mode="json"),
            "players": [[player.member_id, player.adapter_sha256] for player in self.players],
            "problems": _sha256([_decisive(session, family, *each) for each in self.problems]),
        }


class Evaluation:
    """An exam taken by its players as they are after a generation.

    Args:
        shards: of the stage, or of another piece of work that has a key over all that decides the answers.

    Attributes:
        tokens: of what was sampled (see `compute.work.tokens_of`).
    """

    kept = ANSWERED  # of a completion

    def __init__(self, session: Session, exam: Exam, generation: int, shards: Shards) -> None:
        self.session, self.exam, self.generation, self.shards = session, exam, generation, shards
        self.tokens: Counter[str] = Counter()
        self.family = session.run.config.base.dialect

    def run(self, progress: Callable[[int, int], None] = lambda done, total: None) -> pa.Table:
        """Answer and judge everything; every completion, as the table `evaluation_items`.

        Args:
            progress: called with the completions done and all of them.

        Raises:
            SandboxUnavailable: the sandbox went down for good. Shards that were finished stay.
        """
        tables, done, total = [self._table([], [])], 0, self.exam.completions
        for block in self.exam.blocks:
            tables.append(self._answer(block, towards(progress, total, done)))
            done += tables[-1].num_rows
            progress(done, total)
        return pa.concat_tables(tables)

    def _answer(self, block: ExamBlock, progress: Callable[[int], None]) -> pa.Table:
        asked = [
            (item, player, sample)
            for item in block.items
            for player in self.exam.players
            for sample in range(block.entry.attempts)
        ]
        completions = self._sample(block, asked, progress)
        responses = [Response(row["completion"], FinishReason(row["finish_reason"])) for row in completions]
        with self._sandbox(block.benchmark.limits) as sandbox:
            scores = block.benchmark.grade([item for item, _, _ in asked], responses, self.family, sandbox)
        template = block.benchmark.template(self.family)
        rows: list[EvaluationItemRow] = []
        for (item, player, sample), row, score in zip(asked, completions, scores, strict=True):
            rows.append(
                {
                    "generation": self.generation,
                    "member_id": player.member_id,
                    "suite": self.exam.suite.suite,
                    "part": self.exam.part,
                    "benchmark": block.entry.benchmark,
                    "item_id": item.item_id,
                    "stratum": item.stratum,
                    "sample_index": sample,
                    "temperature": block.entry.temperature,
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
        """The table of a block as it is stored: its rows, each of a completion."""
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
            for player in self.exam.players
            if player.adapter_sha256
        ]

    def _sample(
        self,
        block: ExamBlock,
        asked: Sequence[tuple[Item, Player, int]],
        progress: Callable[[int], None],
    ) -> list[SampledRow]:
        """One completion for each, in order; the workers share the problems, each has every player."""
        entry, workers = block.entry, self.session.run.config.compute.shards
        ends = ends_of(block.benchmark, self.family)
        text = {item.item_id: block.benchmark.prompt(item, self.family) for item in block.items}
        place = {item.item_id: number % workers for number, item in enumerate(block.items)}
        shares: list[list[Prompt]] = [[] for _ in range(workers)]
        for item, player, sample in asked:
            shares[place[item.item_id]].append(
                Prompt(
                    member_id=player.member_id if player.adapter_sha256 else None,
                    text=text[item.item_id],
                    # Common to all players: what they draw differs by their policies alone.
                    seed=ids.draw_seed(self.exam.suite.seed, entry.benchmark, item.item_id, sample),
                    temperature=entry.temperature,
                    top_p=entry.top_p,
                    max_tokens=entry.max_tokens,
                )
            )
        parts = [Generate(self._served, share, ends) for share in shares if share]
        done = self.shards.map(parts, progress)
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


def answers(session: Session, exam: Exam, generation: int, folder: Path) -> pa.Table:
    """Have an exam taken without a stage: what was answered is found again in a folder."""
    spec = session.model_spec
    with_what = [spec.digest, spec.base.numbers, spec.base.device, spec.sampler.engine]
    shards = session.shards(_sha256([exam.decides(session), with_what]), folder)
    return Evaluation(session, exam, generation, shards).run()


def seeded(suite: Suite, seed: int | None) -> Suite:
    """The suite with another seed for its draws; None leaves it."""
    return suite if seed is None else suite.model_copy(update={"seed": seed})


def players_of(adapters: Mapping[str, str]) -> list[Player]:
    """The members in the order of their ids, from member_id -> sha256 of its weights."""
    return [Player(member_id, adapters[member_id]) for member_id in sorted(adapters)]


def _decisive(session: Session, family: str, entry: Entry, items: Sequence[Item]) -> list[object]:
    """Everything of a benchmark's problems that decides what players answer and how it is judged."""
    known = benchmark(entry.benchmark)
    rules = [known.version, known.template(family), *_stops(known, family, items)]
    limits = repr(known.limits or session.run.limits)
    # By hash, one after the other: the tests of a benchmark's items can be gigabytes of text.
    return [entry.benchmark, rules, limits, [_sha256([item.item_id, item.fields]) for item in items]]


def _stops(known: Benchmark, family: str, items: Sequence[Item]) -> list[str]:
    """Texts that end an answer to one of the items."""
    if (ends := ends_of(known, family)) is not None:
        return sorted(ends)
    spoken = dialect(family)
    return sorted({text for item in items for text in stops_of(spoken, known.prompt(item, family))})


def _sha256(document: object) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
