"""Work that writes members: founders, and what an update makes of them. Each to the folder of its name."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from populora_core.compute.work import Worker
from populora_core.learner.rows import CorpusText, TrainingRow, UpdateRules, moving
from populora_core.planning.duration import update_operations
from populora_core.planning.memory import shape_of
from populora_core.support import ids
from populora_core.support.aliases import Progress
from populora_core.support.errors import BaseModelError

if TYPE_CHECKING:
    from populora_core.model.state import MemberState

Hashes = dict[str, str]  # file name -> sha256
TOKENS = ("prompt_ids", "completion_ids", "logprobs")
CORPUS = "corpus"
"""The role of a lesson that no member sampled."""
WRITERS = 4  # members that are written at a time, while the learner makes their probes


@dataclass(frozen=True, slots=True)
class Found:
    """Founders to write: newborn ones from `seeds`, the others from the PEFT folders in `sources`."""

    seeds: Mapping[str, int]
    sources: Mapping[str, Path]

    def run(self, worker: Worker, folder: Path, progress: Progress) -> dict[str, Hashes]:
        """Write them; returns what `export` does."""
        from populora_core.model.adopt import adopt
        from populora_core.model.state import MemberState

        rows = {member: worker.layout.init_row(ids.generator(seed)) for member, seed in self.seeds.items()}
        rows |= {member: adopt(source, worker.layout) for member, source in self.sources.items()}
        return export(worker, {member: MemberState.newborn(row) for member, row in rows.items()}, folder)


@dataclass(frozen=True, slots=True)
class Lesson:
    """A completion to learn from.

    Attributes:
        row: of the table that holds the completions of the role; among the texts, where the role is `CORPUS`.
        group: lessons of one group, the attempts at a problem, come into the same minibatch.
    """

    role: str
    row: int
    member_id: str
    advantage: float
    group: int

    @property
    def supervised(self) -> bool:
        """True if the lesson is a text of a corpus."""
        return self.role == CORPUS


@dataclass(frozen=True, slots=True)
class Update:
    """Members to train, step after step.

    Attributes:
        members: member_id -> its folder.
        completions: role -> the Parquet file of what was sampled in it, at its temperature.
        own_temperatures: member_id -> the temperature that it sampled at, where that is its own.
        steps: what each role's steps learn from, and their rules.
        earlier: member_id -> the folder of its version before, where the sampler is to be proved by these completions.
        texts: of a corpus, that lessons name.
        others: member_id -> the weights of the members whose turn it is in that proof, by id.
    """

    members: Mapping[str, Path]
    completions: Mapping[str, Path]
    temperatures: Mapping[str, float]
    steps: Sequence[tuple[Sequence[Lesson], UpdateRules]]
    earlier: Mapping[str, Path] = field(default_factory=dict)
    texts: Sequence[CorpusText] = ()
    own_temperatures: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)

    def run(self, worker: Worker, folder: Path, progress: Progress) -> dict[str, Any]:
        """Train them, and write what they become.

        Returns:
            "stats" holds a member's statistics in every role, in order; "hashes" what `export` returns; "proof" what
            `prove_sampled` does; "seconds" how long learning took, without what is read and proved before it; "mfu"
            the share of the GPU's peak that it reached, None on a CPU;
            "corpus_tokens" how many tokens of texts were learnt.

        Raises:
            AdapterNotServed: completions were sampled by something else than the learner's members; no one is trained.
        """
        from populora_core.compute.proving import prove_sampled
        from populora_core.learner.update import update_members
        from populora_core.model.adapter_files import read_state

        stacked = worker.learn()
        states = {member: read_state(source) for member, source in self.members.items()}
        stats, steps = [], list(self._rows(worker))
        sampled = [row for rows, _ in steps for row in rows if not row.supervised]
        proof = prove_sampled(worker, stacked, states, self.earlier, sampled, self.others)
        started = time.perf_counter()
        for rows, rules in steps:
            states, of_step = update_members(stacked, states, rows, rules, progress)
            stats.append(of_step)
        seconds = time.perf_counter() - started
        return {
            "stats": {member: [asdict(step[member]) for step in stats] for member in states},
            "seconds": seconds,
            "mfu": _mfu(worker, steps, seconds),
            "hashes": export(worker, states, folder),
            "proof": proof,
            "corpus_tokens": sum(
                len(row.completion_ids) for rows, _ in steps for row in rows if row.supervised
            ),
        }

    def _rows(self, worker: Worker) -> Iterator[tuple[list[TrainingRow], UpdateRules]]:
        """Yield the training rows of each role's steps. Tokens are read here: they pass no driver and no key."""
        tables = {role: pq.ParquetFile(file).read(TOKENS) for role, file in self.completions.items()}

        def row(lesson: Lesson) -> TrainingRow:
            if lesson.supervised:
                prompt, completion = worker.text_ids(self.texts[lesson.row])
                return TrainingRow(
                    lesson.member_id, prompt, completion, (), lesson.advantage, 1.0, lesson.group, True
                )
            table = tables[lesson.role]
            prompt, completion, logprobs = (tuple(table[name][lesson.row].as_py()) for name in TOKENS)
            temperature = self.own_temperatures.get(lesson.member_id, self.temperatures[lesson.role])
            return TrainingRow(
                lesson.member_id, prompt, completion, logprobs, lesson.advantage, temperature, lesson.group
            )

        return (([row(lesson) for lesson in lessons], rules) for lessons, rules in self.steps)


def _mfu(
    worker: Worker, steps: Sequence[tuple[Sequence[TrainingRow], UpdateRules]], seconds: float
) -> float | None:
    """Share of the peak: the work that the steps' tokens need over that of one large product in the same time.

    Each different prompt of a member counts once per step, since completions of one may share its pass.
    """
    if worker.peak is None:
        return None
    try:
        shape = shape_of(worker.base.model.config.to_dict(), worker.layout.rank)
    except BaseModelError:  # nothing can be said of this base
        return None
    needed = 0.0
    for rows, rules in steps:
        learnt = moving(rows, rules.settings.kl)
        drawn = sum(len(row.completion_ids) for row in learnt)
        read = sum(len(prompt) for _, prompt in {(row.member_id, row.prompt_ids) for row in learnt})
        needed += update_operations(shape, read + drawn, drawn)
    return needed / seconds / worker.peak


def export(worker: Worker, states: Mapping[str, MemberState], folder: Path) -> dict[str, Hashes]:
    """Write each member to the folder of its name: PEFT adapter, moments, probe.

    Returns:
        member_id -> file name -> sha256, of `STATE_FILES`.
    """
    from populora_core.model.adapter_files import write_moments, write_peft
    from populora_core.model.probe import given_logprobs
    from populora_core.store.adapters import STATE_FILES, WEIGHTS, Probe, write_probe
    from populora_core.support.digest import file_sha256

    stacked, text = worker.learn(), worker.probe_text
    stacked.load({member: state.weights for member, state in states.items()})
    name, layout = worker.spec.base.public_name(), worker.layout

    def write(member: str) -> Hashes:
        own = folder / member
        write_peft(own, layout, states[member].weights, name)
        write_moments(own, layout, states[member])
        return {file: file_sha256(own / file) for file in STATE_FILES}

    with ThreadPoolExecutor(WRITERS) as writers:  # a member of a 7B is a gigabyte, to write and to hash
        writing = writers.map(write, states)
        logprobs = {member: given_logprobs(stacked, member, *text) for member in states}
        hashes = dict(zip(states, writing, strict=True))
    for member, own in hashes.items():
        known = own[WEIGHTS], "float32", *text, logprobs[member], worker.base_logprobs
        write_probe(folder / member, Probe(*known))
    return hashes
