"""Texts that begin alike as one sequence, and sequences as micro-batches of several members.

The attempts at one problem share its prompt. Packed behind one copy of it, each sees the prompt and itself
only, at the positions that it would have alone: the same numbers for a fraction of the tokens. Completions
longer than their prompt stay alone: they would save little, and attention grows with the square of the
sequence. Prompts too may begin alike, with instructions and examples: `pack_beginnings` shares whatever texts do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from populora_core.learner.rows import TrainingRow

LONG_PACK = 1024
"""Tokens of a pack at least, where texts share whatever they begin with."""

PAIRS = 1000
"""Pairs of tokens in attention that cost a CPU as much as one token in the layers' products: 0.7 to 1.3 thousand."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Rows of one member that share one sequence.

    Attributes:
        common: of each row, the tokens at its beginning that it has from the row before it.
    """

    rows: tuple[TrainingRow, ...]
    length: int
    common: tuple[int, ...]

    @property
    def member_id(self) -> str:
        return self.rows[0].member_id

    @property
    def shared(self) -> bool:
        """True if several rows are in it."""
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
                packs.append(_behind(prompt, chosen, length))
                chosen, length = [], len(prompt)
            chosen.append(row)
            length += added
        packs.append(_behind(prompt, chosen, length))
    return packs


def _behind(prompt: tuple[int, ...], rows: list[TrainingRow], length: int) -> Pack:
    return Pack(tuple(rows), length, (0, *[len(prompt)] * (len(rows) - 1)))


def pack_beginnings(rows: Iterable[TrainingRow], max_tokens: int) -> list[Pack]:
    """Group rows of one member that begin alike, where the tokens saved outweigh the attention that is added.

    The attempts at a problem come together first, then problems as wholes: each attempt by itself would join a
    neighbouring problem for less than all of them cost there.
    """
    single = (Pack((row,), len(_read(row)), (0,)) for row in rows)
    # In this order neighbours have most in common.
    ordered = sorted(single, key=lambda pack: (pack.member_id, _read(pack.rows[0])))
    prompts = groupby(ordered, key=lambda pack: (pack.member_id, pack.rows[0].prompt_ids))
    return _joined((pack for _, own in prompts for pack in _joined(own, max_tokens)), max_tokens)


def _joined(packs: Iterable[Pack], max_tokens: int) -> list[Pack]:
    """Join neighbours where it pays, from the first on."""
    done: list[Pack] = []
    for pack in packs:
        both = _both(done[-1], pack, max_tokens) if done else None
        if both is None:
            done.append(pack)
        else:
            done[-1] = both
    return done


def _both(one: Pack, other: Pack, max_tokens: int) -> Pack | None:
    """Two neighbours as one pack; None where they stay apart."""
    same = one.member_id == other.member_id
    alike = _alike(_read(one.rows[-1]), _read(other.rows[0])) if same else 0
    length = one.length + other.length - alike
    pairs = length**2 - one.length**2 - other.length**2
    if not alike or length > max_tokens or pairs > PAIRS * alike:
        return None
    return Pack(one.rows + other.rows, length, (*one.common, alike, *other.common[1:]))


def _read(row: TrainingRow) -> tuple[int, ...]:
    """Tokens that are read of a row: the last one of a completion predicts nothing."""
    return (*row.prompt_ids, *row.completion_ids[:-1])


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of tokens that two texts begin with in common."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def micro_batches(packs: Sequence[Pack], token_budget: int, apart: bool = False) -> Iterator[MicroBatch]:
    """Packs of like length, at most `token_budget` tokens with padding (a longer pack comes alone).

    Args:
        apart: Packs of several completions come in micro-batches of their own: one of them puts all others under its
            mask, under which layers look back all the way, and a GPU has no flash attention. The longest come first, as
            a caching allocator wants it: what is freed then has room for all that follows, and memory that does not
            suffice shows at once.
    """
    bucket: list[Pack] = []
    for pack in sorted(
        packs, key=lambda pack: (apart and pack.shared, pack.length, pack.member_id), reverse=apart
    ):
        full = bucket and (len(bucket) + 1) * max(bucket[0].length, pack.length) > token_budget
        if full or (bucket and apart and pack.shared != bucket[0].shared):
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
    causal = np.tri(shape[1], dtype=bool)
    visible = np.tile(causal, (len(packs), 1, 1)) if shared else None
    sequence, position = [], []
    for index, pack in enumerate(packs):
        own, end = np.empty(0, np.int64), 0  # where the tokens of a row are
        for row, common in zip(pack.rows, pack.common, strict=True):
            tokens = _read(row)
            new = slice(end, end := end + len(tokens) - common)
            own = np.concatenate([own[:common], np.arange(new.start, end)])
            input_ids[index, new], position_ids[index, new] = tokens[common:], np.arange(common, len(tokens))
            if visible is not None:
                visible[index, new, : new.start] = False
                visible[index, new, own[:common]] = True
            sequence.append(np.full(len(row.completion_ids), index))
            position.append(own[len(row.prompt_ids) - 1 :])
    rows = [row for pack in packs for row in pack.rows]
    counts = [len(row.completion_ids) for row in rows]
    return MicroBatch(
        n_rows=len(rows),
        member_ids=[pack.member_id for pack in packs],
        input_ids=input_ids,
        position_ids=position_ids if shared else None,
        visible=visible,
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
