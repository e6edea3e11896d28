"""Texts that end a completion, looked for in what its tokens say: no tokenizer need keep them in tokens of their own.

A stop text may begin and end inside tokens. So that most steps decode nothing, each token of the vocabulary is asked
once whether it can be the last of one; only after such a token is the tail of the completion decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Decode = Callable[[Sequence[int]], str]
"""The text of tokens, special ones included."""
BROKEN = "\ufffd"
"""The character that a decoder writes for bytes that are no whole character."""


class StopTexts:
    """A search for the token with which one of a request's stop texts is complete.

    Args:
        texts: none of them empty.
        piece: what a token adds to a text.
    """

    def __init__(self, texts: Sequence[str], decode: Decode, piece: Callable[[int], str]) -> None:
        self._texts, self._decode, self._piece = tuple(texts), decode, piece
        self._before = max(map(len, self._texts)) - 1  # characters of the longest before the newest token
        self.may_end = cache(self._may_end)

    def ended(self, ids: Sequence[int]) -> bool:
        """True if the last of these tokens completes a stop text; those before it completed none."""
        if not ids or not self.may_end(ids[-1]):
            return False
        start, seen = len(ids) - 1, 0
        # Bytes that are no whole character count for nothing, and are never where the tail begins.
        while start > 0 and (seen < self._before or BROKEN in self._piece(ids[start])):
            start -= 1
            piece = self._piece(ids[start])
            seen += 0 if BROKEN in piece else len(piece)
        start = max(0, start - 1)  # some decoders drop the blank that a text begins with
        return first_stop(self._decode(ids[start:]), self._texts) is not None

    def _may_end(self, token: int) -> bool:
        """True if a text that ends with this token may complete a stop text with it."""
        piece = self._piece(token)
        if BROKEN in piece and not all(text.isascii() for text in self._texts):
            return True
        return any(
            text in piece or any(text.endswith(piece[:size]) for size in range(1, len(piece) + 1))
            for text in self._texts
        )


def stop_texts(decode: Decode) -> Callable[[tuple[str, ...]], StopTexts | None]:
    """Return a function that makes a `StopTexts` of texts, None of none; each text and token is examined once."""

    @cache
    def piece(token: int) -> str:
        return decode([token, token])[len(decode([token])) :]  # as it stands after another one

    @lru_cache(maxsize=64)  # a server's clients send what they like
    def made(texts: tuple[str, ...]) -> StopTexts | None:
        return StopTexts(texts, decode, piece) if texts else None

    return made


def first_stop(text: str, stops: Sequence[str]) -> tuple[int, int] | None:
    """[start, end) of the stop text that is complete first; of those that end together, the longest."""
    found = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
    if not found:
        return None
    end, start = min(found)
    return start, end


def end_at_stop_texts(state: dict[str, Tensor], stopping: Sequence[StopTexts | None]) -> None:
    """End the rows whose newest token completes a stop text; only tokens that may do so are looked at again."""
    rows = zip(state["index"].tolist(), state["last"].tolist(), state["ended"].tolist(), strict=True)
    for row, (index, token, ended) in enumerate(rows):
        texts = stopping[index]
        if texts is not None and not ended and texts.may_end(token):
            state["ended"][row] = texts.ended(state["tokens"][row, : state["taken"][row]].tolist())
