"""Completions of one prompt as one sequence, and sequences as micro-batches of several members.

The attempts at one problem share its prompt. Packed behind one copy of it, each sees the prompt and itself
only, at the positions that it would have alone: the same numbers for a fraction of the tokens. Completions
longer than their prompt stay alone: they would save little, and attention grows with the square of the
sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from populora_core.learner.rows import TrainingRow


@dataclass(frozen=True, slots=True)
class Pack:
    """Rows of one member and one prompt that share one sequence."""

    rows: tuple[TrainingRow, ...]
    length: int

    @property
    def member_id(self) -> str:
        return self.rows[0].member_id

    @property
    def shared(self) -> bool:
        """True if several completions share the prompt."""
        return len(self.rows) > 1


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Packs as arrays: N sequences padded to T tokens, holding n completion tokens.

    Attributes:
        n_rows: completions in it.
        member_ids: the member of each sequence, sorted.
        input_ids: [N, T].
        position_ids: [N, T], or None where no sequence holds more than one completion.
        visible: [N, T, T], which key each query may see, or None where no sequence does: plain causal attention.
        sequence, position: [n], where the hidden state that predicts each completion token is.
        targets, old_logprobs, advantages, temperatures: [n].
        supervised: [n], whether the token is a corpus's, whose old log-probability counts for nothing.
    """

    n_rows: int
    member_ids: list[str]
    input_ids: npt.NDArray[np.int64]
    position_ids: npt.NDArray[np.int64] | None
    visible: npt.NDArray[np.bool_] | None
    sequence: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    old_logprobs: npt.NDArray[np.float64]
    advantages: npt.NDArray[np.float64]
    temperatures: npt.NDArray[np.float64]
    supervised: npt.NDArray[np.bool_]


def pack_rows(rows: Iterable[TrainingRow], max_tokens: int) -> list[Pack]:
    """Group rows of one member and prompt where that saves tokens, at most `max_tokens` a pack."""
    groups: dict[tuple[str, tuple[int, ...]], list[TrainingRow]] = {}
    for row in rows:
        groups.setdefault((row.member_id, row.prompt_ids), []).append(row)
    packs = []
    for (_, prompt), members in groups.items():
        chosen: list[TrainingRow] = []
        length = len(prompt)
        for row in members:
            added = len(row.completion_ids) - 1  # the last token of a completion predicts nothing
            if chosen and (added > len(prompt) or length + added > max_tokens):
                packs.append(Pack(tuple(chosen), length))
                chosen, length = [], len(prompt)
            chosen.append(row)
            length += added
        packs.append(Pack(tuple(chosen), length))
    return packs


def micro_batches(packs: Sequence[Pack], token_budget: int, on_gpu: bool = False) -> Iterator[MicroBatch]:
    """Packs of like length, at most `token_budget` tokens with padding (a longer pack comes alone).

    Args:
        on_gpu: Packs of several completions come in micro-batches of their own: one of them puts all others under its
            mask, and a mask takes flash attention away. The longest come first, as a caching allocator wants it: what
            is freed then has room for all that follows, and memory that does not suffice shows at once.
    """
    bucket: list[Pack] = []
    for pack in sorted(
        packs, key=lambda pack: (on_gpu and pack.shared, pack.length, pack.member_id), reverse=on_gpu
    ):
        full = bucket and (len(bucket) + 1) * max(bucket[0].length, pack.length) > token_budget
        if full or (bucket and on_gpu and pack.shared != bucket[0].shared):
            yield collate(bucket)
            bucket = []
        bucket.append(pack)
    if bucket:
        yield collate(bucket)


def made_ahead(batches: Iterator[MicroBatch]) -> Iterator[MicroBatch]:
    """The same, each made by a thread while the GPU works on the one before."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, batches, None)
            yield batch


def collate(packs: Sequence[Pack]) -> MicroBatch:
    """Arrays of the packs, sorted by member, padded on the right, where causal attention never looks."""
    packs = sorted(packs, key=lambda pack: pack.member_id)
    shape = len(packs), max(pack.length for pack in packs)
    shared = any(pack.shared for pack in packs)
    input_ids, position_ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    part = np.full(shape, -1, np.int64)  # 0 the prompt, 1, 2, ... the completions, -1 padding
    sequence, position = [], []
    for index, pack in enumerate(packs):
        prompt = pack.rows[0].prompt_ids
        end = len(prompt)
        input_ids[index, :end], position_ids[index, :end], part[index, :end] = prompt, np.arange(end), 0
        for number, row in enumerate(pack.rows, start=1):
            inputs = row.completion_ids[:-1]
            start, end = end, end + len(inputs)
            input_ids[index, start:end], part[index, start:end] = inputs, number
            position_ids[index, start:end] = len(prompt) + np.arange(len(inputs))
            sequence.append(np.full(len(inputs) + 1, index))
            position.append(np.concatenate([[len(prompt) - 1], np.arange(start, end)]))
    rows = [row for pack in packs for row in pack.rows]
    counts = [len(row.completion_ids) for row in rows]
    return MicroBatch(
        n_rows=len(rows),
        member_ids=[pack.member_id for pack in packs],
        input_ids=input_ids,
        position_ids=position_ids if shared else None,
        visible=_visible(part) if shared else None,
        sequence=np.concatenate(sequence),
        position=np.concatenate(position),
        targets=np.concatenate([np.asarray(row.completion_ids) for row in rows]),
        old_logprobs=np.concatenate(
            [
                np.zeros(count) if row.supervised else np.asarray(row.old_logprobs, np.float64)
                for row, count in zip(rows, counts, strict=True)
            ]
        ),
        advantages=np.repeat([float(row.advantage or 0.0) for row in rows], counts),
        temperatures=np.repeat([row.temperature for row in rows], counts),
        supervised=np.repeat([row.supervised for row in rows], counts),
    )


def _visible(part: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """[N, T, T]: earlier tokens of the prompt or of the query's own part."""
    query, key = part[:, :, None], part[:, None, :]
    causal = np.tri(part.shape[1], dtype=bool)
    return causal & ((key == 0) | (key == query))
