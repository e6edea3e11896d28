"""A shard of the corpus in memory, and the batches that one pass over it is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerFast

from base_model.documents import Document, encode_document, write_document
from base_model.tokenizer import PAD

SORT_WINDOW = 4000


@dataclass(frozen=True, slots=True)
class CorpusShard:
    """Documents end to end.

    Attributes:
        ids: token ids of all documents, shape (tokens,).
        weights: loss weight of each token, shape (tokens,).
        offsets: where each document starts, with the total at the end, shape (documents + 1,).
    """

    ids: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each document, shape (documents,)."""
        return np.diff(self.offsets)


def generate_shard(
    rng: np.random.Generator,
    tokenizer: PreTrainedTokenizerFast,
    tokens: int,
    progress: Callable[[int], None] | None = None,
    watch: Callable[[Document], None] | None = None,
    write: Callable[[np.random.Generator, PreTrainedTokenizerFast], Document] = write_document,
) -> CorpusShard:
    """Documents of ``write`` until they hold at least ``tokens`` tokens; ``watch`` sees each one."""
    ids: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    total = 0
    while total < tokens:
        document = write(rng, tokenizer)
        if watch is not None:
            watch(document)
        document_ids, document_weights = encode_document(tokenizer, document)
        ids.append(np.asarray(document_ids, np.uint16))
        weights.append(np.asarray(document_weights, np.float16))
        total += len(document_ids)
        if progress is not None and len(ids) % 20_000 == 0:
            progress(total)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in ids])])
    return CorpusShard(np.concatenate(ids), np.concatenate(weights), offsets)


def plan_batches(rng: np.random.Generator, shard: CorpusShard, batch_tokens: int) -> list[np.ndarray]:
    """Document indices of each batch of one pass, in the order of training.

    Documents are shuffled, then sorted by length within a window, so that a batch pads little; padded, it
    holds at most ``batch_tokens`` tokens.
    """
    lengths = shard.lengths
    shuffled = rng.permutation(len(lengths))
    batches: list[np.ndarray] = []
    for start in range(0, len(shuffled), SORT_WINDOW):
        window = shuffled[start : start + SORT_WINDOW]
        window = window[np.argsort(lengths[window], kind="stable")]
        planned: list[np.ndarray] = []
        first = 0
        for last in range(len(window)):
            if (last - first + 1) * lengths[window[last]] > batch_tokens and last > first:
                planned.append(window[first:last])
                first = last
        planned.append(window[first:])
        batches += [planned[index] for index in rng.permutation(len(planned))]
    return batches


def padded_batch(shard: CorpusShard, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and loss weights of documents, padded on the right; both of shape (documents, longest)."""
    longest = int(shard.lengths[documents].max())
    ids = np.full((len(documents), longest), PAD, np.int64)
    weights = np.zeros((len(documents), longest), np.float32)
    for row, document in enumerate(documents):
        start, end = shard.offsets[document], shard.offsets[document + 1]
        ids[row, : end - start] = shard.ids[start:end]
        weights[row, : end - start] = shard.weights[start:end]
    return ids, weights
